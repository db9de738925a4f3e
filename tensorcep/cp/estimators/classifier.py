"""Bayesian CP decomposition of labels of two classes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.queries import fact
from tensorcep.cp.fitted import predict
from tensorcep.cp.targets.labels import LabelTarget
from tensorcep.cp.targets.levels import check_none_missing
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Values


@dataclass(eq=False, repr=False)
class BaseClasses(ClassifierMixin, BaseCP):  # type: ignore[misc]
    """Common part of the estimators whose values are labels, or ordered levels."""

    def score(
        self, X: Cells, y: Values = None, sample_weight: Values = None, *, modes: Names = None, value: Name = UNSAID
    ) -> float:
        """Share of the labels, or levels, that are predicted; entries are as in `CPRegressor.score`.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.score(entries.coords, entries.values > 1) > 0.7
        True
        """
        cells, labels, weight, _ = predict.scored_entries(self._fitted, X, y, sample_weight, modes, value)
        found = self.predict(cells)
        check_none_missing(labels)
        if found.dtype.kind == "f" and labels.dtype.kind in "biuf" and labels.shape == found.shape:
            labels, found = labels == found, np.ones(len(labels), dtype=bool)  # of fractions scikit-learn takes none
        return float(accuracy_score(labels, found, sample_weight=weight))


@document("is 1 (the paper's)")
@dataclass(eq=False, repr=False)
class CPClassifier(BaseClasses):
    """Bayesian CP decomposition of a sparse tensor of 0/1 labels, P(y = 1) = link(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their labels 0 or 1, or any two labels, of which
    the second in sorted order counts as 1; the first batch of a stream must have both. Any order K >= 2. An absent
    entry is unobserved; if only ones were recorded, add zeros with `SparseTensor.sample_zeros`, and say by `zero_rate`
    how many of them there are. Where ones are rare, the probabilities of "cep" are on average a little above their
    share (by a tenth at 2 % ones); those of "gibbs" are closer.

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

    _: KW_ONLY
    link: str = "auto"
    zero_rate: float | str = 1.0

    def _target(self) -> LabelTarget:
        return LabelTarget(self.link, self.zero_rate)

    link_ = fact(lambda fit: fit.observation.facts["link_"], "The link that was fitted.")
    classes_ = fact(lambda fit: np.array(list(fit.observation.facts["_classes"])), "The two labels.")

    @property
    def zero_rate_(self) -> float:
        """The share of the population's zeros that the entries of the fit hold."""
        return self._target().rate_of(self._result.observation)

    def predict_proba(self, X: Cells) -> np.ndarray:
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
        p, _ = predict.observed(self._fitted, X)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Cells) -> np.ndarray:
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

    def decision_function(self, X: Cells) -> np.ndarray:
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
        likelihood, (belief, rows) = self._fitted.likelihood_of_new, predict.belief_at(self._fitted, X)
        if self.zero_rate_ < 1.0:
            labels = (np.full(len(rows), side) for side in (1.0, -1.0))
            one, zero = (predict.observed_logpdf(likelihood, belief, rows, y) for y in labels)
            return np.asarray(one - zero)
        if not belief.points:
            belief = belief._replace(doubt=None)  # which probabilities do not have
        with self._fitted.threads() as executor:
            mean, variance = predict.latent(belief, rows, executor)
        slope = np.pi / 8.0 if self._result.likelihood.f_is_log_odds else 1.0
        return mean / np.sqrt(1.0 + slope * variance)

    def predict_interval(self, X: Cells, coverage: float = 0.9) -> np.ndarray:
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
        f = predict.interval(self._fitted, X, coverage, of_latent=True)
        p, _ = self._fitted.likelihood_of_new.predict(f.ravel(), np.zeros(f.size), np.ones(f.size))
        return p.reshape(f.shape)
