"""Bayesian CP decomposition of real values."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.queries import fact
from tensorcep.cp.fitted import components, predict
from tensorcep.cp.targets.real import RealTarget, noise_dof, noise_sd
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Values


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
        with a Series, a Graph or fewer than 50 entries. All but "one" is for "gibbs" and "vmp", in `fit` alone.
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
    noise: Name = "one"
    lower_limit: float | str | None = "auto"
    upper_limit: float | None = None
    power: float | str | None = None
    fit_intercept: bool | str = "auto"

    def _target(self) -> RealTarget:
        limits = self.lower_limit, self.upper_limit
        return RealTarget(self.noise_prior, self.noise, *limits, self.power, self.fit_intercept)

    lower_limit_ = fact(
        lambda fit: fit.observation.facts["lower_limit_"], "The limit below, if values are censored there."
    )
    upper_limit_ = fact(
        lambda fit: fit.observation.facts["upper_limit_"], "The limit above, if values are censored there."
    )
    level_ = fact(lambda fit: fit.observation.facts["level_"], "What was subtracted from the values.")
    noise_ = fact(lambda fit: fit.observation.facts["noise_"], "Where noise differs.")
    power_ = fact(lambda fit: fit.observation.facts["power_"], "The power that was fitted.")
    noise_precision_ = fact(
        lambda fit: components.noise_precision(fit) or 0.0,
        "Posterior mean of the noise precision (the estimate, for a method without a posterior).",
    )
    noise_dof_ = fact(
        lambda fit: noise_dof(fit.belief.theta),
        "Degrees of freedom of noise that differs, of an entry or of a row that is not known.",
    )

    @property
    def noise_sd_(self) -> float | np.ndarray:
        """Standard deviation of the noise, of each row of a mode where these differ."""
        return noise_sd(self._result.belief.theta, self.noise_precision_)

    def predict(self, X: Cells, return_std: bool = False) -> Any:
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
        return predict.predicted(self._fitted, X, return_std)

    def score(
        self, X: Cells, y: Values = None, sample_weight: Values = None, *, modes: Names = None, value: Name = UNSAID
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
        cells, values, weight, _ = predict.scored_entries(self._fitted, X, y, sample_weight, modes, value)
        return float(super().score(cells, values, weight))

    def predict_interval(self, X: Cells, coverage: float = 0.9) -> np.ndarray:
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
        return predict.interval(self._fitted, X, coverage)
