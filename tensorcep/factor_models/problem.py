"""The problem of factor models: relations between entities, their values, units and limits."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_values, fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.persist.records import Sized
from tensorcep.factor_models.cells import DenseCells, ListedCells, Matrix
from tensorcep.factor_models.side_information import FoundLaw, KnownRows, Moments
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.parameters.base import Gammas

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


class CountTable(NamedTuple):
    """How often each count occurs in each group of cells: counts (U,) and times (groups, U)."""

    counts: np.ndarray
    times: np.ndarray


class Priors(NamedTuple):
    """Gamma priors of noise precisions (shape, rate) and dispersions (shape, rate), of all groups or of each."""

    noise: tuple[Any, Any] = (1e-3, 1e-3)
    r: tuple[Any, Any] = (1.0, 0.1)


class SiteInputs(NamedTuple):
    """What a draw of a relation's sites is given: the latent values f, and of the last sweep psi, and the dispersion r
    and noise precision tau of the groups.

    `rng` draws the few numbers that compiled code does not; the streams of cells are keyed by (seed, sweep).
    """

    relation: Relation
    priors: Priors
    f: np.ndarray
    psi: np.ndarray
    r: np.ndarray | None
    rng: np.random.Generator
    seed: int
    sweep: int
    executor: Executor
    tau: np.ndarray | None = None


class SiteForm(NamedTuple):
    """How a likelihood becomes Gaussian sites, and bounds.

    ``expected(relation, table, priors, old, f, variance)`` makes sites of moments of latent values, and
    ``cell_bounds(relation, sites, f, variance)`` the bound of each cell's log likelihood, without the factor of counts
    that is free of f. ``drawn(given) -> (sites, psi)`` is given latent values; None where there is no sampler.
    ``of_squares(relation, priors, squares)`` makes sites where sums over the groups of the expected squares of what is
    left of the data are all that sites and bounds need of the latent values (Gaussian data).
    """

    expected: Callable[..., Sites]
    cell_bounds: Callable[..., np.ndarray]
    drawn: Callable[[SiteInputs], tuple[Sites, np.ndarray]] | None = None
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

    def in_units(self, cols: Moments) -> Moments:
        """Moments of the columns whose latent values are in the units of the data."""
        if self.units is None:
            return cols
        mean = cols.mean * self.units.scale[:, None]
        if self.col_bias >= 0:
            mean[:, self.col_bias] += self.units.centre
        return Moments(mean, cols.cov * self.units.scale[:, None] ** 2, cols.diagonal)

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
    """What earlier rows said of an entity: natural parameters of its free coordinates, the prior not among them.

    Lam is (n or 1, P), eta (n, F); `moments` are those of the entity with them and the prior, where sweeps begin.
    """

    Lam: np.ndarray
    eta: np.ndarray
    moments: Moments


class RelationProblem(NamedTuple):
    """What a method infers from.

    `told` and `known`, which are for the method "vb", say per entity what earlier data said of it, and what is known of
    its rows beside their cells; they are empty where there is nothing.
    """

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    start: tuple[np.ndarray, ...]  # means (n_rows, C) of every entity's rows to start from
    frozen: tuple[Moments | None, ...]  # of the entities that are known; None for those inferred
    priors: Priors = Priors()
    precision_prior: tuple[float, float] = (1e-3, 1e-3)  # shape and rate of the Gamma prior of the learned precisions
    start_variance: float = 1.0  # largest variance of the rows' coordinates to start from
    seed: int = 0
    rank: int = 0  # the first coordinates of every entity are components, in which a sampler's draws are turned
    told: tuple[Told | None, ...] = ()
    known: tuple[KnownRows | None, ...] = ()


class RelationDraws(NamedTuple):
    """Draws of every entity's rows (S, n, C), and of every relation's noise precision and dispersion (S, groups)."""

    rows: tuple[Annotated[np.ndarray, Sized("S _ _")], ...]
    noise: tuple[Annotated[np.ndarray, Sized("S _")] | None, ...]
    r: tuple[Annotated[np.ndarray, Sized("S _")] | None, ...]


class RelationPosterior(NamedTuple):
    """Moments and prior precisions of every entity, and the last sites of every relation.

    `laws` has an item for each entity where something was known of the rows of one.
    """

    moments: tuple[Moments, ...]
    precisions: tuple[Gammas, ...]
    sites: tuple[Sites, ...]
    draws: RelationDraws | None = None
    laws: tuple[FoundLaw | None, ...] = ()


# Observations as likelihoods code them, and the numbers of cells and counts of a relation.


def coded(kind: Kind, cells: Any, values: np.ndarray) -> np.ndarray:
    """Checked values, 0 where nothing is observed, as the likelihood codes them; there 0 as well."""
    found = kind.likelihood.check_y(values.ravel()).reshape(values.shape)
    return found if np.shares_memory(found, values) else np.asarray(cells.only_observed(found))


def group_sizes(relation: Relation, groups: str) -> np.ndarray:
    """Observed cells of each group."""
    return np.asarray(relation.cells.observed_sums(np.ones((1,) * relation.x.ndim), groups))


def count_table(relation: Relation) -> CountTable | None:
    """The table of a relation whose counts have a dispersion; None for others."""
    if relation.kind.theta != "r":
        return None
    cells, x = relation.cells, relation.x
    counts, index = np.unique(x, return_inverse=True)
    groups = np.arange(len(group_sizes(relation, relation.groups)), dtype=np.float64)
    group = np.broadcast_to(cells.spread(groups, relation.groups), x.shape).astype(np.int64)
    where = np.ones(x.shape) if cells.observed is None else cells.observed
    flat = (group * len(counts) + index.reshape(x.shape)).ravel()
    times = np.bincount(flat, weights=where.ravel(), minlength=len(groups) * len(counts))
    return CountTable(counts, times.reshape(len(groups), len(counts)))


# Columns on their own scales: a real matrix is fitted in units of its columns, and answers in those of the data.

FEW = 10  # observed cells below which a column's own deviation says little (its error is a quarter)
FLOOR = 0.01  # part of a column's variance that the prior of its noise counts as one more cell
ROUNDING = 1e-12  # part of the mean below which a deviation is one of rounding


class Units(NamedTuple):
    """Centre and scale (D,) of every column: the model sees (x - centre) / scale."""

    centre: Annotated[np.ndarray, Sized("D")]
    scale: Annotated[np.ndarray, Sized("D")]


def units_of(matrix: Matrix, centred: bool) -> Units:
    """Means of the columns where they are to be centred, otherwise 0, and the deviations from them.

    A column of fewer than `FEW` cells gets one more at the typical deviation, the median of the others'; where there
    are no others, of all cells together. That of a constant column is such that the floor of its noise is such a cell.
    """
    centre = matrix.column_means() if centred else np.zeros(matrix.cells.shape[1])
    away, counts = matrix.less_columns(centre), matrix.column_counts()
    away *= away
    squares = matrix.cells.group_sums(away, "column")
    largest = matrix.cells.group_sums(np.abs(matrix.x, out=away), "all")[0]
    own = np.sqrt(squares / np.maximum(counts, 1.0))
    sound = (counts >= FEW) & (own > ROUNDING * np.abs(centre))
    whole = float(np.sqrt(squares.sum() / counts.sum())) or largest / counts.sum() or 1.0
    typical = float(np.median(own[sound])) if sound.any() else whole
    few = np.sqrt((squares + typical**2) / np.maximum(counts, 1.0))
    constant = (counts > 0) & (own <= ROUNDING * np.abs(centre))  # of a column without cells nothing is known
    scale = np.where(constant, typical / np.sqrt(FLOOR), np.where(sound, own, few))
    return Units(centre, scale)


def standardised(matrix: Matrix, units: Units | None) -> Matrix:
    """The matrix in the units of its columns."""
    if units is None:
        return matrix
    away = matrix.less_columns(units.centre)
    away /= matrix.cells.spread(units.scale, "column")
    return matrix._replace(x=away)


# Lower limits of real matrices: one for all, one for each matrix, or one for each of its columns.


def limits_of(given: Any, matrices: list[tuple[int, str]]) -> list[np.ndarray | None]:
    """The limits (D,) of every matrix, of which columns and likelihood are given; None where a matrix has none.

    They must be finite, as many as matrices or columns, and of real matrices.
    """
    if given is None:
        return [None] * len(matrices)
    one = isinstance(given, numbers.Real)
    if one and not any(likelihood == "gaussian" for _, likelihood in matrices):
        fail_value(f"lower_limit is for 'gaussian' matrices; got {given:g} and none of these; leave it out.")
    each = [given if likelihood == "gaussian" else None for _, likelihood in matrices] if one else list(given)
    if len(each) != len(matrices):
        fail_value(
            f"lower_limit must be a number, or one item (a number, one for each column, or None) for each of "
            f"{len(matrices)} matrices; got {len(each)} items."
        )
    for m, (limit, (n_columns, likelihood)) in enumerate(zip(each, matrices, strict=True)):
        if limit is not None and likelihood != "gaussian":
            fail_value(f"lower_limit is for 'gaussian' matrices; matrix {m} is {likelihood!r}; give None for it.")
        if limit is not None:
            values = np.full(n_columns, float(limit)) if isinstance(limit, numbers.Real) else limit
            each[m] = check_values(values, n_columns, name=f"lower_limit of {m}")
    return each
