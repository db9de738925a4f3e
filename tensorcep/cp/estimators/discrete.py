"""Bayesian CP decomposition of labels of two classes, of counts, and of ordered levels, such as stars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, d2_tweedie_score

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.estimators.docs import document
from tensorcep.cp.estimators.queries import fact
from tensorcep.cp.fitted import predict
from tensorcep.cp.targets.counts import CountTarget
from tensorcep.cp.targets.labels import LabelTarget
from tensorcep.cp.targets.levels import LevelTarget, check_none_missing
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Values
from tensorcep.likelihoods.binomial import deviance


@dataclass(eq=False, repr=False)
class BaseClasses(ClassifierMixin, BaseCP):  # type: ignore[misc]
    """Common part of the estimators whose values are labels, or ordered levels."""

    def score(
        self, X: Cells, y: Values = None, sample_weight: Values = None, *, modes: Names = None, value: Name = UNSAID
    ) -> float:
        """Share of the labels, or levels, that are predicted; entries are as in `CPRegressor.score`.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.score(entries.coords, entries.values > 1) > 0.7
        True
        """
        cells, labels, weight, _ = predict.scored_entries(self._fitted, X, y, sample_weight, modes, value)
        found = self.predict(cells)
        check_none_missing(labels)
        if found.dtype.kind == "f" and labels.dtype.kind in "biuf" and labels.shape == found.shape:
            labels, found = labels == found, np.ones(len(labels), dtype=bool)  # of fractions scikit-learn takes none
        return float(accuracy_score(labels, found, sample_weight=weight))


@document("is 1 (the paper's)")
@dataclass(eq=False, repr=False)
class CPClassifier(BaseClasses):
    """Bayesian CP decomposition of a sparse tensor of 0/1 labels, P(y = 1) = link(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their labels 0 or 1, or any two labels, of which
    the second in sorted order counts as 1; the first batch of a stream must have both. Any order K >= 2. An absent
    entry is unobserved; if only ones were recorded, add zeros with `SparseTensor.sample_zeros`, and say by `zero_rate`
    how many of them there are. Where ones are rare, the probabilities of "cep" are on average a little above their
    share (by a tenth at 2 % ones); those of "gibbs" are closer.

    By default, probabilities are those of a mixture with the share of ones, which counts as much as entries say that
    the fit had not learned: those left out by the sampler, and in streams every batch before it is learned.

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
    classes_ : ndarray (2,)
    link_ : {"probit", "logit"}
    zero_rate_ : float

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1 and supplement 8.1.2. Sampled zeros: King and Zeng
    (2001), Logistic regression in rare events data, sec. 4.1.

    Examples
    --------
    >>> from tensorcep import CPClassifier, simulate_cp
    >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
    >>> model.predict_proba(entries.coords).shape, model.classes_.tolist()
    ((120, 2), [0, 1])
    """

    _: KW_ONLY
    link: str = "auto"
    zero_rate: float | str = 1.0

    def _target(self) -> LabelTarget:
        return LabelTarget(self.link, self.zero_rate)

    link_ = fact(lambda fit: fit.observation.facts["link_"], "The link that was fitted.")
    classes_ = fact(lambda fit: np.array(list(fit.observation.facts["_classes"])), "The two labels.")

    @property
    def zero_rate_(self) -> float:
        """The share of the population's zeros that the entries of the fit hold."""
        return self._target().rate_of(self._result.observation)

    def predict_proba(self, X: Cells) -> np.ndarray:
        """Predictive probabilities of the two classes, (n, 2), the posterior of the factors integrated out.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> p = model.predict_proba(entries.coords)
        >>> p.shape, bool(abs(p.sum(axis=1) - 1).max() < 1e-9)
        ((120, 2), True)
        """
        p, _ = predict.observed(self._fitted, X)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Cells) -> np.ndarray:
        """The more probable label of each entry, (n,).

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> model.predict(entries.coords[:3]).dtype
        dtype('int64')
        """
        likely = self.predict_proba(X)[:, 1] > 0.5
        return np.asarray(self.classes_[likely.astype(np.int64)])

    def decision_function(self, X: Cells) -> np.ndarray:
        """Latent mean divided by the predictive scale: ranks entries as `predict_proba` does, (n,).

        With a `zero_rate` below 1, the log odds of the predictive probability.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> score = model.decision_function(entries.coords)
        >>> bool(((score > 0) == model.predict(entries.coords)).all())
        True
        """
        likelihood, (belief, rows) = self._fitted.likelihood_of_new, predict.belief_at(self._fitted, X)
        if self.zero_rate_ < 1.0:
            labels = (np.full(len(rows), side) for side in (1.0, -1.0))
            one, zero = (predict.observed_logpdf(likelihood, belief, rows, y) for y in labels)
            return np.asarray(one - zero)
        if not belief.points:
            belief = belief._replace(doubt=None)  # which probabilities do not have
        with self._fitted.threads() as executor:
            mean, variance = predict.latent(belief, rows, executor)
        slope = np.pi / 8.0 if self._result.likelihood.f_is_log_odds else 1.0
        return mean / np.sqrt(1.0 + slope * variance)

    def predict_interval(self, X: Cells, coverage: float = 0.9) -> np.ndarray:
        """Central posterior interval of the probability of the second class, (n, 2): how sure the model is of it.

        Examples
        --------
        >>> from tensorcep import CPClassifier, simulate_cp
        >>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
        >>> lower, upper = model.predict_interval(entries.coords, coverage=0.5).T
        >>> bool((0 <= lower).all() and (lower < upper).all() and (upper <= 1).all())
        True
        """
        f = predict.interval(self._fitted, X, coverage, of_latent=True)
        p, _ = self._fitted.likelihood_of_new.predict(f.ravel(), np.zeros(f.size), np.ones(f.size))
        return p.reshape(f.shape)


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
