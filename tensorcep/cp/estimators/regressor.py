"""Bayesian CP decomposition of real values."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.belief import Draws, GammaNoise, Mixture
from tensorcep.core.checks import LARGEST, check_choice, check_range, check_size, check_unmasked, fail_value
from tensorcep.core.sums import mean_square, weighted_mean
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.scoring import scored_entries
from tensorcep.cp.model.memmap import Columns
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.model.subsets import telling
from tensorcep.cp.plan.spec import is_random, matching_scale
from tensorcep.cp.stream.wild import warn_of_deciding
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.targets.real import (
    CENSORED_BY_RULE,
    NAMES,
    check_limit,
    given_limit,
    given_power,
    likelihood_of,
    noise_dof,
    noise_sd,
    powers_to_try,
    spike_at_minimum,
    uneven_noise,
)
from tensorcep.entries.tables import UNSAID, column_apart
from tensorcep.likelihoods.censored import TOBIT, UPPER, censored_at
from tensorcep.likelihoods.gaussian import GAUSSIAN, gaussian_about
from tensorcep.likelihoods.powers import of_power
from tensorcep.likelihoods.record import Likelihood

# The noise's Gamma prior: the least rate, and one over the largest shape, with which precisions stay finite.
LEAST_RATE = 1e-150


@document("matches rank * scale^(2 K) to the mean square of y")
@dataclass(eq=False, repr=False)
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
    noise : "one", "entry", "auto", or name or position of a mode, default="one"
        How large the noise is where. "one": the same everywhere. A mode: each of its rows has a precision of its own,
        with a learned Gamma prior. "entry": each entry has, so that noise is Student's t, and outliers count for less.
        "auto": the one of these that predicts entries left out best, if it beats "one" by two standard errors; "one"
        with a Series, a Graph or fewer than 100 entries. All but "one" is for "gibbs" and "vmp", in `fit` alone.
    lower_limit : float, "auto" or None, default="auto"
        Values at or below it are censored (a tobit model, for values that pile up at a detection limit): they say only
        that the latent value plus its noise is not above it, and predictions are those of max(limit, f + noise). For
        "gibbs", "vmp" and CEP(order=1, moments="cavity"). "auto", for the first two, takes the least training value if
        a tenth of the values equal it, three times as many as any other. None: no value is censored.
    upper_limit : float or None, default=None
        Values at or above it are censored (a saturated sensor, a full score): they say only that the latent value plus
        its noise is not below it, and predictions are those of min(limit, f + noise). For the same methods. A model has
        a limit on one side; levels such as stars are for `CPOrdinalClassifier`.
    power : float from 0 to 1, "auto" or None, default=None
        The power of y that is Gaussian about the latent value (Box and Cox 1964), 0 for its logarithm: for positive
        values whose noise grows with their level. Predictions, intervals and log scores are those of y. "auto": 1, 1/2
        or 0, as predicts entries left out best by two standard errors, if the mean square of its errors is not twice
        that of 1. None: as "auto", but 1 at once unless all values are positive and their root or logarithm is nearer
        normal by a quarter of a nat each (log-normal values whose logarithms have a standard deviation of 0.58). But
        for 1, `fit` alone, one noise and no limit.
    fit_intercept : bool or "auto", default="auto"
        Whether the mean of the training values is subtracted before the fit and added to all predictions. "auto" does
        it but for the paper's prior of positive rows (prior="fixed" with interactions="cp"), a `Prior` or an `init`,
        which speak of y as it is, and values with a limit, from which they are counted. A stream that chooses
        the paper's prior itself subtracts the least value. A constant added to y then moves predictions by rounding;
        those of chains, which magnify it (tenfold in 25 to 150 sweeps), by up to their Monte Carlo error.

    Attributes
    ----------
    <attributes>
    power_ : float
        The power of y that was fitted.
    level_ : float
        What was subtracted from y, or from its power (y^p - 1) / p: a prediction is `level_` plus the latent value. A
        stream keeps that of its beginning. 0 with a limit.
    lower_limit_, upper_limit_ : float or None
        The limit at which values are censored; None where none are. A stream keeps that of its beginning.
    noise_precision_ : float
        Posterior mean of the noise precision; where noise differs that of the mean precision over rows or entries.
    noise_ : str or int
        What `noise` came to: "one", "entry", or the name of a mode (its position, if it has none).
    noise_sd_ : float or ndarray (n_k,)
        Standard deviation of the noise: 1 over the root of the posterior mean precision, of each row of the mode
        `noise_`; with noise="entry", and where it is not normal, that of a new observation.
    noise_dof_ : float or None
        Degrees of freedom of the noise of a row that is not known, or, with noise="entry", of any observation:
        posterior median. None with noise="one".

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1.

    Examples
    --------
    >>> from tensorcep import CPRegressor, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
    >>> mean, sd = model.predict(tensor, return_std=True)
    >>> mean.shape, bool((sd > 0).all()), round(model.score(tensor), 1)
    ((120,), True, 0.7)
    """

    _: KW_ONLY
    noise_prior: tuple[float, float] | None = None
    noise: Any = "one"
    lower_limit: float | str | None = "auto"
    upper_limit: float | None = None
    power: float | str | None = None
    fit_intercept: bool | str = "auto"

    _own_attributes: ClassVar[tuple[str, ...]] = (
        *BaseCP._own_attributes,
        "lower_limit_",
        "upper_limit_",
        "level_",
        "noise_",
        "power_",
    )
    power_: ClassVar[float] = 1.0  # as well
    upper_limit_: ClassVar[float | None] = None  # until a fit, and of models of version 0.1
    level_: ClassVar[float] = 0.0  # until a fit, and of models of version 0.1
    noise_: ClassVar[str | int] = "one"  # as well

    @property
    def _origin(self) -> float:
        return self.level_ + (getattr(self, "lower_limit_", None) or self.upper_limit_ or 0.0)

    def _likelihood(self) -> Likelihood:
        if self.upper_limit_ is not None:
            return censored_at(self.upper_limit_, UPPER)
        limit = getattr(self, "lower_limit_", None)
        return of_power(self.power_, self.level_) if limit is None else censored_at(limit)

    def _asked_likelihood(self) -> Likelihood:
        limit, _ = given_limit(self.lower_limit, self.upper_limit)
        return GAUSSIAN if limit in ("auto", None) else TOBIT

    def _decide_likelihood(
        self,
        y: np.ndarray,
        chosen: Chosen,
        coords: np.ndarray,
        extent: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> tuple[Likelihood, dict[str, Any]]:
        check_size("y", y)
        limit, side = given_limit(self.lower_limit, self.upper_limit)
        power = given_power(self.power, limit, self.noise, stored=isinstance(coords, Columns))
        limit = limit if power in (1.0, None) else None
        if limit == "auto":
            limit = spike_at_minimum(y, weight) if chosen.method in CENSORED_BY_RULE else None
        elif limit is not None:
            check_limit(limit, side, y, chosen)
        decided = {"lower_limit_": None, "upper_limit_": None, "level_": 0.0, "power_": 1.0}
        centred = self._has_intercept(chosen)
        open_to = power if centred or power is not None else 1.0
        powers = powers_to_try(open_to, y, weight) if limit is None else (1.0,)
        if powers == (1.0,) and not isinstance(coords, Columns):  # of logarithms and roots few values are far away
            warn_of_deciding(y)
        if limit is not None:
            return censored_at(limit, side), {**decided, f"{NAMES[side]}_": limit}
        if powers != (1.0,):
            likelihood, told = likelihood_of(powers[0], y, centred, weight)
            return likelihood, {**decided, **told, "power_": powers if len(powers) > 1 else powers[0]}
        if centred:
            level = weighted_mean(y, weight)
        else:
            level = (
                float(np.min(y[telling(weight)])) if self.fit_intercept == "auto" and self._has_least(chosen) else 0.0
            )
        return gaussian_about(level), {**decided, "level_": level}

    def _has_intercept(self, chosen: Chosen) -> bool:
        """Whether the mean is subtracted before the fit."""
        if isinstance(self.fit_intercept, (bool, np.bool_)):
            return bool(self.fit_intercept)
        check_choice("fit_intercept", self.fit_intercept, ("auto",))
        return not chosen.has_positive_rows and chosen.prior_name != "given" and is_random(self.init)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._noise_prior(np.ones(1))
        given_power(self.power, None, "one")
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            check_choice("fit_intercept", self.fit_intercept, ("auto",))

    def _has_least(self, chosen: Chosen) -> bool:
        """Whether the least value is subtracted before the fit."""
        return chosen.from_least and chosen.has_positive_rows and is_random(self.init)

    def _decide_noise(self, labels: Any, chosen: Chosen, streaming: bool) -> tuple[Uneven | None, dict[str, Any]]:
        given_power(self.power, None, "one", streaming=streaming)  # here it is known whether this is a stream
        return uneven_noise(self.noise, labels, chosen.method, streaming, self.prior)

    def _noise_prior(self, y: np.ndarray, weight: np.ndarray | None = None) -> GammaNoise:
        if self.noise_prior is None:
            return GammaNoise(1e-3, 1e-3 * (mean_square(y, weight) or 1.0))
        try:
            a, b = self.noise_prior
        except (TypeError, ValueError):
            fail_value(f"noise_prior must be None or a pair (a, b) of positive numbers; got {self.noise_prior!r}.")
        return GammaNoise(
            check_range("noise_prior[0]", a, 0.0, 1.0 / LEAST_RATE, include_low=False),
            check_range("noise_prior[1]", b, LEAST_RATE, LARGEST**2),
        )

    def _checked_targets(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        return check_size("y", likelihood.check_y(y), least=0.0)  # less the level they may be next to nothing

    def _intercept(self, y: np.ndarray, likelihood: Likelihood, weight: np.ndarray | None = None) -> float:
        return weighted_mean(y, weight)

    def _auto_scale(self, y: np.ndarray, order: int, rank: int, weight: np.ndarray | None = None) -> float:
        return matching_scale(mean_square(y, weight), order, rank)

    @property
    def noise_precision_(self) -> float:
        """Posterior mean of the noise precision (the estimate, for a method without a posterior)."""
        check_is_fitted(self, "posterior_")
        result: Any = self.posterior_
        if isinstance(result, Mixture):
            return float(np.mean([member.noise.precision for member in result.members if member.noise is not None]))
        if isinstance(result, Draws) and result.uneven is not None and result.theta_mode is not None:
            return float(np.mean(result.uneven[..., 0]))
        if hasattr(result, "noise"):
            return float(result.noise.precision)
        with np.errstate(over="ignore"):  # of constant values it has no bound
            return float(np.mean(result.theta))

    @property
    def noise_sd_(self) -> float | np.ndarray:
        """Standard deviation of the noise, of each row of a mode where these differ."""
        return noise_sd(self._fitted_belief().theta, self.noise_precision_)

    @property
    def noise_dof_(self) -> float | None:
        """Degrees of freedom of noise that differs, of an entry or of a row that is not known."""
        return noise_dof(self._fitted_belief().theta)

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

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> mean, sd = model.predict([[0, 1, 2], [7, 5, 3]], return_std=True)
        >>> mean.shape, sd.shape
        ((2,), (2,))
        """
        return self._predicted(X, return_std)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, modes: Any = None, value: Any = UNSAID
    ) -> float:
        """R^2 of the predictive means.

        A SparseTensor brings its values, and a table may hold them in one further column; `y` is then left out.
        `modes`, `value` and `sample_weight` may name columns, as in `fit`.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.score(tensor) == model.score(tensor.coords, tensor.values)
        True
        """
        if isinstance(sample_weight, str):
            X, sample_weight = column_apart(X, "sample_weight", sample_weight)
        entries = scored_entries(self, X, y, modes, value)
        return float(super().score(*entries, check_unmasked(sample_weight, "sample_weight")))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central interval of a new observation of each entry, (n, 2).

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> lower, upper = model.predict_interval(tensor, coverage=0.9).T
        >>> bool((lower < upper).all())
        True
        """
        return self._observation_interval(X, coverage)
