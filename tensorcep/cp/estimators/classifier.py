"""Bayesian CP decomposition of 0/1 labels."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logit, ndtri
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, fail_value, word_or_range
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.defaults import Chosen
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.methods import METHODS
from tensorcep.cp.predict import observed_logpdf
from tensorcep.entries.tensor import SparseTensor
from tensorcep.likelihoods import get_likelihood, names_of
from tensorcep.likelihoods.population import for_population
from tensorcep.likelihoods.record import Likelihood


@document("is 1 (the paper's)")
@dataclass(eq=False, repr=False)
class CPClassifier(ClassifierMixin, BaseCP):  # type: ignore[misc]
    """Bayesian CP decomposition of a sparse tensor of 0/1 labels, P(y = 1) = link(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their labels 0 or 1. Any order K >= 2. An absent
    entry is unobserved; if only ones were recorded, add zeros with `SparseTensor.sample_zeros`, and say by `zero_rate`
    how many of them there are. Where ones are rare, the probabilities of "cep" are on average a little above their
    share (by a tenth at 2 % ones in `scripts/studies/measure_sampled_zeros.py`); those of "gibbs" are closer.

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
    classes_ : ndarray [0, 1]
    link_ : {"probit", "logit"}
    zero_rate_ : float

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1 and supplement 8.1.2. Sampled zeros: King and Zeng
    (2001), Logistic regression in rare events data, sec. 4.1.
    """

    _own_attributes: ClassVar[tuple[str, ...]] = (*BaseCP._own_attributes, "link_", "_sampled_rate")
    _sampled_rate: ClassVar[float | None] = None  # until a fit: what its SparseTensor knew

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
        self, y: np.ndarray, chosen: Chosen, coords: np.ndarray
    ) -> tuple[Likelihood, dict[str, Any]]:
        link = self._given_link()
        if link == "auto":
            link = "logit" if METHODS[chosen.method].lacks(get_likelihood("probit")) else "probit"
        return get_likelihood(link), {"link_": link}

    def _intercept(self, y: np.ndarray, likelihood: Likelihood) -> float:
        """The link of the share of ones, kept off 0 and 1 by half an entry."""
        share = (np.count_nonzero(y > 0.0) + 0.5) / (len(y) + 1.0)
        return float(logit(share) if likelihood.f_is_log_odds else ndtri(share))

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
        return for_population(self._likelihood(), self.zero_rate_)

    @property
    def classes_(self) -> np.ndarray:
        """The two labels."""
        check_is_fitted(self, "posterior_")
        return np.array([0, 1])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of 0 and 1, (n, 2), the posterior of the factors integrated out."""
        p, _ = self._observed(X)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of each entry, (n,) int64."""
        return (self.predict_proba(X)[:, 1] > 0.5).astype(np.int64)

    def decision_function(self, X: Any) -> np.ndarray:
        """Latent mean divided by the predictive scale: ranks entries as `predict_proba` does, (n,).

        With a `zero_rate` below 1, the log odds of the predictive probability.
        """
        check_is_fitted(self, "posterior_")
        if self.zero_rate_ < 1.0:
            likelihood, belief, rows = self._likelihood_of_new(), self._fitted_belief(), self._rows(X)
            labels = (np.full(len(rows), side) for side in (1.0, -1.0))
            one, zero = (observed_logpdf(likelihood, belief, rows, y) for y in labels)
            return np.asarray(one - zero)
        mean, variance = self.predict_latent(X)
        slope = np.pi / 8.0 if self._likelihood().f_is_log_odds else 1.0
        return mean / np.sqrt(1.0 + slope * variance)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central posterior interval of the probability of a 1, (n, 2): the uncertainty of the probability itself."""
        f = self._latent_interval(X, coverage)
        p, _ = self._likelihood_of_new().predict(f.ravel(), np.zeros(f.size), np.ones(f.size))
        return p.reshape(f.shape)
