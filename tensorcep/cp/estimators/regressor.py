"""Bayesian CP decomposition of real values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.belief import GammaNoise, Mixture
from tensorcep.core.checks import check_range, fail_value, word_or_range
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.defaults import choose
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.options import matching_scale
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods.censored import TOBIT, censored_at
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import Prior

LARGEST = 1e140
# A spike at the least value: its share of all values, and how many times as frequent it is as any other value.
SPIKE_SHARE, SPIKE_RATIO = 0.1, 3
# CEP can censor, but predicts real values worse for it.
CENSORED_BY_RULE = ("gibbs", "vmp")


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
    lower_limit : float, "auto" or None, default="auto"
        Values at or below it are censored: they say only that the latent value plus its noise is not above the limit
        (a tobit model, for values that pile up at a detection limit, at log(1 + 0), ...). Predictions are then those
        of max(limit, f + noise). gibbs, vmp and cep can (cep of first order, with cavity moments and a message for
        every entry). "auto", for gibbs and vmp, takes the least training value if it is a spike: at least a tenth of
        the values equal it, at least three times as many as any other value. None: no value is censored.

    Attributes
    ----------
    <attributes>
    lower_limit_ : float or None
        The limit at which values are censored; None where none are. A stream keeps that of its first batch.
    noise_precision_ : float
        Posterior mean of the noise precision.

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1.
    """

    def __init__(
        self,
        rank: int | str = "auto",
        *,
        method: str = "auto",
        prior_scale: float | str = "auto",
        prior_mean: float | str = "uniform",
        prior: Prior | str = "auto",
        interactions: str | dict[str, int] = "auto",
        noise_prior: tuple[float, float] | None = None,
        lower_limit: float | str | None = "auto",
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
        self.noise_prior = noise_prior
        self.lower_limit = lower_limit

    _own_attributes = (*BaseCP._own_attributes, "lower_limit_")

    @property
    def _limit(self) -> float | None:
        """The limit of the fit; before a fit the one given."""
        given = self.lower_limit
        return self.__dict__.get("lower_limit_", None if given is None or isinstance(given, str) else float(given))

    @property
    def _origin(self) -> float:
        return self._limit or 0.0

    def _likelihood_name(self) -> str:
        return "gaussian" if self._limit is None else "tobit"

    def _likelihood(self) -> Likelihood:
        return super()._likelihood() if self._limit is None else censored_at(self._limit)

    def _choose_likelihood(self, y: np.ndarray, shape: tuple[int, ...], streaming: bool) -> None:
        self.lower_limit_ = None
        if self.lower_limit is None:
            return
        limit = word_or_range("lower_limit", self.lower_limit, ("auto",), -np.inf)
        unable = self._unable_to_censor()
        if limit != "auto" and unable:
            fail_value(f"{unable} cannot use lower_limit={limit:g}; set lower_limit=None.")
        if limit != "auto":
            self.lower_limit_ = limit
        elif choose(self, GAUSSIAN, len(y), shape, streaming).method in CENSORED_BY_RULE:
            self.lower_limit_ = spike_at_minimum(y)

    def _unable_to_censor(self) -> str:
        """The parameter that rules out a lower limit, if one does."""
        if isinstance(self.method, str) and self.method in METHODS and METHODS[self.method].lacks(TOBIT):
            return f"method={self.method!r}"
        if self.method in ("cep", "auto"):
            if self.order == 2 or self.moments == "posterior":
                return "order=2" if self.order == 2 else "moments='posterior'"
            if (self.method_options or {}).get("messages") == "averaged":
                return "messages='averaged'"
        return ""

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


def spike_at_minimum(y: np.ndarray) -> float | None:
    """The least value if it is a spike (see `lower_limit`) and not the only one."""
    values, counts = np.unique(y, return_counts=True)
    if len(values) < 2 or counts[0] < max(SPIKE_SHARE * len(y), SPIKE_RATIO * counts[1:].max()):
        return None
    return float(values[0])
