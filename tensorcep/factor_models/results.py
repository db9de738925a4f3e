"""Predictions of factor models, and the energies and order of components."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import ndtri, xlog1py, xlogy
from scipy.stats import nbinom, norm, poisson
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_coords, check_fraction, check_int, fail_value
from tensorcep.core.diagnostics import bulk_size, r_hat
from tensorcep.core.executor import ThreadExecutor, one_blas_thread
from tensorcep.core.fitted import Part
from tensorcep.core.reporting import Summary
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_matrix
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.layout import Layout, Link, relation_of
from tensorcep.factor_models.problem import Kind, Relation, RelationDraws, RelationPosterior, Sites
from tensorcep.factor_models.side_information import Moments, as_packed, latent_moments, variances
from tensorcep.factor_models.sites import OBSERVED
from tensorcep.likelihoods.parameters.base import shape_and_rate
from tensorcep.likelihoods.tobit import TOBIT

# What a fitted set of relations says of its components: their variance, and their order by it.


def energies(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """Variance of the latent values that each component explains in a relation, summed over its columns."""
    moments = (posterior.moments[relation.row], relation.in_units(posterior.moments[relation.col]))
    rows, cols = (one.mean[:, :rank] ** 2 + variances(one)[:, :rank] for one in moments)
    return np.asarray(rows.mean(axis=0) * cols.sum(axis=0))


def shares(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """The parts that components have of what all of them explain there, every column on its own scale."""
    energy = energies(posterior, relation._replace(units=None), rank)
    return np.asarray(energy / max(energy.sum(), np.finfo(float).tiny))


# What a fitted relation predicts of its cells: latent values, and observations by the relation's likelihood.

Pair = tuple[np.ndarray, np.ndarray]
# The mean noise variance is at most this many times 1 / E[precision]: where few cells tell of it it may be infinite.
MOST_DOUBT = 2.0
# Cells that are predicted at a time.
CELLS_AT_ONCE = 1 << 20
# block(rows, cols, tau, r): mean and variance of all cells of some rows and columns
Block = Callable[[Moments, Moments, "np.ndarray | None", "np.ndarray | None"], Pair]


def parameters(sites: Sites) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Noise precision and dispersion of a relation."""
    return (None if sites.noise is None else sites.noise.mean, None if sites.r is None else sites.r.mean)


def predictive_parameters(sites: Sites) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The same for predictions, whose noise has its mean variance: E[1 / tau] of a Gamma law, not 1 / E[tau]."""
    tau, r = parameters(sites)
    if sites.noise is None or tau is None:
        return tau, r
    shape, _ = shape_and_rate(sites.noise)
    return tau * np.maximum(1.0 - 1.0 / shape, 1.0 / MOST_DOUBT), r


def latent_block(relation: Relation, rows: Moments, cols: Moments) -> Pair:
    """Mean and variance of the latent values of all cells of some rows and columns, in the units of the data."""
    cols = relation.in_units(cols)
    if rows.diagonal != cols.diagonal:
        rows, cols = as_packed(rows), as_packed(cols)
    cells = DenseCells((len(rows.mean), len(cols.mean)))
    u, v = rows.select(relation.row_coords), cols.select(relation.col_coords)
    with one_blas_thread():
        return latent_moments(cells, u, v, ThreadExecutor(1))


def predict_block(
    relation: Relation, rows: Moments, cols: Moments, tau: np.ndarray | None, r: np.ndarray | None
) -> Pair:
    """Predictive mean and variance of all cells of some rows and columns, given noise precision and dispersion."""
    f, variance = latent_block(relation, rows, cols)
    if tau is None or relation.kind.theta != "noise":
        return observed(relation.kind, relation.groups, f, variance, tau, r)
    noise, limit = 1.0 / relation.noise_in_units(tau), relation.limit
    if limit is None:
        return f, variance + noise
    theta = np.broadcast_to(1.0 / noise, f.shape)  # of values that are raised to the limits of their columns
    mean, spread = TOBIT.predict((f - limit).ravel(), variance.ravel(), theta.ravel())
    return limit + mean.reshape(f.shape), spread.reshape(f.shape)


def observed(
    kind: Kind, groups: str, f: np.ndarray, variance: np.ndarray, tau: np.ndarray | None, r: np.ndarray | None
) -> Pair:
    """Predictive mean and variance of new observations whose latent values are N(f, variance), both (N, D).

    An explicit noise, which is not the likelihood's own, adds to the latent variance.
    """
    likelihood, cells = kind.likelihood, DenseCells((len(f), f.shape[1]))
    values = {"noise": tau, "r": r}.get(kind.theta)
    theta = np.full((1, 1), likelihood.default_theta) if values is None else cells.spread(values, groups)
    if tau is not None and kind.theta != "noise":
        variance = variance + cells.spread(1.0 / tau, "all")
    flat = (np.broadcast_to(item, f.shape).ravel() for item in (f, variance, theta))
    mean, spread = likelihood.predict(*flat)
    return mean.reshape(f.shape), spread.reshape(f.shape)


def predict_training(posterior: RelationPosterior, m: int, relation: Relation) -> Pair:
    """Predictive mean and variance of the cells of training matrix m; over a sampler's draws where there are some."""
    return _over_draws(posterior, m, relation, partial(predict_block, relation))


def predict_cells(posterior: RelationPosterior, m: int, relation: Relation, cells: np.ndarray) -> Pair:
    """Predictive mean and variance (n,) of cells (n, 2) of training matrix m, some rows at a time."""
    rows, at = np.unique(cells[:, 0], return_inverse=True)
    mean, variance = np.empty(len(cells)), np.empty(len(cells))
    size = max(1, CELLS_AT_ONCE // len(posterior.moments[relation.col].mean))
    for a in range(0, len(rows), size):
        own = np.flatnonzero((at >= a) & (at < a + size))
        block = partial(_block_of_rows, relation, rows[a : a + size])
        some = _over_draws(posterior, m, relation, block)
        place = at[own] - a, cells[own, 1]
        mean[own], variance[own] = some[0][place], some[1][place]
    return mean, variance


def _block_of_rows(relation: Relation, which: np.ndarray, rows: Moments, cols: Moments, *parameters: Any) -> Pair:
    some = Moments(rows.mean[which], rows.cov if len(rows.cov) == 1 else rows.cov[which], rows.diagonal)
    by_row = relation.groups == "row"
    theta = [values[which] if by_row and values is not None and len(values) > 1 else values for values in parameters]
    return predict_block(relation, some, cols, *theta)


def latent_training(posterior: RelationPosterior, m: int, relation: Relation) -> Pair:
    """Posterior mean and variance of the latent values of the cells of training matrix m."""
    return _over_draws(posterior, m, relation, lambda rows, cols, tau, r: latent_block(relation, rows, cols))


def latent_of_draws(draws: RelationDraws, relation: Relation, cells: np.ndarray) -> np.ndarray:
    """Latent values (draws, n) of some cells (n, 2), in the units of the data."""
    found = np.empty((len(draws.rows[0]), len(cells)))
    for s in range(len(found)):
        cols = relation.in_units(_point(draws.rows[relation.col][s])).mean
        u, v = draws.rows[relation.row][s][cells[:, 0]], cols[cells[:, 1]]
        found[s] = np.einsum("nc,nc->n", u[:, relation.row_coords], v[:, relation.col_coords])
    return found


def _over_draws(posterior: RelationPosterior, m: int, relation: Relation, block: Block) -> Pair:
    """A block at the posterior's moments; or the mean over the draws, and the variance within and between them."""
    draws, sites = posterior.draws, posterior.sites[m]
    if draws is None:
        moments = posterior.moments
        return block(moments[relation.row], moments[relation.col], *predictive_parameters(sites))
    n = len(draws.rows[0])
    mean = square = np.zeros((1, 1))
    for s in range(n):
        u, v = (_point(draws.rows[e][s]) for e in (relation.row, relation.col))
        tau, r = (None if values is None else values[s] for values in (draws.noise[m], draws.r[m]))
        value, variance = block(u, v, tau, r)
        mean, square = mean + value / n, square + (variance + value**2) / n
    return mean, square - mean**2


def _point(rows: np.ndarray) -> Moments:
    return Moments(rows, np.zeros((1, rows.shape[1])), True)


# What a fitted factor model tells: labels of its entities, tables and health.

# The names of rows and columns: of data frames and tensors, entity by entity, and cells that are given by them.

LabelPair = tuple[Labels | None, Labels | None]


def labels_of(X: Any) -> LabelPair:
    """The labels of the rows and of the columns of a matrix; None where they have none, or not each its own."""
    X = as_matrix(X)
    if isinstance(X, SparseTensor):
        return X.labels[0], X.labels[1]
    return (_labels(X.index), _labels(X.columns)) if isinstance(X, pd.DataFrame) else (None, None)


def _labels(index: pd.Index) -> Labels | None:
    index = index.to_flat_index() if index.nlevels > 1 else index  # labels of several levels are tuples
    if isinstance(index, pd.RangeIndex) or not index.is_unique or index.hasnans:
        return None
    return Labels(index)


def check_columns(known: Labels | None, X: Any, name: str) -> None:
    """Refuse a matrix of new rows whose columns are not those of the fit, in their order; one without names is taken.

    Columns of a fit without names are 0, 1, ...: a frame that has these in another order is refused, too.
    """
    X = as_matrix(X)
    theirs = labels_of(X)[1]
    if theirs is not None:
        same = known == theirs if known is not None else not _is_permuted(theirs.index)
    elif isinstance(X, pd.DataFrame) and isinstance(X.columns, pd.RangeIndex):
        same = not _is_permuted(X.columns)
    else:  # names that are missing or not each its own are none of the fit's
        same = known is None or not isinstance(X, pd.DataFrame)
    if not same:
        fail_value(f"the columns of {name} must have the labels, in the order, of those of the fit.")


def _is_permuted(index: pd.Index) -> bool:
    """Whether labels are the numbers 0, 1, ... in another order."""
    if isinstance(index, pd.RangeIndex):
        return index.step < 0 and len(index) > 1
    if getattr(index.dtype, "kind", "O") not in "iu":
        return False
    numbers = index.to_numpy()
    return bool((np.sort(numbers) == np.arange(len(numbers))).all() and (np.diff(numbers) < 0).any())


def check_same_rows(matrices: Mapping[str, Any]) -> None:
    """Refuse matrices of the same new rows, by what errors call them, whose rows have other labels."""
    first: tuple[str, Labels] | None = None
    for name, X in matrices.items():
        labels = labels_of(X)[0]
        if first is not None and labels is not None and labels != first[1]:
            fail_value(
                f"the rows of {name} must have the labels of those of {first[0]}, in their order; reindex one by the "
                "other."
            )
        first = first if first is not None or labels is None else (name, labels)


def by_entity(
    pairs: Sequence[LabelPair], sides: Sequence[tuple[int, int]], names: Sequence[str]
) -> list[Labels | None]:
    """The labels of every entity, of those of matrices whose rows and columns are the entities `sides`.

    Two matrices that name the rows of one entity differently are refused.
    """
    found: list[Labels | None] = [None] * len(names)
    for m, (pair, entities) in enumerate(zip(pairs, sides, strict=True)):
        for e, labels in zip(entities, pair, strict=True):
            known = found[e]
            if known is not None and labels is not None and known != labels:
                fail_value(
                    f"the labels of {names[e]!r} in matrix {m} must be those of an earlier matrix, in their order; "
                    "reindex one by the other."
                )
            found[e] = labels if known is None else known
    return found


def observed_cells(X: Any) -> SparseTensor:
    """The observed cells of a matrix: a frame or an array with NaN, a sparse matrix, or a tensor of two modes."""
    if isinstance(X, SparseTensor):
        check_coords(X.coords, order=2, name="X")
        return X
    X = as_matrix(X)
    if sparse.issparse(X):
        return SparseTensor.from_scipy(X)
    array, labels = np.asarray(X, dtype=np.float64), labels_of(X)
    if array.ndim != 2:
        fail_value(f"a matrix must have 2 dimensions; got {array.ndim}.")
    at = np.stack(np.nonzero(~np.isnan(array)), axis=1)
    return SparseTensor(at, array[tuple(at.T)], array.shape, labels)


def _columns_of_cells(X: pd.DataFrame, labels: LabelPair, entities: tuple[str | None, str | None]) -> list[int]:
    """Where in a table the rows and the columns of cells are."""
    given = list(X.columns)
    names = [
        [name for name in (None if known is None else known.name, entity) if name is not None]
        for known, entity in zip(labels, entities, strict=True)
    ]
    found = [next((given.index(name) for name in own if given.count(name) == 1), -1) for own in names]
    if min(found) >= 0 and found[0] != found[1]:
        return found
    if len(given) < 2:
        fail_value(f"X must hold a column of rows and one of columns; got {given}.")
    if all(names) and not all(isinstance(name, (int, np.integer)) for name in given):
        wanted = ", ".join(repr(own[-1]) for own in names)
        fail_value(
            f"X must have the columns {wanted}, which name the rows and the columns of the matrix; got "
            f"{', '.join(map(repr, given))}; rename or choose them."
        )
    return [0, 1]


# How far a fit of a factor model is to be believed, in lines for its summary.

# Cells of each matrix at which a sampler's latent values are compared; an R-hat above it is said to be large.
SHOWN_CELLS, ALIKE = 200, 1.05


def noise_lines(posterior: RelationPosterior, relations: Sequence[Relation], names: Sequence[str]) -> dict[str, str]:
    """The noise of the real matrices and the dispersion of the counts: medians over the columns."""
    noise, dispersion = [], []
    for sites, relation, name in zip(posterior.sites, relations, names, strict=True):
        if sites.noise is not None and relation.kind.theta == "noise":
            sd = np.atleast_1d(1.0 / np.sqrt(relation.noise_in_units(sites.noise.mean)))
            noise.append(f"{name} sd {np.median(sd):.3g}{_spread(sd)}")
        if sites.r is not None:
            dispersion.append(f"{name} r {np.median(sites.r.mean):.3g}{_spread(sites.r.mean)}")
    lines = {"noise": ", ".join(noise), "dispersion": ", ".join(dispersion)}
    return {key: line for key, line in lines.items() if line}


def _spread(values: np.ndarray) -> str:
    return f" ({values.min():.3g} to {values.max():.3g})" if len(values) > 1 else ""


def health_line(model: Any, relations: Sequence[Relation]) -> str:
    """Of a sampler whether the halves of its chain agree; of others the bound, and the last change if not converged."""
    draws = model.posterior_.draws
    if draws is None:
        changes = model.trace_.get("change", ())
        told = len(changes) and not model.converged_  # a file may hold no changes
        ending = f", the last sweep changed {changes[-1]:.2g} of the latent values" if told else ""
        return f"lower bound {model.lower_bound_:.6g}{ending}"
    rng, found = np.random.default_rng(0), []
    for relation in relations:
        shape = len(draws.rows[relation.row][0]), len(draws.rows[relation.col][0])
        cells = np.stack([rng.integers(0, n, SHOWN_CELLS) for n in shape], axis=1)
        found.append(latent_of_draws(draws, relation, cells))
    values = np.concatenate(found, axis=1)[None]
    largest, size = float(np.max(r_hat(values))), float(np.median(bulk_size(values)))
    advice = "" if largest <= ALIKE else ": not mixed yet, increase max_iter"
    return f"largest R-hat {largest:.3g} of {values.shape[2]} latent values, effective draws {size:.3g}{advice}"


# Predictive laws of cells.

# Probabilities of labels are kept so far from 0 and 1.
LEAST = 1e-12


class CellPredictive(NamedTuple):
    """The laws of new observations of cells (`tensorcep.core.fitted.Predictive`), by their first two moments, (n,)."""

    likelihood: str
    mean: np.ndarray
    sd: np.ndarray
    # with a lower limit mean and standard deviation of what would be observed without it, and the limits
    free: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    @property
    def has_interval(self) -> bool:
        """Whether there are intervals of observations: of real data."""
        return OBSERVED[self.likelihood] == "values"

    def interval(self, coverage: float) -> np.ndarray:
        """Central intervals (n, 2), those of a Gaussian, which end at a lower limit."""
        half = float(ndtri(0.5 + 0.5 * coverage)) * self.sd
        lower = self.mean - half
        if self.free is not None:
            lower = np.maximum(lower, self.free[2])
        return np.stack([lower, self.mean + half], axis=1)

    def holds(self, y: np.ndarray, coverage: float) -> np.ndarray:
        """Whether the central interval holds each observation, (n,) bool."""
        if self.free is None:
            away = np.abs(y - self.mean) / self.sd
        else:
            free, sd, limit = self.free
            away = np.where(y <= limit, np.maximum(free - limit, 0.0), np.abs(y - free)) / sd
        return np.asarray(away <= norm.ppf(0.5 + 0.5 * coverage))

    def log_score(self, y: np.ndarray) -> np.ndarray:
        """Log density or probability of observations, (n,); of counts, of the law with these moments."""
        if self.free is not None:
            free, sd, limit = self.free
            return np.where(y <= limit, norm.logcdf(limit, free, sd), norm.logpdf(y, free, sd))
        if self.likelihood == "gaussian":
            return np.asarray(norm.logpdf(y, self.mean, self.sd))
        if OBSERVED[self.likelihood] == "labels":
            p = np.clip(self.mean, LEAST, 1.0 - LEAST)
            return np.asarray(xlogy(y, p) + xlog1py(1.0 - y, -p))
        mean = np.maximum(self.mean, LEAST)
        more = np.maximum(self.sd**2 - mean, 1e-9 * mean)
        r = mean**2 / more
        wide = more > 1e-6 * mean
        return np.where(wide, nbinom.logpmf(y, r, r / (r + mean)), poisson.logpmf(y, mean))


# What a fitted factor model says of its components: tidy tables of loadings, and the variance that they explain.

FEATURES_OF = "features of "


class ReadingFactors:
    """Tables of a fitted factor model of one matrix or several."""

    method: Any
    n_iter_: int
    converged_: bool
    trace_: dict[str, np.ndarray]
    posterior_: RelationPosterior
    _links: list[Link]
    _where: list[Layout]
    _names: list[str]
    _entity_labels: list[Labels | None]

    @property
    def matrix_names_(self) -> list[str]:
        """What the matrices are called: views by their names, others by their two entities, or by their number."""
        check_is_fitted(self, "posterior_")
        if not self._names:
            return ["X"]
        said = [(self._names[link.row], self._names[link.col]) for link in self._links]
        return [col.removeprefix(FEATURES_OF) if col.startswith(FEATURES_OF) else f"{row} x {col}" for row, col in said]

    @property
    def n_chains_(self) -> int:
        """Chains whose draws the posterior holds; 0 of other methods."""
        check_is_fitted(self, "posterior_")
        return int(self.posterior_.draws is not None)

    @property
    def parts_(self) -> tuple[Part, ...]:
        """The matrices that were fitted: names of their rows and columns, their labels, shapes, and kinds of cells.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> part = BayesianPCA(1, random_state=0).fit(load_iris().data).parts_[0]
        >>> part.modes, part.shape, part.kind
        (['row', 'column'], (150, 4), 'values')
        """
        parts = []
        for name, link in zip(self.matrix_names_, self._links, strict=True):
            row, column = self._entity_names(link)
            modes = ["row" if row is None else row, "column" if column is None else column]
            labels, shape = (self._entity_labels[link.row], self._entity_labels[link.col]), link.matrix.cells.shape
            parts.append(Part(name, modes, labels, shape, OBSERVED[link.likelihood], link.limit))
        return tuple(parts)

    def variance_explained(self) -> pd.DataFrame:
        """What each component explains in each matrix: a row per matrix, a column per component.

        Of real data that are fitted on the scales of their columns (`standardize`) the mean share of a column's
        variance; of other data the share in what all components explain.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> model.variance_explained().index.tolist()
        ['sepal', 'petal']
        """
        check_is_fitted(self, "posterior_")
        found = []
        for m, link in enumerate(self._links):
            relation, K = self._relation(m), self._where[0].rank
            if link.units is not None:
                energy = energies(self.posterior_, relation._replace(units=None), K)
                found.append(energy / link.matrix.cells.shape[1])
            else:
                found.append(shares(self.posterior_, relation, K))
        columns = pd.RangeIndex(len(found[0]), name="component")
        return pd.DataFrame(np.stack(found), index=pd.Index(self.matrix_names_, name="matrix"), columns=columns)

    @property
    def weights_(self) -> np.ndarray:
        """Sizes of the components whose rows and columns have norm 1: (K,), or (matrices, K) of several matrices.

        In the units of the data, of posterior means; the order is that of the components, by the variance they explain.
        """
        check_is_fitted(self, "posterior_")
        K, moments, found = self._where[0].rank, self.posterior_.moments, []
        for m in range(len(self._links)):
            relation = self._relation(m)
            sides = moments[relation.row], relation.in_units(moments[relation.col])
            found.append(np.prod([np.linalg.norm(side.mean[:, :K], axis=0) for side in sides], axis=0))
        return np.stack(found) if self._names else np.asarray(found[0])

    def components(self, matrix: Any = 0, coverage: float = 0.9) -> pd.DataFrame:
        """The loadings of a matrix's columns, as a tidy table, in the units of the data.

        Parameters
        ----------
        matrix : name or position, default=0
        coverage : float, default=0.9
            Of the interval lower to upper.

        Returns
        -------
        DataFrame
            A row per column of the matrix and component: feature, component, mean, sd, lower, upper.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> model.components("petal").shape[0]
        2
        """
        m = self._position(matrix)
        cols = self._relation(m).in_units(self.posterior_.moments[self._links[m].col])
        return self._tidy(cols, "feature", self._features(m), coverage)

    def scores_frame(self, entity: Any = 0, coverage: float = 0.9) -> pd.DataFrame:
        """The components of an entity's rows (samples, users, ...), as a tidy table with their labels.

        Parameters
        ----------
        entity : name or position, default=0
            Of a model of one matrix or of views 0, the rows.
        coverage : float, default=0.9
            Of the interval lower to upper.

        Returns
        -------
        DataFrame
            A row per row of the entity and component: row, component, mean, sd, lower, upper.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.scores_frame().shape[0]
        150
        """
        check_is_fitted(self, "posterior_")
        names = self._names or ["rows", "columns"]
        e = names.index(check_choice("entity", entity, names)) if isinstance(entity, str) else entity
        e = check_int("entity", e, 0, len(names) - 1)
        labels = self._entity_labels[e]
        return self._tidy(self.posterior_.moments[e], "row", None if labels is None else labels.index, coverage)

    def _tidy(self, moments: Moments, name: str, known: Any, coverage: float) -> pd.DataFrame:
        """A line per row and component, rows by the names that are known."""
        z, K = float(ndtri(0.5 + 0.5 * check_fraction("coverage", coverage))), self._where[0].rank
        mean, sd = moments.mean[:, :K], np.sqrt(np.broadcast_to(variances(moments), moments.mean.shape)[:, :K])
        rows = np.arange(len(mean)) if known is None or len(known) != len(mean) else np.asarray(known)
        table = {name: np.tile(rows, K), "component": np.repeat(np.arange(K), len(mean)), "mean": mean.T.ravel()}
        half = z * sd.T.ravel()
        ends = {"lower": table["mean"] - half, "upper": table["mean"] + half}
        return pd.DataFrame({**table, "sd": sd.T.ravel(), **ends})

    def predict_cells(self, X: Any, matrix: Any = 0, return_std: bool = False) -> Any:
        """Predictive means of some cells of a matrix that was fitted, observed or not.

        Parameters
        ----------
        X : table, SparseTensor or coordinates (n, 2)
            A table has a column of row labels and one of column labels, found by the names that they had in the fit, or
            by those of the relation's entities; in this order where they had none.
        matrix : name or position, default=0
        return_std : bool, default=False
            Also return the standard deviations of new observations.

        Returns
        -------
        ndarray (n,), or a pair of them

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.predict_cells([[0, 1], [3, 2]]).shape
        (2,)
        """
        m = self._position(matrix)
        cells = self._cells_of(X, m)
        mean, variance = predict_cells(self.posterior_, m, self._relation(m), cells)
        return (mean, np.sqrt(variance)) if return_std else mean

    def predictive(self, X: Any, part: Any = 0) -> CellPredictive:
        """The laws of new observations of some cells of a matrix, as models of tensors give them, too.

        Parameters
        ----------
        X : table, SparseTensor or coordinates (n, 2)
            As in `predict_cells`.
        part : name or position, default=0
            The matrix.

        Returns
        -------
        object with `mean`, `sd`, `interval(coverage)`, `holds(y, coverage)` and `log_score(y)`

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> law = BayesianPCA(1, random_state=0).fit(load_iris().data).predictive([[0, 1], [3, 2]])
        >>> law.interval(0.9).shape
        (2, 2)
        """
        m = self._position(part)
        cells, relation, limit = self._cells_of(X, m), self._relation(m), self._links[m].limit
        mean, variance = predict_cells(self.posterior_, m, relation, cells)
        if limit is None:
            return CellPredictive(self._links[m].likelihood, mean, np.sqrt(variance))
        free, apart = predict_cells(self.posterior_, m, relation._replace(limit=None), cells)
        law = free, np.sqrt(apart), limit[cells[:, 1]]
        return CellPredictive(self._links[m].likelihood, mean, np.sqrt(variance), law)

    def latent_draws(self, X: Any, part: Any = 0) -> np.ndarray:
        """A sampler's latent values of some cells of a matrix, (1, draws, n).

        Raises
        ------
        ValueError
            If the method draws none.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, method="gibbs", max_iter=250, random_state=0).fit(load_iris().data)
        >>> model.latent_draws([[0, 1]]).shape[::2]
        (1, 1)
        """
        m, draws = self._position(part), self.posterior_.draws
        if draws is None:
            fail_value(f"latent_draws needs draws, but method {self.method!r} draws none; use method='gibbs'.")
        return latent_of_draws(draws, self._relation(m), self._cells_of(X, m))[None]

    def anomaly_score(self, X: Any, y: Any = None, part: Any = 0) -> pd.DataFrame:
        """How odd the observed cells of a matrix are: a row each, with the columns of both modes and

        value : what was observed
        mean, sd : of a new observation
        surprise : minus the log density or probability, in nats; of use to rank

        Parameters
        ----------
        X : matrix as in `fit`, or SparseTensor of some of its cells
        y : None
            The matrix brings its values.
        part : name or position, default=0

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> X = load_iris().data
        >>> BayesianPCA(1, random_state=0).fit(X).anomaly_score(X).columns.tolist()
        ['row', 'column', 'value', 'mean', 'sd', 'surprise']
        """
        known, tensor = self.parts_[self._position(part)], observed_cells(X)
        if y is not None:
            fail_value("y must be None: a matrix brings its values.")
        if tensor.shape != tuple(known.shape):
            fail_value(f"X must be the matrix of the fit, of shape {tuple(known.shape)}; got {tensor.shape}.")
        law = self.predictive(tensor.coords, part)
        places = zip(known.modes, known.labels, tensor.coords.T, strict=True)
        rows = {name: at if own is None else own.index.take(at) for name, own, at in places}
        return pd.DataFrame(
            {**rows, "value": tensor.values, "mean": law.mean, "sd": law.sd, "surprise": -law.log_score(tensor.values)}
        )

    def _cells_of(self, X: Any, m: int) -> np.ndarray:
        """Coordinates (n, 2) of cells of matrix m: a table of rows and columns, or a SparseTensor, or coordinates.

        Columns of a table are found by the names of the labels, or of the entities where the relation names them; they
        are taken in order where neither is known, or where the table has no names. Other names, and rows and columns
        that are not known, are refused.
        """
        link = self._links[m]
        labels, shape = (self._entity_labels[link.row], self._entity_labels[link.col]), link.matrix.cells.shape
        if isinstance(X, SparseTensor):
            if all(found is None for found in X.labels):
                return check_coords(X.coords, shape, name="X", order=2)
            nameless = any(found is None or found.name is None for found in X.labels)
            X = X.to_pandas().iloc[:, :2]
            X = X.set_axis([0, 1], axis=1) if nameless else X
        if not isinstance(X, pd.DataFrame):
            return check_coords(X, shape, name="X", order=2)
        parts = []
        for at, known in zip(_columns_of_cells(X, labels, self._entity_names(link)), labels, strict=True):
            parts.append(X.iloc[:, at].to_numpy() if known is None else known.rows(X.iloc[:, at]))
        return check_coords(np.stack(parts, axis=1), shape, name="X")

    def _entity_names(self, link: Link) -> tuple[str | None, str | None]:
        """What a user called the two entities of a matrix; None where they have no such names."""
        return None, None

    def _position(self, matrix: Any) -> int:
        """Which matrix a name or a position is."""
        names = self.matrix_names_
        m = names.index(check_choice("matrix", matrix, names)) if isinstance(matrix, str) else matrix
        return check_int("matrix", m, 0, len(names) - 1)

    def summary(self, n_rows: int = 5) -> Summary:
        """What was fitted, what its components explain, and the features of the largest loadings.

        Printed it is text; a notebook shows it as HTML, and so does ``to_html()``.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> "component" in str(model.summary())
        True
        """
        n_rows, explained = check_int("n_rows", n_rows), self.variance_explained()
        shapes = [link.matrix.cells.shape for link in self._links]
        said = [f"{name} {n} x {d}" for name, (n, d) in zip(self.matrix_names_, shapes, strict=True)]
        relations = [self._relation(m) for m in range(len(shapes))]
        limited = [f"{link.likelihood}{'' if link.limit is None else ' with a lower limit'}" for link in self._links]
        seconds = f", {float(np.sum(self.trace_['seconds'])):.2g} s" if "seconds" in self.trace_ else ""
        facts = {
            "model": f"{type(self).__name__}, {explained.shape[1]} components",
            "matrices": ", ".join(said),
            "likelihoods": ", ".join(limited),
            "sweeps": f"{self.n_iter_}, {'' if self.converged_ else 'not '}converged{seconds}",
            **noise_lines(self.posterior_, relations, self.matrix_names_),
            "health": health_line(self, relations),
        }
        weights = pd.DataFrame(np.atleast_2d(self.weights_), index=explained.index).T.reset_index(drop=True)
        tables = {
            "Variance explained": explained.T.reset_index(),
            "Weights of components of unit norm": weights.reset_index(names="component"),
        }
        for m, name in enumerate(self.matrix_names_):
            tables[f"Largest loadings of {name}"] = self._largest(m, n_rows)
        return Summary(f"{type(self).__name__} of {', '.join(said)}", facts, tables)

    def _largest(self, m: int, n_rows: int) -> pd.DataFrame:
        """A row per component: its features of the largest loadings, with their standard deviations."""
        lines = []
        for r, own in self.components(m).groupby("component", sort=True):
            top = own.iloc[np.argsort(-own["mean"].abs().to_numpy(), kind="stable")[:n_rows]]
            each = zip(top["feature"], top["mean"], top["sd"], strict=True)
            lines.append({"component": r, "features": ", ".join(f"{f} {a:+.2g} ± {s:.1g}" for f, a, s in each)})
        return pd.DataFrame(lines)

    def _relation(self, m: int) -> Relation:
        """How rows and columns of matrix m of a fit meet; without data."""
        check_is_fitted(self, "posterior_")
        return relation_of(self._links[m].without_data(), m, self._where)

    def _features(self, m: int) -> Any:
        """The names of a matrix's columns, where it had some."""
        labels = self._entity_labels[self._links[m].col]
        return vars(self).get("feature_names_in_") if labels is None else labels.index
