"""Predictions of factor models, and the energies and order of components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import ndtri, xlog1py, xlogy
from scipy.stats import nbinom, norm, poisson

from tensorcep.core.checks import check_coords, fail_value
from tensorcep.core.diagnostics import bulk_size, r_hat
from tensorcep.core.executor import ThreadExecutor, one_blas_thread
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_matrix
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.problem import Kind, Relation, RelationDraws, RelationPosterior, Sites
from tensorcep.factor_models.side_information import Moments, as_packed, latent_moments, variances
from tensorcep.factor_models.sites import OBSERVED
from tensorcep.likelihoods.parameters.base import shape_and_rate
from tensorcep.likelihoods.tobit import TOBIT


def energies(posterior: RelationPosterior, relation: Relation, rank: int) -> np.ndarray:
    """Variance of the latent values that each component explains in a relation, summed over its columns."""
    moments = (posterior.moments[relation.row], relation.in_units(posterior.moments[relation.col]))
    rows, cols = (one.mean[:, :rank] ** 2 + variances(one)[:, :rank] for one in moments)
    return np.asarray(rows.mean(axis=0) * cols.sum(axis=0))


def shares(posterior: RelationPosterior, relation: Relation, rank: int, whole: float | None = None) -> np.ndarray:
    """The parts that components have of what all of them, or of a `whole`, explain, each column on its own scale."""
    energy = energies(posterior, relation._replace(units=None), rank)
    return np.asarray(energy / (max(energy.sum(), np.finfo(float).tiny) if whole is None else whole))


Pair = tuple[np.ndarray, np.ndarray]
# The mean noise variance is at most this many times 1 / E[precision]: where few cells tell of it it may be infinite.
MOST_DOUBT = 2.0
CELLS_AT_ONCE = 1 << 20  # cells that are predicted at a time
Theta = np.ndarray | None  # noise precisions, or dispersions, of the groups
# block(rows, cols, tau, r): mean and variance of all cells of some rows and columns
Block = Callable[[Moments, Moments, Theta, Theta], Pair]


def parameters(sites: Sites) -> tuple[Theta, Theta]:
    """Noise precision and dispersion of a relation."""
    return (None if sites.noise is None else sites.noise.mean, None if sites.r is None else sites.r.mean)


def for_new_rows(relation: Relation, sites: Sites) -> Relation:
    """The relation of new rows: noise and dispersion as fitted, their mean where every row has a dispersion."""
    noise, r = parameters(sites)
    if r is not None and relation.groups == "row":
        relation, r = relation._replace(groups="all", table=None), np.array([r.mean()])
    return relation._replace(known_noise=noise, known_r=r)


def predictive_parameters(sites: Sites) -> tuple[Theta, Theta]:
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


def predict_block(relation: Relation, rows: Moments, cols: Moments, tau: Theta, r: Theta) -> Pair:
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


def observed(kind: Kind, groups: str, f: np.ndarray, variance: np.ndarray, tau: Theta, r: Theta) -> Pair:
    """Predictive mean and variance of new observations whose latent values are N(f, variance), both (N, D)."""
    likelihood, cells = kind.likelihood, DenseCells((len(f), f.shape[1]))
    values = {"noise": tau, "r": r}.get(kind.theta)
    theta = np.full((1, 1), likelihood.default_theta) if values is None else cells.spread(values, groups)
    if tau is not None and kind.theta != "noise":
        # an explicit noise, which is not the likelihood's own
        variance = variance + cells.spread(1.0 / tau, "all")
    flat = (np.broadcast_to(item, f.shape).ravel() for item in (f, variance, theta))
    mean, spread = likelihood.predict(*flat)
    return mean.reshape(f.shape), spread.reshape(f.shape)


def predict_training(posterior: RelationPosterior, m: int, relation: Relation) -> Pair:
    """Predictive mean and variance of the cells of training matrix m; over a sampler's draws where there are some."""
    return over_draws(posterior, m, relation, partial(predict_block, relation))


def predict_cells(posterior: RelationPosterior, m: int, relation: Relation, cells: np.ndarray) -> Pair:
    """Predictive mean and variance (n,) of cells (n, 2) of training matrix m, some rows at a time."""
    rows, at = np.unique(cells[:, 0], return_inverse=True)
    mean, variance = np.empty(len(cells)), np.empty(len(cells))
    size = max(1, CELLS_AT_ONCE // len(posterior.moments[relation.col].mean))

    def block(which: np.ndarray, rows: Moments, cols: Moments, *parameters: Any) -> Pair:
        some = Moments(rows.mean[which], rows.cov if len(rows.cov) == 1 else rows.cov[which], rows.diagonal)
        by_row = relation.groups == "row"
        theta = [v[which] if by_row and v is not None and len(v) > 1 else v for v in parameters]
        return predict_block(relation, some, cols, *theta)

    for a in range(0, len(rows), size):
        own = np.flatnonzero((at >= a) & (at < a + size))
        some = over_draws(posterior, m, relation, partial(block, rows[a : a + size]))
        place = at[own] - a, cells[own, 1]
        mean[own], variance[own] = some[0][place], some[1][place]
    return mean, variance


def latent_of_draws(draws: RelationDraws, relation: Relation, cells: np.ndarray) -> np.ndarray:
    """Latent values (draws, n) of some cells (n, 2), in the units of the data."""
    found = np.empty((len(draws.rows[0]), len(cells)))
    for s in range(len(found)):
        cols = relation.in_units(_point(draws.rows[relation.col][s])).mean
        u, v = draws.rows[relation.row][s][cells[:, 0]], cols[cells[:, 1]]
        found[s] = np.einsum("nc,nc->n", u[:, relation.row_coords], v[:, relation.col_coords])
    return found


def over_draws(posterior: RelationPosterior, m: int, relation: Relation, block: Block) -> Pair:
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
    """Refuse new rows whose columns are not those of the fit, in their order; ones without names are taken."""
    # columns of a fit without names are 0, 1, ...: a frame that has these in another order is refused, too
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


LEAST = 1e-12  # probabilities of labels are kept so far from 0 and 1


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
        lower = self.mean - half if self.free is None else np.maximum(self.mean - half, self.free[2])
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
        return np.where(more > 1e-6 * mean, nbinom.logpmf(y, r, r / (r + mean)), poisson.logpmf(y, mean))
