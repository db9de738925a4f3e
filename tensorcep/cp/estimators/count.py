"""Bayesian CP decomposition of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from tensorcep.core.checks import check_choice, check_range
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.options import matching_scale
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import Prior


@document("matches rank * scale^(2 K) to the mean square of log(y + 1/2)")
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
        r of negative-binomial counts. The methods "pg-vb" and "pg-gibbs" infer it instead (see their method_options).

    Attributes
    ----------
    <attributes>
    """

    def __init__(
        self,
        rank: int | str = "auto",
        *,
        likelihood: str = "poisson",
        dispersion: float = 1.0,
        method: str = "auto",
        prior_scale: float | str = "auto",
        prior_mean: float | str = "uniform",
        prior: Prior | str = "auto",
        interactions: str | dict[str, int] = "auto",
        schedule: str = "modewise",
        moments: str = "cavity",
        order: int = 1,
        damping: float | str = "auto",
        anneal: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float = 3e-3,
        init: Any = "random",
        n_init: int = 3,
        n_ensemble: int | str = "auto",
        shape: tuple[int, ...] | None = None,
        unknown: str = "prior",
        dtype: str = "float64",
        method_options: dict[str, Any] | None = None,
        forget: float = 0.0,
        revisit: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ):
        super().__init__(
            rank,
            method=method,
            prior_scale=prior_scale,
            prior_mean=prior_mean,
            prior=prior,
            interactions=interactions,
            schedule=schedule,
            moments=moments,
            order=order,
            damping=damping,
            anneal=anneal,
            max_iter=max_iter,
            tol=tol,
            init=init,
            n_init=n_init,
            n_ensemble=n_ensemble,
            shape=shape,
            unknown=unknown,
            dtype=dtype,
            method_options=method_options,
            forget=forget,
            revisit=revisit,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.likelihood = likelihood
        self.dispersion = dispersion

    def _likelihood_name(self) -> str:
        return check_choice("likelihood", self.likelihood, ("poisson", "negbinomial"))

    def _likelihood(self) -> Likelihood:
        r = check_range("dispersion", self.dispersion, 0.0, include_low=False)
        record = super()._likelihood()
        return record._replace(default_theta=r) if record.parameter is not None else record

    def _intercept(self, y: np.ndarray) -> float:
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
