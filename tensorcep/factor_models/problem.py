"""The problem of factor models: relations between entities, their values, units and limits; and the state of a fit."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_values, fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.persist.records import Sized
from tensorcep.factor_models import side_information
from tensorcep.factor_models.cells import DenseCells, ListedCells, Matrix
from tensorcep.factor_models.side_information import FoundLaw, KnownOf, Moments, RowLaw, packed_index, second_moments
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.parameters.base import Gammas, Pair

# Matrices as relations between entities: one relation is PCA or factor analysis, several are CCA, GFA or CMF.
#
# The latent value of a cell is u_i . v_j, u_i a row of the relation's row entity and v_j one of its column entity. A
# bias is a coordinate too: opposite to it stands one that is fixed at 1.
#
# Source: Klami (2014), section 4.4; Klami, Bouchard, Tripathi (2014) for the layout by entities.


class Sites(NamedTuple):
    """A relation's parameters and sites: that of a cell is exp(target f - weight f^2 / 2) times a constant."""

    weight: np.ndarray  # a cell array, as are the next and the last two
    target: np.ndarray | None = None  # None: the weight times the observation
    noise: Gammas | None = None  # precision: of Gaussian data, or of the explicit noise
    r: Gammas | None = None  # dispersion of negative-binomial counts
    psi: np.ndarray | None = None  # moments of the latent values of cells with explicit noise
    psi_var: np.ndarray | None = None


class Priors(NamedTuple):
    """Gamma priors of noise precisions (shape, rate) and dispersions (shape, rate), of all groups or of each."""

    noise: tuple[Any, Any] = (1e-3, 1e-3)
    r: tuple[Any, Any] = (1.0, 0.1)


class SiteInputs(NamedTuple):
    """What a draw of a relation's sites is given: the latent values f, and of the last sweep psi and the sites."""

    relation: Relation
    priors: Priors
    f: np.ndarray
    psi: np.ndarray
    old: Sites
    rng: np.random.Generator  # of the few numbers that compiled code does not draw
    seed: int  # with the sweep the key of the streams of cells
    sweep: int
    executor: Executor


class SiteForm(NamedTuple):
    """How a likelihood becomes Gaussian sites, and bounds."""

    expected: Callable[..., Sites]  # of (relation, priors, old, f, variance), the moments of latent values
    # of (relation, sites, f, variance): the bound of each cell's log likelihood, but for the factor of counts free of f
    cell_bounds: Callable[..., np.ndarray]
    drawn: Callable[[SiteInputs], tuple[Sites, np.ndarray]] | None = None  # sites and psi; None without a sampler
    # of (relation, priors, squares), where the groups' sums of expected squares of what is left of the data say all
    of_squares: Callable[..., Sites] | None = None


class Kind(NamedTuple):
    """What the values of a matrix are, and how the factors see them."""

    likelihood: Likelihood
    form: SiteForm
    check: Callable[[str, np.ndarray], np.ndarray]  # of (name, values) as users code them; ValueError on a bad one
    latent: Callable[[np.ndarray, float], np.ndarray] = lambda mean, r: mean  # where data have this mean, to start from
    sketch: Callable[[np.ndarray], np.ndarray] = lambda values: values  # near latent ones: singular vectors are a start
    scale: float = 1.0  # what one unit of those is in latent values
    theta: str = ""  # the parameter in `Sites` that is the likelihood's: "noise", "r" or none
    curvature: Callable[[np.ndarray], float] | None = None  # of x: bound of minus the second derivative of log p(x | f)


class Relation(NamedTuple):
    """One observed matrix; coordinates of its two entities, whose products it sums, are (c,) int64."""

    row: int  # the entities of its rows and columns
    col: int
    row_coords: np.ndarray
    col_coords: np.ndarray
    cells: DenseCells | ListedCells
    x: np.ndarray  # observations in the likelihood's coding, a cell array, 0 where there is none
    kind: Kind
    groups: str = "all"  # which cells share a noise precision or dispersion: "all", "row" or "column"
    known_noise: np.ndarray | None = None  # (groups,) where it is not inferred
    known_r: np.ndarray | None = None
    units: Units | None = None  # what the observations are measured in; None where x holds them as they were given
    col_bias: int = -1  # the column entity's coordinate that is its bias, -1 where there is none
    limit: np.ndarray | None = None  # (columns,) of real data, in their units: a value there is no higher than that
    # of counts with a dispersion: these (U,), and how often each occurs in a group (groups, U)
    table: Pair | None = None

    def in_units(self, cols: Moments) -> Moments:
        """Moments of the columns whose latent values are in the units of the data."""
        if self.units is None:
            return cols
        mean = cols.mean * self.units.scale[:, None]
        if self.col_bias >= 0:
            mean[:, self.col_bias] += self.units.centre
        return Moments(mean, cols.cov * self.units.scale[:, None] ** 2, cols.diagonal)

    def products(self, moments: tuple[Moments, ...], executor: Executor) -> np.ndarray:
        """Products of the means of rows and columns, a cell array."""
        u, v = moments[self.row].mean[:, self.row_coords], moments[self.col].mean[:, self.col_coords]
        return np.asarray(self.cells.products(u, v, executor))

    def log_units(self) -> np.ndarray:
        """Sums over the observed cells of each row of the logarithms of their units, (N,)."""
        if self.units is None:
            return np.zeros(self.cells.shape[0])
        logs = self.cells.only_observed(self.cells.spread(np.log(self.units.scale), "column"))
        return np.asarray(self.cells.group_sums(logs, "row"))

    def noise_in_units(self, tau: np.ndarray) -> np.ndarray:
        """Noise precisions in the units of the data, one for each column, or one for all."""
        return tau if self.units is None else tau / self.units.scale**2


class Entity(NamedTuple):
    """The rows of one entity and the prior of their coordinates, independent N(0, 1 / precision)."""

    n_rows: int
    precision: np.ndarray  # (C,), the first guess where it is learned
    learned: np.ndarray  # (C,) bool: whether it has a Gamma prior (automatic relevance determination)
    one: int = -1  # the coordinate that is fixed at 1, -1 where there is none

    @property
    def free(self) -> np.ndarray:
        """The coordinates that are inferred."""
        return np.flatnonzero(np.arange(len(self.precision)) != self.one)


class Told(NamedTuple):
    """What earlier rows said of an entity: natural parameters of its free coordinates, the prior not among them."""

    Lam: np.ndarray  # (n or 1, P)
    eta: np.ndarray  # (n, F)
    moments: Moments  # of the entity with these and the prior, where sweeps begin


class RelationProblem(NamedTuple):
    """What a method infers from."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    start: tuple[np.ndarray, ...]  # means (n_rows, C) of every entity's rows to start from
    frozen: tuple[Moments | None, ...]  # of the entities that are known; None for those inferred
    priors: Priors = Priors()
    precision_prior: tuple[float, float] = (1e-3, 1e-3)  # shape and rate of the Gamma prior of the learned precisions
    start_variance: float = 1.0  # largest variance of the rows' coordinates to start from
    seed: int = 0
    rank: int = 0  # the first coordinates of every entity are components, in which a sampler's draws are turned
    # Of "vb" alone, per entity: what earlier data said, and what is known of its rows beside cells; empty of nothing.
    told: tuple[Told | None, ...] = ()
    known: KnownOf = ()


class RelationDraws(NamedTuple):
    """Draws of every entity's rows (S, n, C), and of every relation's noise precision and dispersion (S, groups)."""

    rows: tuple[Annotated[np.ndarray, Sized("S _ _")], ...]
    noise: tuple[Annotated[np.ndarray, Sized("S _")] | None, ...]
    r: tuple[Annotated[np.ndarray, Sized("S _")] | None, ...]


class RelationPosterior(NamedTuple):
    """Moments and prior precisions of every entity, and the last sites of every relation."""

    moments: tuple[Moments, ...]
    precisions: tuple[Gammas, ...]
    sites: tuple[Sites, ...]
    draws: RelationDraws | None = None
    laws: tuple[FoundLaw | None, ...] = ()  # of each entity, where something was known of the rows of one


# Observations as likelihoods code them, and the numbers of cells and counts of a relation.


def coded(kind: Kind, cells: Any, values: np.ndarray) -> np.ndarray:
    """Checked values, 0 where nothing is observed, as the likelihood codes them; there 0 as well."""
    found = kind.likelihood.check_y(values.ravel()).reshape(values.shape)
    return found if np.shares_memory(found, values) else np.asarray(cells.only_observed(found))


def count_table(relation: Relation) -> Pair | None:
    """The table of a relation whose counts have a dispersion; None for others."""
    if relation.kind.theta != "r" or not relation.cells.n_observed:
        return None
    cells, x = relation.cells, relation.x
    counts, index = np.unique(x, return_inverse=True)
    groups = np.arange(len(cells.counts(relation.groups)), dtype=np.float64)
    group = np.broadcast_to(cells.spread(groups, relation.groups), x.shape).astype(np.int64)
    where = np.ones(x.shape) if cells.observed is None else cells.observed
    flat = (group * len(counts) + index.reshape(x.shape)).ravel()
    times = np.bincount(flat, weights=where.ravel(), minlength=len(groups) * len(counts))
    return counts, times.reshape(len(groups), len(counts))


# Columns on their own scales: a real matrix is fitted in units of its columns, and answers in those of the data.

FEW = 10  # observed cells below which a column's own deviation says little (its error is a quarter)
FLOOR = 0.01  # part of a column's variance that the prior of its noise counts as one more cell
ROUNDING = 1e-12  # part of the mean below which a deviation is one of rounding


class Units(NamedTuple):
    """Centre and scale (D,) of every column: the model sees (x - centre) / scale."""

    centre: Annotated[np.ndarray, Sized("D")]
    scale: Annotated[np.ndarray, Sized("D")]


def units_of(matrix: Matrix, centred: bool) -> Units:
    """Means of the columns where they are to be centred, otherwise 0, and the deviations from them."""
    # A column of fewer than `FEW` cells gets one more at the typical deviation, the median of the others' or, without
    # others, of all cells; a constant one such a deviation that the floor of its noise is such a cell.
    centre = matrix.column_means() if centred else np.zeros(matrix.cells.shape[1])
    away, counts = matrix.less_columns(centre), matrix.cells.counts("column")
    away *= away
    squares = matrix.cells.group_sums(away, "column")
    largest = matrix.cells.group_sums(np.abs(matrix.x, out=away), "all")[0]
    own = np.sqrt(squares / np.maximum(counts, 1.0))
    sound = (counts >= FEW) & (own > ROUNDING * np.abs(centre))
    whole = float(np.sqrt(squares.sum() / counts.sum())) or largest / counts.sum() or 1.0
    typical = float(np.median(own[sound])) if sound.any() else whole
    few = np.sqrt((squares + typical**2) / np.maximum(counts, 1.0))
    constant = (counts > 0) & (own <= ROUNDING * np.abs(centre))  # of a column without cells nothing is known
    return Units(centre, np.where(constant, typical / np.sqrt(FLOOR), np.where(sound, own, few)))


def limits_of(given: Any, matrices: list[tuple[int, str]]) -> list[np.ndarray | None]:
    """The limits (D,) of matrices, known by columns and likelihood; given is one for all, each, or each column."""
    one = given is None or isinstance(given, numbers.Real)
    if isinstance(given, numbers.Real) and not any(likelihood == "gaussian" for _, likelihood in matrices):
        fail_value(f"lower_limit is for 'gaussian' matrices; got {given:g} and none of these; leave it out.")
    each = [given if likelihood == "gaussian" else None for _, likelihood in matrices] if one else list(given)
    if len(each) != len(matrices):
        item = f"one item (a number, one for each column, or None) for each of {len(matrices)} matrices"
        fail_value(f"lower_limit must be a number, or {item}; got {len(each)} items.")
    for m, (limit, (n_columns, likelihood)) in enumerate(zip(each, matrices, strict=True)):
        if limit is not None and likelihood != "gaussian":
            fail_value(f"lower_limit is for 'gaussian' matrices; matrix {m} is {likelihood!r}; give None for it.")
        if limit is not None:
            values = np.full(n_columns, float(limit)) if isinstance(limit, numbers.Real) else limit
            each[m] = check_values(values, n_columns, name=f"lower_limit of {m}")
    return each


class Side(NamedTuple):
    """One relation seen from an entity, which is its `rows` or its columns."""

    relation: Relation
    rows: bool
    coords: np.ndarray  # the entity's in the relation
    other: Moments  # of the opposite entity, in the relation's coordinates
    sites: Sites
    latent: Any

    def sums(self, weight: np.ndarray, vectors: np.ndarray, executor: Executor, of: Any = None) -> np.ndarray:
        """Weighted sums of the opposite entity's vectors along the entity's rows, or of `of` times them."""
        cells = self.relation.cells
        return np.asarray((cells.row_sums if self.rows else cells.column_sums)(weight, vectors, executor, of))


def replaced(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """The items with another one at an index."""
    return (*items[:index], item, *items[index + 1 :])


class State(NamedTuple):
    """Moments and prior precisions of every entity; sites and latent moments (f, variance) of every relation."""

    moments: tuple[Moments, ...]  # of a sampler: draws, without covariance
    precisions: tuple[Gammas, ...]
    sites: tuple[Sites, ...]
    # A sampler has psi, latent values of explicit noise, for the variance. `Products` where no array holds the values.
    latent: tuple[Any, ...]
    laws: tuple[RowLaw | None, ...] = ()  # of each entity, where something is known of the rows of one

    def law(self, e: int) -> RowLaw | None:
        """The prior of the rows of entity e, where something is known of them; None otherwise."""
        return self.laws[e] if self.laws else None

    def with_entity(self, e: int, moments: Moments, precisions: Gammas, law: RowLaw | None = None) -> State:
        """The state with other rows of entity e, and what follows from them."""
        state = self._replace(laws=replaced(self.laws, e, law) if self.laws else ())
        state = state._replace(moments=replaced(self.moments, e, moments))
        return state._replace(precisions=replaced(self.precisions, e, precisions))

    def with_relation(self, m: int, latent: Any, sites: Sites) -> State:
        """The state with other latent values and sites of relation m."""
        return self._replace(latent=replaced(self.latent, m, latent), sites=replaced(self.sites, m, sites))

    def with_sites(self, problem: RelationProblem, m: int, executor: Executor) -> State:
        """The state with the latent values of relation m as rows are now, and the best sites given them."""
        relation, priors = problem.relations[m], problem.priors
        u = self.moments[relation.row].select(relation.row_coords)
        v = self.moments[relation.col].select(relation.col_coords)
        latent, form = latent_of(relation, u, v, executor, self.latent[m]), relation.kind.form
        if isinstance(latent, Products) and form.of_squares is not None:
            return self.with_relation(m, latent, form.of_squares(relation, priors, latent.squares))
        return self.with_relation(m, latent, form.expected(relation, priors, self.sites[m], *latent))

    def sides(self, problem: RelationProblem, e: int) -> Iterator[Side]:
        """The relations that an entity is in."""
        for relation, sites, latent in zip(problem.relations, self.sites, self.latent, strict=True):
            if relation.row == e:
                other = self.moments[relation.col].select(relation.col_coords)
                yield Side(relation, True, relation.row_coords, other, sites, latent)
            if relation.col == e:
                other = self.moments[relation.row].select(relation.row_coords)
                yield Side(relation, False, relation.col_coords, other, sites, latent)

    def natural_parameters(self, problem: RelationProblem, e: int, executor: Executor) -> Pair:
        """Lam (n or 1, P) and eta (n, F) of an entity's free coordinates: the prior plus the sum over its relations."""
        entity = problem.entities[e]
        C = len(entity.precision)
        k, Lam = np.arange(C), np.zeros((1, C * (C + 1) // 2))
        Lam[0, k * (k + 3) // 2] = self.precisions[e].mean
        eta = np.zeros((entity.n_rows, C))
        for side in self.sides(problem, e):
            other, sites = side.other, side.sites
            if isinstance(side.latent, Products) and not side.rows:
                precision = sites.weight.T * (side.latent.means + side.latent.covariances)
            else:
                precision = side.sums(sites.weight, second_moments(other), executor)
            if len(precision) > len(Lam):
                Lam = np.repeat(Lam, len(precision), axis=0)
            all_of_them = np.array_equal(side.coords, np.arange(C))
            Lam[:, slice(None) if all_of_them else packed_index(side.coords)] += precision
            target, of = (sites.weight, side.relation.x) if sites.target is None else (sites.target, None)
            eta[:, side.coords] += side.sums(target, other.mean, executor, of)
        if entity.one < 0:
            return Lam, eta
        free = entity.free  # given that the other coordinate is 1
        with_one = np.array([packed_index(np.array([entity.one, k]))[1] for k in free], dtype=np.int64)
        rest = np.ascontiguousarray(eta[:, free] - Lam[:, with_one])
        return np.ascontiguousarray(Lam[:, packed_index(free)]), rest

    def first_noise(self) -> float:
        """Noise precision of the first group of the first relation that has one; nan if none has."""
        noise = [sites.noise.mean[0] for sites in self.sites if sites.noise is not None]
        return float(noise[0]) if noise else np.nan


# Latent values of a relation's cells, as variational methods have them: arrays, or the rows whose products they are.
#
# Of Gaussian data in a dense matrix, sites and bounds need sums alone: over the observed cells of each column of the
# squares of what is left of the data, and of the traces that the variances are made of. Products of matrices give them
# a block of rows at a time, and no array of the size of the matrix is made. All terms of the traces are positive.


class Products(NamedTuple):
    """Latent values u_i . v_j of a dense matrix."""

    u: Moments
    v: Moments
    squares: np.ndarray  # (groups,): expected squares of what is left of the data, sums over the observed cells of each
    means: np.ndarray  # (D or 1, P): sums over the observed cells of each column of m_i m_i', the means of u_i
    covariances: np.ndarray  # (D or 1, P): the same of their covariances S_i; one row serves all

    def change(self, old: Products) -> float:
        """Root mean square change of the means, relative to the root mean square of the latent values."""
        # u v' - u0 v0' = (u - u0) v' + u0 (v - v0)', so that what is small is not a difference of what is large
        left = np.hstack([self.u.mean - old.u.mean, old.u.mean])
        right = np.hstack([self.v.mean, self.v.mean - old.v.mean])
        moved = float(np.vdot(left.T @ left, right.T @ right))
        (mean_u, cov_u), (mean_v, cov_v) = (
            (m.mean.T @ m.mean, np.asarray(m.cov.sum(axis=0) * (len(m.mean) / len(m.cov)))) for m in (self.u, self.v)
        )
        low = np.tril_indices(len(mean_u))
        scale = side_information.trace_weights(len(mean_u))
        size = float(((mean_u[low] + cov_u) * (mean_v[low] + cov_v) * scale).sum())  # the sum of E[f^2]
        return float(np.sqrt(max(moved, 0.0) / size)) if size > 0.0 else 0.0


Latent = tuple[np.ndarray, np.ndarray] | Products  # the former are mean and variance of every cell


def latent_of(relation: Relation, u: Moments, v: Moments, executor: Executor, before: Latent | None = None) -> Latent:
    """The latent values of a relation whose rows and columns have these moments; `before` were those before them."""
    summed = relation.kind.form.of_squares is not None and relation.groups != "row" and not u.diagonal
    if not (summed and isinstance(relation.cells, DenseCells)):
        return side_information.latent_moments(relation.cells, u, v, executor)
    if isinstance(before, Products) and before.u is u:
        means, covariances = before.means, before.covariances
    else:
        cells, one = relation.cells, np.ones((1, 1))
        means = cells.column_sums(one, side_information.products_of(u.mean), executor)
        if len(u.cov) == 1:
            covariances = cells.observed_sums(one, "column")[:, None] * u.cov
        else:
            covariances = cells.column_sums(one, u.cov, executor)
    squares, scale = np.zeros(relation.cells.shape[1]), side_information.trace_weights(u.mean.shape[1])
    for rows in relation.cells.blocks():
        rest = u.mean[rows] @ v.mean.T
        np.subtract(relation.x[rows], rest, out=rest)
        if relation.cells.observed is not None:
            rest *= relation.cells.observed[rows]
        squares += np.einsum("ij,ij->j", rest, rest)
    squares += (means * (v.cov * scale)).sum(axis=1) + (covariances * (second_moments(v) * scale)).sum(axis=1)
    return Products(u, v, squares if relation.groups == "column" else squares.sum(keepdims=True), means, covariances)
