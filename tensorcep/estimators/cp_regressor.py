"""Bayesian CP decomposition of real values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tensorcep._checks import check_range, fail_value
from tensorcep.estimators._base import BaseCP
from tensorcep.estimators._docs import document
from tensorcep.estimators._options import matching_scale
from tensorcep.likelihoods._record import Likelihood
from tensorcep.posterior import GammaNoise, Mixture, Prior

LARGEST = 1e140


@document("matches rank * scale^(2 K) to the mean square of y")
class CPRegressor(RegressorMixin, BaseCP):  # type: ignore[misc]
    """Bayesian CP decomposition of a sparse tensor of real values, with Gaussian noise of unknown precision.

    An entry is y = sum_r prod_k U_k[i_k, r] + noise; factor rows have Gaussian priors, the noise precision a Gamma
    prior. Entries are samples: X holds their integer coordinates (N, K), y their values. Any order K >= 2.

    Parameters
    ----------
    <parameters>
    noise_prior : tuple (a, b), optional
        Shape and rate of the Gamma prior of the noise precision; by default (1e-3, 1e-3 times the mean square of
        y), the paper's prior in units of the data.

    Attributes
    ----------
    <attributes>
    noise_precision_ : float
        Posterior mean of the noise precision.

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1.
    """

    def __init__(
        self,
        rank: int = 8,
        *,
        method: str = "cep",
        prior_scale: float | str = "auto",
        prior_mean: float | str = "uniform",
        prior: Prior | str | None = None,
        interactions: str | dict[str, int] = "cp",
        noise_prior: tuple[float, float] | None = None,
        schedule: str = "modewise",
        moments: str = "cavity",
        order: int = 1,
        damping: float | str = "auto",
        anneal: int | str = "auto",
        max_iter: int = 200,
        tol: float = 3e-3,
        init: Any = "random",
        n_init: int = 3,
        n_ensemble: int = 1,
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
        self.noise_prior = noise_prior

    def _likelihood_name(self) -> str:
        return "gaussian"

    def _noise_prior(self, y: np.ndarray) -> GammaNoise:
        if self.noise_prior is None:
            return GammaNoise(1e-3, 1e-3 * (float(np.mean(y**2)) or 1.0))
        try:
            a, b = self.noise_prior
        except (TypeError, ValueError):
            fail_value(f"noise_prior must be None or a pair (a, b) of positive numbers; got {self.noise_prior!r}.")
        return GammaNoise(
            check_range("noise_prior[0]", a, 0.0, include_low=False),
            check_range("noise_prior[1]", b, 0.0, include_low=False),
        )

    def _checked_targets(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        y = likelihood.check_y(y)
        largest = float(np.abs(y).max())
        if largest > LARGEST:
            fail_value(
                f"y must not exceed {LARGEST:g} in size, so that squares stay finite; got {largest:g}; rescale y."
            )
        return y

    def _intercept(self, y: np.ndarray) -> float:
        return float(np.mean(y))

    def _auto_scale(self, y: np.ndarray, order: int, rank: int) -> float:
        return matching_scale(float(np.mean(y**2)), order, rank)

    @property
    def noise_precision_(self) -> float:
        """Posterior mean of the noise precision (the estimate, for a method without a posterior)."""
        check_is_fitted(self, "posterior_")
        result: Any = self.posterior_
        if isinstance(result, Mixture):
            return float(np.mean([member.noise.precision for member in result.members if member.noise is not None]))
        return float(result.noise.precision if hasattr(result, "noise") else np.mean(result.theta))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean of each entry and, if asked, the standard deviation of a new observation.

        The standard deviation holds the variance of the product of the factors and the noise variance.

        Parameters
        ----------
        X : array-like of shape (n, K), SparseTensor, or DataFrame of labels
        return_std : bool

        Returns
        -------
        ndarray (n,), or a pair of them

        Raises
        ------
        ValueError
            If return_std is asked of a method that gives a point estimate.
        """
        return self._predicted(X, return_std)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central interval of a new observation of each entry, (n, 2)."""
        return self._observation_interval(X, coverage)
