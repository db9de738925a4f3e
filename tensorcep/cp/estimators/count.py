"""Bayesian CP decomposition of counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from tensorcep.core.checks import check_choice, check_range
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.options import matching_scale
from tensorcep.likelihoods import get_likelihood, names_of
from tensorcep.likelihoods.record import Likelihood


@document("matches rank * scale^(2 K) to the mean square of log(y + 1/2)")
@dataclass(eq=False, repr=False)
class CPCountRegressor(RegressorMixin, BaseCP):  # type: ignore[misc]
    """Bayesian CP decomposition of a sparse tensor of counts, with a log-linear mean, exp(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their counts. Any order K >= 2. An absent entry is
    unobserved; zeros that were observed are entries too.

    Parameters
    ----------
    <parameters>
    likelihood : {"poisson", "negbinomial"}, default="poisson"
        Poisson counts, or negative-binomial ones: the mean r e^f comes with the variance r e^f (1 + e^f).
    dispersion : float, default=1
        r of negative-binomial counts. The methods "pg-vb" and "pg-gibbs" infer it instead (see `PGVB` and `PGGibbs`).

    Attributes
    ----------
    <attributes>
    """

    _: KW_ONLY
    likelihood: str = "poisson"
    dispersion: float = 1.0

    def _likelihood(self) -> Likelihood:
        r = check_range("dispersion", self.dispersion, 0.0, include_low=False)
        record = get_likelihood(check_choice("likelihood", self.likelihood, names_of("counts")))
        return record._replace(default_theta=r) if record.parameter is not None else record

    def _intercept(self, y: np.ndarray, likelihood: Likelihood) -> float:
        return float(np.log(max(float(np.mean(y)), 0.5 / len(y))))

    def _auto_scale(self, y: np.ndarray, order: int, rank: int) -> float:
        return matching_scale(float(np.mean(np.log(np.maximum(y, 0.0) + 0.5) ** 2)), order, rank)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean count of each entry and, if asked, the standard deviation of a new count."""
        return self._predicted(X, return_std)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central interval of a new count of each entry, (n, 2)."""
        return self._observation_interval(X, coverage)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Fraction of Poisson deviance explained (D^2), as in sklearn.linear_model.PoissonRegressor."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
