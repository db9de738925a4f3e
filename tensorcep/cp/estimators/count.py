"""Bayesian CP decomposition of counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logit
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_unmasked, warn_user
from tensorcep.core.scratch import beside, filled
from tensorcep.core.sums import mean_square, weighted_mean
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.scoring import scored_entries
from tensorcep.cp.fitted.predict import observed_moments
from tensorcep.cp.inputs.weights import TakesExtents, check_trials
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.memmap import Columns
from tensorcep.cp.model.subsets import sampled_columns, telling
from tensorcep.cp.plan.spec import matching_scale
from tensorcep.cp.settings.registry import checked_method
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.targets.counts import (
    CountParameters,
    log_dispersion,
    overdispersion_of,
    warn_of_even_counts,
    warn_of_wild_count,
    with_dispersion,
)
from tensorcep.entries.tables import UNSAID, column_apart
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.binomial import deviance
from tensorcep.likelihoods.record import Likelihood

# The likelihoods of counts without an upper limit.
RATES = ("poisson", "negbinomial")


@document("matches rank * scale^(2 K) to the mean square of log(y + 1/2)")
@dataclass(eq=False, repr=False)
class CPCountRegressor(CountParameters, TakesExtents, RegressorMixin, BaseCP):  # type: ignore[misc]
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

    _own_attributes: ClassVar[tuple[str, ...]] = (
        *BaseCP._own_attributes,
        "_likelihood_name",
        "_fixed_dispersion",
        "_extent_unit",
        "_extent_column",
        "_inflated",
    )
    _likelihood_name: ClassVar[str | None] = None  # until a fit, and of a file of version 0.1
    _fixed_dispersion: ClassVar[float | None] = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        modes: Any = None,
        value: Any = UNSAID,
        warm_start: bool = False,
        fixed_modes: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        n_trials: Any = None,
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
            `scratch`, `memory` and `warm_start_fraction`, as there; `scratch` without exposures, trials and structural
            zeros.

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
        how = {"modes": modes, "value": value, "warm_start": warm_start, "fixed_modes": fixed_modes}
        extents = {"exposure": exposure, "n_trials": n_trials}
        return super().fit(X, y, **how, sample_weight=sample_weight, **extents, **others)

    def _likelihood(self) -> Likelihood:
        if self._likelihood_name is not None:
            record = with_dispersion(self._likelihood_name, self._fixed_dispersion)
            return self._with_zeros(record, self._inflated)
        infers = getattr(self, "method_", "pg-vb").startswith("pg-")  # in version 0.1 others kept the parameter
        return with_dispersion(self._asked_likelihood().name, None if infers else self._given_dispersion())

    def _likelihoods(self) -> list[Likelihood]:
        names = RATES if self._given_name() == "auto" else (self._given_name(),)
        return [self._with_zeros(get_likelihood(name), self._asks_for_zeros()) for name in names]

    def _asked_likelihood(self) -> Likelihood:
        name, method = self._given_name(), checked_method(self.method)[0]
        self._given_dispersion()
        if name != "auto":
            return self._likelihoods()[0]
        fits = [one for one in self._likelihoods() if method == "auto" or not METHODS[method].lacks(one)]
        return (fits or self._likelihoods())[0]

    def _decide_likelihood(
        self,
        y: np.ndarray,
        chosen: Chosen,
        coords: np.ndarray,
        extent: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> tuple[Likelihood, dict[str, Any]]:
        """That of the counts, its dispersion starting where main effects leave it."""
        if isinstance(coords, Columns):  # all counts are checked where they are packed
            coords, y = sampled_columns(coords, y)
        y, inflated = get_likelihood("poisson").check_y(y), self._asks_for_zeros()
        told: dict[str, Any] = {"_fixed_dispersion": None, "_inflated": False}
        if self._given_name() == "binomial":
            check_trials(y, extent)
            return self._asked_likelihood(), {**told, "_likelihood_name": "binomial"}
        told_by = telling(weight)  # how counts vary, and whether one is wild, is for those to say that weigh
        coords, y, extent = coords[told_by], y[told_by], None if extent is None else extent[told_by]
        found, name, fixed = (
            overdispersion_of(coords, y, extent, inflated),
            self._given_name(),
            self._given_dispersion(),
        )
        if name == "auto":
            # what rows' effects alone explain costs CEP little: it knows how little these rows tell
            varies = found.clear if chosen.method == "cep" else found.possible
            name = "negbinomial" if varies else "poisson"
            if METHODS[chosen.method].lacks(get_likelihood(name)):
                name = self._asked_likelihood().name
        if name == "poisson" and fixed is not None:
            warn_user(
                f"the counts vary no more than Poisson ones, which have none: dispersion={fixed:g} is not used; "
                "say likelihood='negbinomial' to keep it.",
                UserWarning,
            )
        record = with_dispersion(name, fixed)
        if record.parameter is not None:
            record = record._replace(parameter=record.parameter._replace(start=found.r))
        warn_of_wild_count(y)
        warn_of_even_counts(y, found)
        told |= {"_likelihood_name": name, "_fixed_dispersion": fixed, "_inflated": inflated}
        return self._with_zeros(record, inflated, found.share), told

    @property
    def likelihood_(self) -> str:
        """The likelihood of the fit, "poisson", "negbinomial" or "binomial"."""
        check_is_fitted(self, "posterior_")
        return self._likelihood().name

    def _intercept(self, y: np.ndarray, likelihood: Likelihood, weight: np.ndarray | None = None) -> float:
        if likelihood.extent == "trials":  # y are shares
            return float(logit(weighted_mean(y, weight)))
        n = len(y) if weight is None else weight.sum()
        present = 1.0 if likelihood.zeros is None else 1.0 - likelihood.zeros.start
        return float(np.log(max(weighted_mean(y, weight), 0.5 / n) / present)) - log_dispersion(likelihood)

    def _latent_guess(self, y: np.ndarray, likelihood: Likelihood, weight: np.ndarray | None = None) -> np.ndarray:
        if likelihood.extent == "trials":
            return np.asarray(logit(y))
        shift = log_dispersion(likelihood)
        return filled(beside(y), lambda at: np.log(y[at] + 0.5) - shift)

    def _auto_scale(self, y: np.ndarray, order: int, rank: int, weight: np.ndarray | None = None) -> float:
        return matching_scale(mean_square(y, weight), order, rank)

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None, n_trials: Any = None) -> Any:
        """Predictive mean count of each entry and, if asked, the standard deviation of a new count.

        They are those of the exposure, or number of trials, that is given as in `fit`; without one, after a fit with
        some, of 1: the rate, or the share of successes.

        Examples
        --------
        >>> from tensorcep import CPCountRegressor, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> counts = (3 * entries.values.clip(0)).astype(int)
        >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(entries.coords, counts)
        >>> mean, sd = model.predict(entries.coords, return_std=True)
        >>> bool((sd > mean**0.5).all())
        True
        """
        return self._predicted(X, return_std, exposure=exposure, n_trials=n_trials)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, exposure: Any = None, n_trials: Any = None
    ) -> np.ndarray:
        """Central interval of a new count of each entry, (n, 2); `exposure` and `n_trials` as in `predict`.

        Examples
        --------
        >>> from tensorcep import CPCountRegressor, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> counts = (3 * entries.values.clip(0)).astype(int)
        >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(entries.coords, counts)
        >>> model.predict_interval(entries.coords[:2], coverage=0.8).dtype.kind
        'f'
        """
        return self._observation_interval(X, coverage, exposure=exposure, n_trials=n_trials)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        modes: Any = None,
        value: Any = UNSAID,
        exposure: Any = None,
        n_trials: Any = None,
    ) -> float:
        """Fraction of deviance explained (D^2), as in sklearn.linear_model.PoissonRegressor; of binomial ones theirs.

        A SparseTensor brings its values, and a table may hold them in one further column; `y` is then left out.
        `modes`, `value` and `sample_weight` may name columns, as in `fit`. After a fit with exposures, or numbers of
        trials, they are needed here, too.

        Examples
        --------
        >>> from tensorcep import CPCountRegressor, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> counts = (3 * entries.values.clip(0)).astype(int)
        >>> model = CPCountRegressor(1, likelihood="poisson", random_state=0).fit(entries.coords, counts)
        >>> 0 < model.score(entries.coords, counts) < 1
        True
        """
        given = {"exposure": exposure, "n_trials": n_trials}
        if isinstance(sample_weight, str):
            X, sample_weight = column_apart(X, "sample_weight", sample_weight)
        extents = self._extent_of(X, given, needed=True)
        sample_weight = check_unmasked(sample_weight, "sample_weight")
        X, y = scored_entries(self, self._without_extent(X, given), y, modes, value)
        expected = observed_moments(self._likelihood(), *self._at(X), extent=extents)[0]
        if self._likelihood().extent == "exposure":
            return float(d2_tweedie_score(y, expected, sample_weight=sample_weight, power=1))
        n = np.ones(len(y)) if extents is None else extents
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        constant = n * float(weights @ y) / float(weights @ n)
        return 1.0 - deviance(y, expected, n, weights) / deviance(y, constant, n, weights)
