"""The questions that every CP estimator answers: one line each, of functions of a fitted model."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import Seed, check_choice
from tensorcep.core.fitted import Part, Predictive
from tensorcep.core.reporting import Summary
from tensorcep.cp.estimators.store import write_model
from tensorcep.cp.fitted import components, predict, recommend
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.inputs.coordinates import names_of
from tensorcep.entries.tables import UNSAID, Cells, Name, Names, Rows, Values

T = TypeVar("T")


def fact(of: Callable[[FitResult], T], doc: str | None = "") -> T:
    """What the result of a fit tells, as an attribute of estimators: a property, for types that of its value."""
    attribute: Any = property(lambda model: of(model._result), doc=doc or of.__doc__)
    return attribute


class Queries(BaseEstimator):  # type: ignore[misc]
    """What a CP estimator says of its fit; `_spec` of `BaseCP` tells its parameters as they are now."""

    _fit: FitResult | None = None

    def __sklearn_is_fitted__(self) -> bool:
        return self._fit is not None

    @property
    def _result(self) -> FitResult:
        """What the fit left."""
        return self._fit or check_is_fitted(self)  # which then raises

    @property
    def _fitted(self) -> FittedModel:
        """That, with the parameters as they are now."""
        return FittedModel(self._result, self._spec())

    posterior_ = fact(
        lambda fit: fit.posterior, "Of the rows: a `Posterior`, `Draws`, a `Mixture`, or a `PointEstimate`."
    )
    labels_ = fact(lambda fit: fit.labels, "The labels of the rows of each mode, None of indices.")
    shape_ = fact(lambda fit: fit.shape, "How many rows each mode has.")
    n_features_in_ = fact(lambda fit: len(fit.shape), "The number of modes.")
    method_ = fact(lambda fit: fit.method, "The method that was used.")
    rank_ = fact(lambda fit: fit.rank, "Columns of the CP component.")
    likelihood_ = fact(lambda fit: fit.likelihood.name, "The likelihood of the entries.")
    n_chains_ = fact(lambda fit: fit.belief.n_chains, "Chains whose draws the posterior holds; 0 of other methods.")
    max_iter_ = fact(lambda fit: fit.max_iter, "The most sweeps that the fit could have.")
    prior_ = fact(lambda fit: fit.prior, "The kind of prior that was used.")
    interactions_ = fact(
        lambda fit: fit.interactions, "Columns of each part: main effects, pairs of modes, the CP component."
    )
    n_iter_ = fact(lambda fit: fit.n_iter, "Sweeps.")
    converged_ = fact(lambda fit: fit.converged, "Whether the last sweep changed less than `tol`.")
    trace_ = fact(lambda fit: fit.trace, "Of each sweep its change, scores and seconds.")
    n_samples_seen_ = fact(lambda fit: fit.n_samples_seen, "Entries that were learned.")
    n_batches_ = fact(lambda fit: fit.n_batches, "Batches that were learned.")
    factors_ = fact(lambda fit: fit.factors, "Posterior means of the factors, (n_k, R) per mode.")
    factor_covs_ = fact(lambda fit: fit.factor_covs, "Posterior covariances of the rows, (n_k, R, R) per mode.")
    congruence_ = fact(
        lambda fit: fit.aligned.congruence.copy(),
        "How alike the aligned draws' components are, (R,): the mean cosine with their reference; 1 without draws.",
    )
    weights_ = fact(
        lambda fit: np.asarray(components.to_tensorly(fit).weights),
        "Sizes of the components whose modes have norm 1, (R,), the largest first: the weights of `to_tensorly`.",
    )
    column_modes_ = fact(lambda fit: fit.column_modes, FitResult.column_modes.__doc__)
    relevance_ = fact(lambda fit: fit.relevance, FitResult.relevance.__doc__)
    n_components_ = fact(components.n_components)
    lower_bound_ = fact(components.lower_bound)

    @property
    def diagnostics_(self) -> Diagnostics | None:
        """How far the fit is to be believed; None of streams without doubts."""
        return None if self._fit is None else self._fit.diagnostics

    @property
    def forgotten_(self) -> list[dict[str, Any]]:
        """Records of what was forgotten."""
        return [] if self._fit is None else list(self._fit.forgotten)

    @property
    def feature_effects_(self) -> pd.DataFrame:
        """How the rows' factors depend on their features, the surest effects first.

        A line is the change of the prior mean of a column of `factors_`, main effects included, from one more standard
        deviation of a number, or from 0 to 1: mean and sd over draws of the linear map given draws of the factors.

        Returns
        -------
        DataFrame
            Columns mode, feature, component, mean, sd; sorted by abs(mean) / sd.
        """
        return self._result.once("effects", lambda: components.feature_effects(self._fitted))

    def predict_latent(self, X: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent value (the CP sum, plus a lower limit) of each entry.

        The variance is that of the product of the factors under the posterior; it holds no observation noise. A point
        estimate has variance 0.

        Parameters
        ----------
        X : array-like of shape (n, K), SparseTensor, or DataFrame of labels

        Returns
        -------
        mean, variance : ndarray of shape (n,)

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> mean, variance = model.predict_latent(tensor)
        >>> bool((variance < model.predict(tensor, return_std=True)[1] ** 2).all())
        True
        """
        return predict.predict_latent(self._fitted, X)

    @property
    def parts_(self) -> tuple[Part, ...]:
        """The tensor that was fitted: its modes, their labels, its shape, and the kind of its entries.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> part = CPRegressor(1, method="vmp", random_state=0).fit(tensor).parts_[0]
        >>> part.shape, part.kind
        ((8, 6, 4), 'values')
        """
        fit, names = self._result, names_of(self.labels_)
        layout, series = fit.layout, fit.series or (None,) * len(names)
        seen = tuple(rows - own.start for rows, own in zip(layout.seen, layout.rows, strict=True))
        times = tuple(getattr(clock, "times", None) for clock in series)
        kind = str(fit.likelihood.observes)
        return (Part("tensor", names, fit.labels, fit.shape, kind, seen=seen, times=times),)

    def predictive(self, X: Cells, part: Name = 0) -> Predictive:
        """The laws of new observations at entries, as models of matrices give them, too.

        Parameters
        ----------
        X : entries as in `predict`
        part : 0
            A tensor is one part.

        Returns
        -------
        object with `mean`, `sd`, `interval(coverage)`, `holds(y, coverage)` and `log_score(y)`

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> law = CPRegressor(1, method="vmp", random_state=0).fit(tensor).predictive(tensor)
        >>> bool(law.holds(tensor.values, 0.9).mean() > 0.8)
        True
        """
        check_choice("part", str(part), ("0", "tensor"))
        return predict.EntryPredictive(self._fitted, X)

    def latent_draws(self, X: Cells, part: Name = 0) -> np.ndarray:
        """The latent values of entries in all draws of a sampler, (chains, draws, n).

        Raises
        ------
        ValueError
            If the method draws no chains.

        Examples
        --------
        >>> from tensorcep import CPRegressor, Gibbs, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=Gibbs(n_chains=2, weights="equal"), max_iter=60, random_state=0).fit(tensor)
        >>> model.latent_draws(tensor.coords[:3]).shape[::2]
        (2, 3)
        """
        check_choice("part", str(part), ("0", "tensor"))
        return components.chain_draws(self._fitted, X)

    def log_score(
        self, X: Cells, y: Values = None, *, modes: Names = None, value: Name = UNSAID, **extent: Values
    ) -> np.ndarray:
        """Log predictive density or mass of the observations y, (n,); of counts exposure= or n_trials= as in `fit`.

        A SparseTensor brings its values, and `modes` and `value` name columns of a table, as in `fit`.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> CPRegressor(1, method="vmp", random_state=0).fit(tensor).log_score(tensor, tensor.values).shape
        (120,)
        """
        return predict.log_score(self._fitted, X, y, modes, value, extent)

    def sample_posterior(self, n_samples: int = 1, X: Cells | None = None, random_state: Seed = None) -> Any:
        """Draw from the posterior of the factors; of a sampler's fit, draws of its chains.

        Draws of factors are aligned where they come from chains or from several fits (to the best of them); the scale
        of a component is then shared evenly by its modes.

        Parameters
        ----------
        n_samples : int
        X : entries as in `predict`, optional
        random_state : int, RandomState, Generator or None

        Returns
        -------
        list of ndarray (n_samples, n_k, R), or ndarray (n_samples, n)
            The factors of every mode, or, with X, the latent values of its entries.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> CPRegressor(1, method="vmp", random_state=0).fit(tensor).sample_posterior(5, tensor, random_state=0).shape
        (5, 120)
        """
        return predict.sample_posterior(self._fitted, n_samples, X, random_state)

    def sample_y(self, X: Cells, n_samples: int = 1, random_state: Seed = None, **extent: Values) -> np.ndarray:
        """Draw new observations of the entries X, (n_samples, n); of counts exposure= or n_trials= as in `fit`.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> CPRegressor(1, method="vmp", random_state=0).fit(tensor).sample_y(tensor, n_samples=5, random_state=0).shape
        (5, 120)
        """
        return predict.sample_y(self._fitted, X, n_samples, random_state, **extent)

    def has_uncertainty(self) -> bool:
        """Whether the method gave a posterior, not a point estimate.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.has_uncertainty(), model.set_params(method="wopt").fit(tensor).has_uncertainty()
        (True, False)
        """
        return self._fitted.has_uncertainty

    def anomaly_score(
        self, X: Cells, y: Values = None, *, modes: Names = None, value: Name = UNSAID, **extent: Values
    ) -> pd.DataFrame:
        """How odd each observation is; in a stream, of a batch before it is learned.

        Parameters
        ----------
        X : entries as in `predict`
        y : array-like of shape (n,), optional
            What was observed; left out with a SparseTensor, and where `value` names its column.
        modes, value : as in `fit`
            With ``value=None`` lines are events, and the value of a cell is the number of its lines.
        **extent
            Of counts exposure= or n_trials=, as in `fit`.

        Returns
        -------
        DataFrame
            A row per entry, with the columns of its modes and

            value : what was observed; of labels 0 or 1
            mean, sd : of a new observation
            surprise : minus the log predictive density or mass, in nats; of use to rank
            lower_tail, upper_tail : the probability of an observation as low, and as high, or more so
            unseen : whether a row of the entry had no training entries, so that its prior was used

        Examples
        --------
        >>> from tensorcep import CPRegressor
        >>> table = [{"user": f"u{a}", "item": f"i{b}", "stars": a * b / 3 + b % 2} for a in range(6) for b in range(6)]
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> odd = [{"user": "u1", "item": "i1", "stars": 0.3}, {"user": "u2", "item": "i2", "stars": 9.0}]
        >>> int(model.anomaly_score(odd, value="stars")["surprise"].argmax())
        1
        """
        return predict.anomaly_score(self._fitted, X, y, modes, value, extent)

    def predict_block(
        self,
        given: Mapping[Name, Hashable] | None = None,
        modes: Sequence[Name] | Mapping[Name, Rows | None] | None = None,
        return_std: bool = False,
    ) -> Any:
        """Predictive means of every combination of rows of some modes, the others being given.

        Parameters
        ----------
        given : dict of mode to one label or index, optional
            The row of every mode that is not in the block.
        modes : list of modes, or dict of mode to rows, optional
            The modes of the block, the last one along the columns; a dict says which rows, None standing for all of
            them. Default: all modes that are not given, with all their rows.
        return_std : bool, default=False
            Also return the standard deviations of new observations.

        Returns
        -------
        DataFrame, or a pair of them
            A line for each combination of rows of all modes but the last, a column for each of its rows. Of labels the
            probabilities of the second class.

        Raises
        ------
        ValueError
            If a mode is in both or in none, a label is not known, or the model is of ordered levels.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> CPRegressor(1, method="vmp", random_state=0).fit(tensor).predict_block(given={2: 3}).shape
        (8, 6)
        """
        return recommend.predict_block(self._fitted, given, modes, return_std)

    def recommend(
        self,
        mode: Name,
        given: Mapping[Name, Rows] | None = None,
        n: int = 10,
        exclude: Cells | None = "seen",
        by: str = "mean",
        coverage: float = 0.9,
        random_state: Seed = None,
    ) -> pd.DataFrame:
        """The best rows of a mode, for every combination of rows of the other modes.

        Parameters
        ----------
        mode : name or position
            The mode whose rows are ranked.
        given : dict, optional
            Rows of other modes by the mode's name or position. One label (or index) is a setting that all results
            share, a list of them restricts the combinations. Rows that the model does not know are as in `predict`:
            they have the prior, or are refused, by the parameter `unknown`; of a `Series` they are forecast.
        n : int, default=10
            The most rows for each combination.
        exclude : "seen", None, table, coordinates or SparseTensor, default="seen"
            Cells not to recommend. "seen": those that were observed, which are the cells of the fit without the zeros
            that `SparseTensor.sample_zeros` or `with_zeros` drew; a mode that `given` fixes to one label does not
            count, so that an item that a user rated in March is not recommended for April either, unless all modes are
            given. A table may have the columns of some modes, the ranked one among them.
        by : {"mean", "lower", "upper", "thompson", "sd"}, default="mean"
            Rank by the mean of the latent value, by a careful or a hopeful end of its interval (the mean -+ as many
            standard deviations as a Gaussian interval has), by one draw from the posterior, or by its standard
            deviation: what is known least, such as the experiment to do next.
        coverage : float, default=0.9
            Of the interval.
        random_state : int, RandomState, Generator or None
            Of the draw.

        Returns
        -------
        DataFrame
            A row per combination and rank: columns of the modes, rank, and of the expected observation mean, sd, lower
            and upper: what is known of it, without the noise of a single one. (Of labels and counts the order of the
            latent means may differ a little from that of the expected observations.)

        Raises
        ------
        ValueError
            If a mode is not known, or a label where `unknown` is "error", the model does not know which cells it was
            fitted to, or `by` needs an uncertainty that the method does not give.

        Examples
        --------
        >>> from tensorcep import CPRegressor
        >>> table = [{"user": f"u{a}", "item": f"i{b}", "stars": a * b / 3 + b % 2} for a in range(6) for b in range(6)]
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.recommend("item", given={"user": "u5"}, n=2, exclude=None)["item"].tolist()
        ['i5', 'i4']
        """
        return recommend.recommend(self._fitted, mode, given, n, exclude, by, coverage, random_state)

    def similar(
        self, mode: Name, row: Hashable, n: int = 10, coverage: float = 0.9, random_state: Seed = 0
    ) -> pd.DataFrame:
        """The rows of a mode that are most like one of them.

        Two rows are alike as their effects are on all combinations of the other modes' rows: the cosine of what sets
        each of them apart from the average row. It does not depend on how components are ordered, scaled or rotated.

        Parameters
        ----------
        mode : name or position
        row : label or index
        n : int, default=10
        coverage : float, default=0.9
            Of the interval of the cosine.
        random_state : int, RandomState, Generator or None, default=0
            Of the draws of Gaussian rows that the interval is taken from.

        Returns
        -------
        DataFrame
            Columns of the mode, rank, cosine (the mean over draws), sd, lower and upper.

        Examples
        --------
        >>> from tensorcep import CPRegressor
        >>> table = [{"user": f"u{a}", "item": f"i{b}", "stars": a * b / 3 + b % 2} for a in range(6) for b in range(6)]
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.similar("item", "i5", n=1)["item"].tolist()
        ['i3']
        """
        return recommend.similar(self._fitted, mode, row, n, coverage, random_state)

    def explain(
        self, cell: Mapping[Name, Hashable] | Sequence[Hashable] | None = None, **modes: Hashable
    ) -> pd.DataFrame:
        """The latent value of one cell as the sum of its parts.

        Parameters
        ----------
        cell : dict or sequence of rows, optional
            The label (or index) of every mode.
        **modes
            The same by the modes' names: ``explain(user="u1", item="i2")``.

        Returns
        -------
        DataFrame
            One row per part: the level, main effects of modes, pairs of modes and components of all modes, as far as
            the model has them, and in the end their sum, which is the latent value (`predict_latent`). Columns part,
            mean and sd. Main effects and pairs are centred, so that the level holds what all rows share.

        Raises
        ------
        ValueError
            If a mode is missing, or a label is not known.

        Examples
        --------
        >>> from tensorcep import CPRegressor
        >>> table = [{"user": f"u{a}", "item": f"i{b}", "stars": a * b / 3 + b % 2} for a in range(6) for b in range(6)]
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> len(model.explain(user="u5", item="i5")) > 1
        True
        """
        return components.explain(self._fitted, cell, **modes)

    def components(self, mode: Name, coverage: float = 0.9) -> pd.DataFrame:
        """The weights of a mode's rows in its components, as a tidy table.

        Draws are aligned first. The means of a component's weights have norm 1 in every mode, its size is `weight`;
        components come in the order of the variance that they explain. Products keep their signs.

        Parameters
        ----------
        mode : name or position
        coverage : float, default=0.9
            Of the interval lower to upper, that of a Gaussian.

        Returns
        -------
        DataFrame
            A row per row of the mode and component: a column of the mode, component (its column in `factors_`), part,
            weight, mean, sd, lower and upper.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> CPRegressor(1, method="vmp", random_state=0).fit(tensor).components(1).shape[0] >= 6
        True
        """
        return components.components(self._fitted, mode, coverage)

    def variance_explained(
        self, X: Cells | None = None, y: Values = None, *, modes: Names = None, value: Name = UNSAID
    ) -> pd.DataFrame:
        """What each component explains, the largest first.

        Parameters
        ----------
        X, y, modes, value : entries with values as in `fit`, optional
            Where they are given, the share of the variance of y that is explained when components join one by one.

        Returns
        -------
        DataFrame
            A row per column of `factors_`: component, part (the modes that it belongs to), share in the mean square of
            the latent values (of a main effect in their variance), for real values share_of_all, with the noise, and
            with X r2 and cumulative: the gain in the share of the variance of y that is explained, and their sum.
            Components are not orthogonal, so that shares need not add up to what all of them explain.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> bool(model.variance_explained(tensor)["cumulative"].max() > 0.7)
        True
        """
        return components.variance_explained(self._fitted, X, y, modes, value)

    def summary(self, n_rows: int = 5, n_components: int = 6) -> Summary:
        """What was fitted, how far it is to be believed, and what its components look like.

        Parameters
        ----------
        n_rows : int, default=5
            Rows of the largest weights that are listed for each component.
        n_components : int, default=6
            Components that are listed, main effects included.

        Returns
        -------
        Summary
            Printed it is text; a notebook shows it as HTML, and so does ``to_html()``.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> str(CPRegressor(1, method="vmp", random_state=0).fit(tensor).summary()).splitlines()[0][:11]
        'CPRegressor'
        """
        return components.summary(self._fitted, n_rows, n_components)

    def to_tensorly(self) -> Any:
        """The posterior means as a TensorLy CPTensor: factors with columns of norm 1, the largest weight first.

        It has all columns: main effects and pairs are components whose other modes are constant. Its full tensor is
        that of the latent values at the posterior means of the factors: of real values, `level_` (and a limit, if there
        is one) plus this tensor is the mean of `predict_latent`, which without a limit or a power is `predict`. They
        differ by what the factors of a component share beyond their means: nothing in the posterior of "cep" or "vmp"
        (with ``n_ensemble`` it is that of the best fit), and in a sampler's, where all is well, less than a posterior
        standard deviation; a warning says where it is more, or where half of the draws have other components.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", interactions="cp", random_state=0)
        >>> weights, factors = model.fit(tensor).to_tensorly()
        >>> [factor.shape for factor in factors]
        [(8, 1), (6, 1), (4, 1)]
        """
        return components.to_tensorly(self._result)

    def chain_diagnostics(self, X: Cells) -> tuple[np.ndarray, np.ndarray]:
        """R-hat and effective sample size (bulk) of the latent value of each entry, for methods that draw chains.

        Parameters
        ----------
        X : entries as in `predict`

        Returns
        -------
        r_hat, effective_size : ndarray of shape (n,)
            R-hat is near 1 (below 1.01, as a rule) where the chains agree.

        Raises
        ------
        ValueError
            If the method draws no chains.

        Examples
        --------
        >>> from tensorcep import CPRegressor, Gibbs, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=Gibbs(n_chains=2, weights="equal"), max_iter=60, random_state=0).fit(tensor)
        >>> r_hat, effective_size = model.chain_diagnostics(tensor.coords[:3])
        >>> r_hat.shape
        (3,)
        """
        return components.chain_diagnostics(self._fitted, X)

    def factor_diagnostics(self, mode: Name) -> pd.DataFrame:
        """R-hat and effective sample sizes of the aligned factors of a mode, for methods that draw chains.

        Parameters
        ----------
        mode : name or position

        Returns
        -------
        DataFrame
            A row per row of the mode, with its label if there is one; columns (component, "r_hat", "bulk_size" or
            "tail_size"). R-hat is near 1 (below 1.01, as a rule) where the chains agree.

        Raises
        ------
        ValueError
            If the method draws no chains.

        Examples
        --------
        >>> from tensorcep import CPRegressor, Gibbs, simulate_cp
        >>> tensor = simulate_cp((6, 5), 1, 30, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=Gibbs(n_chains=2), interactions="cp", max_iter=60, random_state=0).fit(tensor)
        >>> model.factor_diagnostics(0).columns.tolist()
        [(0, 'r_hat'), (0, 'bulk_size'), (0, 'tail_size')]
        """
        return components.factor_diagnostics(self._fitted, mode)

    def to_arviz(
        self,
        X: Cells | None = None,
        y: Values = None,
        n_samples: int = 1000,
        random_state: Seed = None,
        **extent: Values,
    ) -> Any:
        """Draws of the posterior in the container of ArviZ (`pip install 'tensorcep[arviz]'`).

        The group "posterior" holds factor_0, factor_1, ... with one row per index (or label) of the mode, aligned as in
        `sample_posterior`, and the noise precision or dispersion where there is one. With X there is
        "posterior_predictive", and with its values "observed_data".

        Parameters
        ----------
        X : entries as in `predict`, optional
        y : array-like of shape (n,), optional
            Observed values of the entries X; a SparseTensor brings its own.
        n_samples : int, default=1000
            Draws from the posterior of a method that does not sample; they are independent, and the attribute
            "approximate" of the groups is 1. A sampler's fit gives its chains, all draws of them.
        random_state : int, RandomState, Generator or None
        **extent
            Of counts exposure= or n_trials=, as in `fit`.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        ValueError
            If the method gives a point estimate, or y comes without X.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> sorted(model.to_arviz(tensor, n_samples=20, random_state=0).groups())  # doctest: +SKIP
        """
        return components.to_arviz(self._fitted, X, y, n_samples, random_state, **extent)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one .npz file, atomically; `tensorcep.load` reads it back.

        The parameters `callbacks`, `prior`, `init` (when it is an array) and a `random_state` that is not an integer
        are not part of the file: they have done their work.

        Examples
        --------
        >>> import tempfile
        >>> from tensorcep import CPRegressor, load, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool((again.predict(tensor) == model.predict(tensor)).all())
        True
        """
        write_model(path, self)
