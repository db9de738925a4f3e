"""Bayesian CP decomposition of ordered levels, such as stars."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.cp.estimators.classifier import BaseClasses
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.queries import fact
from tensorcep.cp.fitted import predict
from tensorcep.cp.targets.levels import LevelTarget
from tensorcep.entries.tables import Cells, Values


@document("is 1")
@dataclass(eq=False, repr=False)
class CPOrdinalClassifier(BaseClasses):
    """Bayesian CP decomposition of a sparse tensor of ordered levels: stars, grades, "never" to "always".

    Entries are samples: X holds their integer coordinates (N, K), y their levels, 2 to 20 different ones: numbers or
    text, whose order is that of sorting, or an ordered Categorical, whose order is its own. The level of an entry
    counts how many thresholds f plus noise exceeds, where f = sum_r prod_k U_k[i_k, r] is its latent value. The noise
    has the variance of the link's distribution and the first threshold is 0, which sets unit and origin of f; the other
    thresholds are learned: drawn by "gibbs", and otherwise where the lower bound ("vmp") or the expected log
    likelihood under the posterior of f ("cep", "laplace") is highest. Two levels have the
    likelihood of `CPClassifier` with this link, but are fitted by the rules for levels (entries are not left out by
    class, chains have as many sweeps as for values, other steps are damped): on 260 labels both predicted as well, with
    probabilities that differed by up to 0.08 ("gibbs"), 0.06 ("vmp", and "cep" with the logit link), 0.03 ("laplace")
    and 0.0002 ("cep" with the probit link).

    "auto" is "gibbs" for the probit link and "cep" for the logit, whose thresholds no sampler here learns. Streams
    (`partial_fit`), "wopt", "pg-gibbs" and "pg-vb" are refused.

    Parameters
    ----------
    <parameters>
    link : {"probit", "logit"}, default="probit"
        Normal or logistic noise. "logit" is for "cep" and "laplace".

    Attributes
    ----------
    <attributes>
    classes_ : ndarray (L,)
        The levels in their order.
    thresholds_ : ndarray (L - 1,)
        Posterior means (middles, but for "gibbs") of the thresholds, in the units of the noise.
    thresholds_std_ : ndarray (L - 1,)
        Their posterior standard deviations given the rows, for "gibbs" those of the draws; the first is 0.
    link_ : {"probit", "logit"}

    References
    ----------
    McCullagh (1980), Regression models for ordinal data; Albert and Chib (1993), Bayesian analysis of binary and
    polychotomous response data, sec. 4; Cowles (1996), Accelerating Monte Carlo Markov chain convergence for
    cumulative-link generalized linear models.

    Examples
    --------
    >>> import numpy as np, tensorcep as tc
    >>> rng = np.random.default_rng(0)
    >>> X = np.stack(np.unravel_index(rng.choice(600, 300, replace=False), (30, 20)), axis=1)
    >>> f = rng.normal(size=30)[X[:, 0]] + rng.normal(size=20)[X[:, 1]] + 0.5 * rng.normal(size=300)
    >>> stars = 1 + np.searchsorted([-1.0, 0.0, 1.5], f)
    >>> model = tc.CPOrdinalClassifier(1, method="vmp", random_state=0).fit(X, stars)
    >>> model.classes_.tolist(), model.predict_proba(X[:2]).shape
    ([1, 2, 3, 4], (2, 4))
    """

    _: KW_ONLY
    link: str = "probit"

    def _target(self) -> LevelTarget:
        return LevelTarget(self.link)

    link_ = fact(lambda fit: fit.observation.facts["link_"], "The link that was fitted.")
    classes_ = fact(lambda fit: np.array(list(fit.observation.facts["_classes"])), "The levels in their order.")

    @property
    def thresholds_(self) -> np.ndarray:
        """Posterior means of the thresholds (L - 1,); the first is 0."""
        theta = self._result.belief.theta
        return np.zeros(1) if theta is None else np.append(0.0, theta.values.mean(axis=0))

    @property
    def thresholds_std_(self) -> np.ndarray:
        """Posterior standard deviations of the thresholds (L - 1,); the first is 0."""
        theta = self._result.belief.theta
        if theta is None:
            return np.zeros(1)
        variance = theta.values.var(axis=0)
        if theta.log_gaps is not None:  # to first order in the log gaps
            mean, cov = theta.log_gaps
            to_thresholds = np.tril(np.ones(cov.shape[1:])) * np.exp(mean)[:, None, :]
            within = np.einsum("cij,cjk,cik->ci", to_thresholds, cov, to_thresholds)
            variance = variance + within.mean(axis=0)
        return np.append(0.0, np.sqrt(variance))

    def predict_proba(self, X: Cells) -> np.ndarray:
        """Predictive probabilities of the levels, (n, L), the posterior of the factors integrated out.

        Examples
        --------
        >>> from tensorcep import CPOrdinalClassifier
        >>> seen = [{"user": f"u{a}", "item": f"i{b}", "stars": min(a * b // 4, 2)} for a in range(6) for b in range(6)]
        >>> model = CPOrdinalClassifier(1, method="vmp", random_state=0).fit(seen, value="stars")
        >>> model.predict_proba(seen[:2]).shape, model.classes_.tolist()
        ((2, 3), [0, 1, 2])
        """
        return predict.observed_levels(self._fitted, X)

    def predict(self, X: Cells, by: str = "mode") -> np.ndarray:
        """The most probable level of each entry, (n,); by="mean" its expected value, where levels are numbers.

        Raises
        ------
        TypeError
            If the mean of levels is asked for that are no numbers.

        Examples
        --------
        >>> from tensorcep import CPOrdinalClassifier
        >>> seen = [{"user": f"u{a}", "item": f"i{b}", "stars": min(a * b // 4, 2)} for a in range(6) for b in range(6)]
        >>> model = CPOrdinalClassifier(1, method="vmp", random_state=0).fit(seen, value="stars")
        >>> model.predict(seen[:2]).shape, model.predict(seen[:2], by="mean").dtype
        ((2,), dtype('float64'))
        """
        if check_choice("by", by, ("mode", "mean")) == "mean":
            return self.expected_value(X)
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def expected_value(self, X: Cells, return_std: bool = False) -> Any:
        """The expected level of each entry, (n,), and, if asked, the standard deviation of a new one.

        Raises
        ------
        TypeError
            If levels are no numbers.

        Examples
        --------
        >>> from tensorcep import CPOrdinalClassifier
        >>> seen = [{"user": f"u{a}", "item": f"i{b}", "stars": min(a * b // 4, 2)} for a in range(6) for b in range(6)]
        >>> model = CPOrdinalClassifier(1, method="vmp", random_state=0).fit(seen, value="stars")
        >>> mean, sd = model.expected_value(seen, return_std=True)
        >>> bool((0 <= mean).all() and (mean <= 2).all())
        True
        """
        if self.classes_.dtype.kind == "U":
            raise TypeError("levels must be numbers to have a mean; got text; use predict or predict_proba.")
        return predict.predicted(self._fitted, X, return_std)

    def predict_interval(self, X: Cells, coverage: float = 0.9) -> np.ndarray:
        """The levels, (n, 2), between which a new one lies with at least this probability, as much outside on a side.

        As levels jump, more of them lie inside than `coverage` says.

        Examples
        --------
        >>> from tensorcep import CPOrdinalClassifier
        >>> seen = [{"user": f"u{a}", "item": f"i{b}", "stars": min(a * b // 4, 2)} for a in range(6) for b in range(6)]
        >>> model = CPOrdinalClassifier(1, method="vmp", random_state=0).fit(seen, value="stars")
        >>> model.predict_interval(seen[:2], coverage=0.9).shape
        (2, 2)
        """
        return self._result.observation.decoded(predict.interval(self._fitted, X, coverage))

    def partial_fit(self, X: Cells, y: Values = None, **others: Any) -> Any:
        """Refuse, by a ValueError: thresholds are learned from all entries together."""
        fail_value(
            "CPOrdinalClassifier learns its thresholds from all entries together, and no streams; use fit, or "
            "CPRegressor for streams of stars."
        )

    def stream(self, source: Any, **others: Any) -> Any:
        """Refuse, as `partial_fit` does."""
        return self.partial_fit(source)
