"""Bayesian CP decomposition of labels of two classes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logit, ndtri
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_unmasked, check_values, fail_value, word_or_range
from tensorcep.core.executor import threads_of
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.learning import Watch
from tensorcep.cp.estimators.scoring import scored_entries, share_predicted
from tensorcep.cp.fitted.predict import latent, observed_logpdf
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.methods import METHODS
from tensorcep.cp.stream.cold_start import chooses_prior
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.targets.levels import check_none_missing
from tensorcep.entries.batch import Batch
from tensorcep.entries.tables import UNSAID, column_apart
from tensorcep.entries.tensor import SparseTensor
from tensorcep.likelihoods import get_likelihood, names_of
from tensorcep.likelihoods.binary import mixed_with
from tensorcep.likelihoods.population import for_population, share_in_population
from tensorcep.likelihoods.record import Likelihood


@document("is 1 (the paper's)")
@dataclass(eq=False, repr=False)
class CPClassifier(ClassifierMixin, BaseCP):  # type: ignore[misc]
    """Bayesian CP decomposition of a sparse tensor of 0/1 labels, P(y = 1) = link(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their labels 0 or 1, or any two labels, of which
    the second in sorted order counts as 1; the first batch of a stream must have both. Any order K >= 2. An absent
    entry is unobserved; if only ones were recorded, add zeros with `SparseTensor.sample_zeros`, and say by `zero_rate`
    how many of them there are. Where ones are rare, the probabilities of "cep" are on average a little above their
    share (by a tenth at 2 % ones in `scripts/studies/measure_sampled_zeros.py`); those of "gibbs" are closer.

    By default, probabilities are those of a mixture with the share of ones, which counts as much as entries say that
    the fit had not learned: those left out by the sampler, and in streams every batch before it is learned.

    Parameters
    ----------
    <parameters>
    link : {"auto", "probit", "logit"}, default="auto"
        "auto" is "logit" for `fit` by default, which then is by "pg-gibbs", and for methods that know no other, and
        "probit" with other methods and in streams.
    zero_rate : float in (0, 1] or "auto", default=1
        The share of the population's zeros that the entries of the fit hold, where they were sampled and the ones were
        not. Probabilities, labels, draws and log scores are then those of the population: at every latent value the
        odds of a one are those in the fit times this rate. Latent values, and the scores of a stream, whose batches are
        sampled as well, are not changed. Where ones were sampled too, the ratio of the two rates. "auto" takes what
        the SparseTensor of the fit knows from `sample_zeros`. It has no part in the fit and can be set after it. The
        link is that of the sample; where the population's is a logit, so is the sample's, of a probit only nearly.

    Attributes
    ----------
    <attributes>
    classes_ : ndarray (2,)
    link_ : {"probit", "logit"}
    zero_rate_ : float

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1 and supplement 8.1.2. Sampled zeros: King and Zeng
    (2001), Logistic regression in rare events data, sec. 4.1.

    Examples
    --------
    >>> from tensorcep import CPClassifier, simulate_cp
    >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
    >>> model.predict_proba(entries.coords).shape, model.classes_.tolist()
    ((120, 2), [0, 1])
    """

    _own_attributes: ClassVar[tuple[str, ...]] = (*BaseCP._own_attributes, "link_", "_sampled_rate", "_classes")
    _sampled_rate: ClassVar[float | None] = None  # until a fit: what its SparseTensor knew
    _classes: ClassVar[list[Any]] = [0, 1]  # until a fit to other labels

    _: KW_ONLY
    link: str = "auto"
    zero_rate: float | str = 1.0

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self.link_)

    def _likelihoods(self) -> list[Likelihood]:
        link = self._given_link()
        return [get_likelihood(name) for name in (("probit", "logit") if link == "auto" else (link,))]

    def _given_link(self) -> str:
        """The parameter link after its check."""
        return check_choice("link", self.link, ("auto", *names_of("labels")))

    def _asked_likelihood(self) -> Likelihood:
        """With link="auto" the logit, whose sampler has the better log loss on held-out training entries."""
        link = self._given_link()
        return get_likelihood("logit" if link == "auto" else link)

    def _decide_likelihood(
        self,
        y: np.ndarray,
        chosen: Chosen,
        coords: np.ndarray,
        extent: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> tuple[Likelihood, dict[str, Any]]:
        link = self._given_link()
        if link == "auto":
            link = "logit" if METHODS[chosen.method].lacks(get_likelihood("probit")) else "probit"
        return get_likelihood(link), {"link_": link}

    def _intercept(self, y: np.ndarray, likelihood: Likelihood, weight: np.ndarray | None = None) -> float:
        """The link of the share of ones, kept off 0 and 1 by half an entry."""
        ones, n = (np.count_nonzero(y > 0.0), len(y)) if weight is None else (weight[y > 0.0].sum(), weight.sum())
        share = (ones + 0.5) / (n + 1.0)
        return float(logit(share) if likelihood.f_is_log_odds else ndtri(share))

    def _training_entries(self, X: Any, y: Any) -> tuple[Entries, dict[str, Any]]:
        given = X.values if isinstance(X, SparseTensor) and y is None else y
        if given is None or np.size(given) == 0:
            return super()._training_entries(X, y)
        classes = two_classes(given)
        if isinstance(X, SparseTensor):
            (coords, values, shape, labels), _ = super()._training_entries(X, y)
            return (coords, coded(values, classes), shape, labels), {"_classes": classes}
        return super()._training_entries(X, coded(y, classes))[0], {"_classes": classes}

    def _coded(self, y: Any) -> Any:
        return coded(y, self._classes)

    def _code(self, y: Any) -> tuple[Any, list[Any]]:
        """Labels of a batch as 0 and 1, and the two labels: those of the model, or of its first batch."""
        known = self._classes if {"posterior_", "_stream"} & set(vars(self)) else None
        if known is None:
            labels = np.asarray(check_unmasked(y, "y"))
            known = [0, 1] if labels.dtype.kind in "biuf" and np.isin(labels, [0, 1]).all() else two_classes(y)
        return coded(y, known), known

    def _learn(self, arrival: Batch, watch: Watch | None = None) -> dict[str, float]:
        before, learned = vars(self).get("_classes"), False
        self._classes = [0, 1] if arrival.classes is None else arrival.classes  # type: ignore[misc]
        try:
            scores = super()._learn(arrival, watch)
            learned = True
        finally:
            if not learned:
                self.__dict__.pop("_classes")
                self.__dict__ |= {} if before is None else {"_classes": before}
        return scores

    def _given_rate(self) -> Any:
        return word_or_range("zero_rate", self.zero_rate, ("auto",), 0.0, 1.0, include_low=False)

    def _source_attributes(self, source: Any, first: bool) -> dict[str, Any]:
        known = source.zero_rate if isinstance(source, SparseTensor) else None
        if self._given_rate() == "auto":
            if known is None:
                fail_value("zero_rate='auto' needs a SparseTensor whose zero_rate is one number; give the number.")
            if not first and known != self._sampled_rate:
                fail_value(
                    "zero_rate='auto' needs batches whose zeros were sampled at one rate; got "
                    f"{known:g} after {self._sampled_rate}; give the number."
                )
        return {"_sampled_rate": known}

    @property
    def zero_rate_(self) -> float:
        """The share of the population's zeros that the entries of the fit hold."""
        check_is_fitted(self, "posterior_")
        rate = self._given_rate()
        if rate != "auto":
            return float(rate)
        if self._sampled_rate is None:
            fail_value("zero_rate='auto' needs a fit to a SparseTensor whose zero_rate is one number; give the number.")
        return self._sampled_rate

    def _likelihood_of_new(self) -> Likelihood:
        check_is_fitted(self, "posterior_")
        record = for_population(self._likelihood(), self.zero_rate_)
        stream = vars(self).get("_stream")
        if stream is None or not chooses_prior(self) or stream.standing.share == 1.0:
            return record
        return mixed_with(
            record, stream.standing.share, share_in_population(stream.standing.share_of_ones, self.zero_rate_)
        )

    @property
    def classes_(self) -> np.ndarray:
        """The two labels."""
        check_is_fitted(self, "posterior_")
        return np.array(self._classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of the two classes, (n, 2), the posterior of the factors integrated out.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> p = model.predict_proba(entries.coords)
        >>> p.shape, bool(abs(p.sum(axis=1) - 1).max() < 1e-9)
        ((120, 2), True)
        """
        p, _ = self._observed(X)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of each entry, (n,).

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.predict(entries.coords[:3]).dtype
        dtype('int64')
        """
        likely = self.predict_proba(X)[:, 1] > 0.5
        return np.asarray(self.classes_[likely.astype(np.int64)])

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, modes: Any = None, value: Any = UNSAID
    ) -> float:
        """Share of the labels that are predicted.

        A SparseTensor brings its values, and a table may hold them in one further column; `y` is then left out.
        `modes`, `value` and `sample_weight` may name columns, as in `fit`.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.score(entries.coords, entries.values > 1) > 0.7
        True
        """
        if isinstance(sample_weight, str):
            X, sample_weight = column_apart(X, "sample_weight", sample_weight)
        entries = scored_entries(self, X, y, modes, value)
        return share_predicted(self, *entries, check_unmasked(sample_weight, "sample_weight"))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None, **extent: Any) -> np.ndarray:
        """Draw new labels of the entries X, (n_samples, n).

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.sample_y(entries.coords, n_samples=5, random_state=0).shape
        (5, 120)
        """
        drawn = super().sample_y(X, n_samples, random_state, **extent)
        return drawn if self._classes == [0, 1] else self.classes_[drawn.astype(np.int64)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Latent mean divided by the predictive scale: ranks entries as `predict_proba` does, (n,).

        With a `zero_rate` below 1, the log odds of the predictive probability.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> score = model.decision_function(entries.coords)
        >>> bool(((score > 0) == model.predict(entries.coords)).all())
        True
        """
        check_is_fitted(self, "posterior_")
        if self.zero_rate_ < 1.0:
            likelihood, (belief, rows) = self._likelihood_of_new(), self._at(X)
            labels = (np.full(len(rows), side) for side in (1.0, -1.0))
            one, zero = (observed_logpdf(likelihood, belief, rows, y) for y in labels)
            return np.asarray(one - zero)
        belief, rows = self._at(X)
        if not belief.points:
            belief = belief._replace(doubt=None)  # which probabilities do not have
        with threads_of(self.n_jobs) as executor:
            mean, variance = latent(belief, rows, executor)
        slope = np.pi / 8.0 if self._likelihood().f_is_log_odds else 1.0
        return mean / np.sqrt(1.0 + slope * variance)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central posterior interval of the probability of the second class, (n, 2): how sure the model is of it.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> lower, upper = model.predict_interval(entries.coords, coverage=0.5).T
        >>> bool((0 <= lower).all() and (lower < upper).all() and (upper <= 1).all())
        True
        """
        f = self._latent_interval(X, coverage)
        p, _ = self._likelihood_of_new().predict(f.ravel(), np.zeros(f.size), np.ones(f.size))
        return p.reshape(f.shape)


def two_classes(y: Any) -> list[Any]:
    """The two labels of a fit, sorted; [0, 1] for numbers that equal these.

    Raises
    ------
    ValueError, TypeError
        If there are fewer or more, or they are neither numbers nor text.
    """
    labels = np.asarray(check_unmasked(y, "y"))
    if not _is_text(labels):
        check_none_missing(labels)
        numbers = check_values(labels, name="y")
        labels = labels if labels.dtype.kind in "iu" else numbers
    classes = np.unique(labels).tolist()
    if len(classes) == 1:
        fail_value(
            f"y must hold labels of two classes; got only {classes[0]!r}; add entries of the other class, such as "
            "ones.concatenate(ones.sample_zeros(n)), since sample_zeros gives the zeros alone."
        )
    if len(classes) > 2:
        fail_value(
            f"y must hold labels 0 and 1, or any two labels; got {len(classes)} different ones, such as "
            f"{', '.join(map(repr, classes[:3]))}; use CPOrdinalClassifier for ordered levels such as stars, or fit "
            "whether y is above one of them."
        )
    return [0, 1] if classes == [0, 1] else classes


def coded(y: Any, classes: list[Any]) -> Any:
    """Labels as 0 and 1; as they are where they are numbers and the classes too are 0 and 1.

    Raises
    ------
    ValueError
        If one is of no class.
    """
    if classes == [0, 1]:
        return y
    labels = np.asarray(check_unmasked(y, "y"))
    check_none_missing(labels)
    comparable = _is_text(labels) == isinstance(classes[0], str)
    known = np.isin(labels, classes) if comparable else np.zeros(labels.shape, dtype=bool)
    if not known.all():
        n = int(np.argmin(known))
        got = labels.ravel()[n : n + 1].tolist()[0]
        fail_value(f"y must hold labels {classes[0]!r} and {classes[1]!r}; got {got!r} at entry {n}.")
    return (labels == classes[1]).astype(np.float64)


def _is_text(labels: np.ndarray) -> bool:
    return labels.dtype.kind in "UO" and labels.ndim == 1 and all(isinstance(label, str) for label in labels)
