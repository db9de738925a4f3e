"""Bayesian CP decomposition of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.queries import fact
from tensorcep.cp.fitted import predict
from tensorcep.cp.targets.counts import CountTarget
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Values
from tensorcep.likelihoods.binomial import deviance


@document("matches rank * scale^(2 K) to the mean square of log(y + 1/2)")
@dataclass(eq=False, repr=False)
class CPCountRegressor(RegressorMixin, BaseCP):  # type: ignore[misc]
    """Bayesian CP decomposition of a sparse tensor of counts, with a log-linear mean, exp(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their counts. Any order K >= 2. An absent entry is
    unobserved; zeros that were observed are entries too.

    Parameters
    ----------
    <parameters>
    likelihood : {"auto", "poisson", "negbinomial", "binomial"}, default="auto"
        Poisson counts, or negative-binomial ones: the mean r e^f comes with the variance r e^f (1 + e^f). "auto" is
        "poisson" where the counts vary about a quick fit of main effects no more than Poisson ones (a score test, 3
        standard errors; not where effects of its own explain a count), and for methods that serve one of them alone
        that one. "binomial" are successes of trials, ``fit(X, y, n_trials=n)``, each with the probability
        1 / (1 + e^-f).
    dispersion : float, "learned" or name of a mode, default="learned"
        r of negative-binomial counts. A number is kept. The name of a mode ("mode_1" for the second one of entries
        without names) gives every row of it a dispersion of its own, and asks for "negbinomial": counts of some shops
        may vary far more about their mean than those of others. Rows of few entries shrink to what the rows have in
        common, a Gamma law that is learned; a row without entries has that law. By every method but "wopt", in one
        process, from entries in memory, and in no stream.
    zero_inflation : bool, default=False
        Whether a share of the cells is 0 whatever its mean would be: structural zeros, such as articles that a shop
        does not sell. The share is learned; predictions are of a new count of either kind. For "poisson" and
        "negbinomial" by "vmp", and the latter also by "pg-vb" and "pg-gibbs".

    Counts over unequal times or areas have an exposure, ``fit(X, y, exposure=hours)``: the mean is exposure e^f, and
    predictions are of the exposure given with them, or of 1; of binomial counts of the `n_trials` given, or of 1: the
    share of successes.

    Attributes
    ----------
    <attributes>
    likelihood_ : str
        "poisson", "negbinomial" or "binomial".
    dispersion_, dispersion_std_ : float, ndarray (n_k,) or None
        Posterior mean of r, or the number that was given, and its standard deviation; of each row of the mode that
        `dispersion` names, in the order of `labels_`. None for other counts, and the latter where r is given.
    zero_share_, zero_share_std_ : float or None
        With `zero_inflation` the share of structural zeros, and its standard deviation.
    extent_column_ : str or None
        The column of exposures, or of numbers of trials, that tables to predict may have.

    Examples
    --------
    >>> from tensorcep import CPCountRegressor, simulate_cp
    >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> counts = (3 * entries.values.clip(0)).astype(int)
    >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(entries.coords, counts)
    >>> model.predict_interval(entries.coords[:2], coverage=0.9).shape
    (2, 2)
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sold = np.where(rng.random(120) < 0.4, 0, rng.poisson(3 + counts))
    >>> model = CPCountRegressor(1, likelihood="poisson", zero_inflation=True, random_state=0).fit(entries.coords, sold)
    >>> 0.3 < model.zero_share_ < 0.5
    True
    """

    _: KW_ONLY
    likelihood: str = "auto"
    dispersion: float | str = "learned"
    zero_inflation: bool = False

    extent_column_ = fact(
        lambda fit: fit.observation.facts["_extent_column"], "The column of exposures or trials of the fit's table."
    )

    def _target(self) -> CountTarget:
        return CountTarget(self.likelihood, self.dispersion, self.zero_inflation)

    def fit(
        self,
        X: Cells,
        y: Values = None,
        *,
        modes: Names = None,
        value: Name = UNSAID,
        warm_start: bool = False,
        fixed_modes: Name | Sequence[Name] | None = None,
        sample_weight: Values = None,
        exposure: Values = None,
        n_trials: Values = None,
        **others: Any,
    ) -> Any:
        """Fit the factors to observed counts; what is not named here is as in `CPRegressor.fit`.

        Parameters
        ----------
        X, y, modes, value, warm_start, fixed_modes, sample_weight
        exposure : array-like of shape (N,) or column name, optional
            Of every count a number above 0 to which its mean is proportional, such as the hours of counting. Of a table
            it may be a column, which is then no mode; tables to predict that have this column bring theirs. Counts of
            one cell are then fitted as their sum over all their exposure by likelihood="poisson" without structural
            zeros; other likelihoods, streams, and weights that are not whole depend on how they are parted.
        n_trials : array-like of shape (N,) of whole numbers, or column name, optional
            Of binomial counts, of which each is at most its number of trials; the same of a table. Default: 1.
        **others
            `scratch` and `memory`, as there; `scratch` without exposures, trials and structural zeros.

        Returns
        -------
        self

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPCountRegressor
        >>> calls = [(f"u{a}", f"d{b}", 1 + a * b, 1.0 + b) for a in range(5) for b in range(5)]
        >>> table = pd.DataFrame(calls, columns=["user", "day", "calls", "hours"])
        >>> model = CPCountRegressor(1, random_state=0).fit(table, value="calls", exposure="hours")
        >>> model.predict(table[["user", "day", "hours"]]).shape
        (25,)
        """
        others |= {"modes": modes, "value": value, "warm_start": warm_start, "fixed_modes": fixed_modes}
        return super().fit(X, y, sample_weight=sample_weight, exposure=exposure, n_trials=n_trials, **others)

    @property
    def zero_share_(self) -> float | None:
        """Posterior mean of the share of structural zeros; None where none were looked for."""
        theta = self._result.belief.theta
        has_zeros = self._result.likelihood.zeros is not None
        return float(theta.values[:, -1].mean()) if has_zeros and theta is not None else None

    @property
    def zero_share_std_(self) -> float | None:
        """Posterior standard deviation of the share of structural zeros; None where none were looked for."""
        theta = self._result.belief.theta
        if self._result.likelihood.zeros is None or theta is None:
            return None
        within = 0.0
        if theta.shares is not None:
            a, b = theta.shares
            within = float((a * b / ((a + b) ** 2 * (a + b + 1.0))).mean())
        return float(np.sqrt(within + theta.values[:, -1].var()))

    @property
    def dispersion_(self) -> float | np.ndarray | None:
        """Posterior mean of r, or the number that was given; None for Poisson and binomial counts."""
        theta, likelihood = self._result.belief.theta, self._result.likelihood
        if not likelihood.is_dispersed:
            return None
        if theta is None or likelihood.parameter is None:
            return float(likelihood.default_theta)
        return float(theta.values[:, 0].mean()) if theta.mode is None else np.asarray(theta.values.mean(axis=0))

    @property
    def dispersion_std_(self) -> float | np.ndarray | None:
        """Posterior standard deviation of r; None where it was given or has no law."""
        theta = self._result.belief.theta
        if theta is None or self._result.likelihood.parameter is None:
            return None
        if theta.gamma is None and len(theta.values) == 1:
            return None
        within = 0.0 if theta.gamma is None else (theta.gamma[0] / theta.gamma[1] ** 2).mean(axis=0)
        values = theta.values[:, :1] if self._result.likelihood.zeros is not None else theta.values
        sd = np.sqrt(within + values.var(axis=0))
        return float(sd[0]) if theta.mode is None else sd

    def predict(self, X: Cells, return_std: bool = False, *, exposure: Values = None, n_trials: Values = None) -> Any:
        """Predictive mean count of each entry and, if asked, the standard deviation of a new count.

        They are those of the exposure, or number of trials, that is given as in `fit`; without one, after a fit with
        some, of 1: the rate, or the share of successes.

        Examples
        --------
        >>> from tensorcep import CPCountRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, likelihood="poisson", random_state=0).tensor
        >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(tensor)
        >>> mean, sd = model.predict(tensor, return_std=True)
        >>> bool((sd > mean**0.5).all())
        True
        """
        return predict.predicted(self._fitted, X, return_std, exposure=exposure, n_trials=n_trials)

    def predict_interval(
        self, X: Cells, coverage: float = 0.9, *, exposure: Values = None, n_trials: Values = None
    ) -> np.ndarray:
        """Central interval of a new count of each entry, (n, 2); `exposure` and `n_trials` as in `predict`.

        Examples
        --------
        >>> from tensorcep import CPCountRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, likelihood="poisson", random_state=0).tensor
        >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(tensor)
        >>> model.predict_interval(tensor, coverage=0.8).shape
        (120, 2)
        """
        return predict.interval(self._fitted, X, coverage, exposure=exposure, n_trials=n_trials)

    def score(
        self,
        X: Cells,
        y: Values = None,
        sample_weight: Values = None,
        *,
        modes: Names = None,
        value: Name = UNSAID,
        exposure: Values = None,
        n_trials: Values = None,
    ) -> float:
        """Fraction of deviance explained (D^2), as in sklearn.linear_model.PoissonRegressor; of binomial ones theirs.

        Entries are as in `CPRegressor.score`. After a fit with exposures, or numbers of trials, they are needed here,
        too.

        Examples
        --------
        >>> from tensorcep import CPCountRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, likelihood="poisson", random_state=0).tensor
        >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(tensor)
        >>> 0 < model.score(tensor) < 1
        True
        """
        extent = {"exposure": exposure, "n_trials": n_trials}
        X, counts, weight, extents = predict.scored_entries(self._fitted, X, y, sample_weight, modes, value, **extent)
        likelihood = self._result.likelihood
        expected = predict.observed_moments(likelihood, *predict.belief_at(self._fitted, X), extent=extents)[0]
        if likelihood.extent == "exposure":
            return float(d2_tweedie_score(counts, expected, sample_weight=weight, power=1))
        n = np.ones(len(counts)) if extents is None else extents
        weights = np.ones(len(counts)) if weight is None else np.asarray(weight, dtype=np.float64)
        constant = n * float(weights @ counts) / float(weights @ n)
        return 1.0 - deviance(counts, expected, n, weights) / deviance(counts, constant, n, weights)
