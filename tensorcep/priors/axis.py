"""The axis of a mode that is a series: which rows are neighbours, and what they say of each other at every length.

The rows with entries of a column, in the order of their times, are a level and a season, and x, a stationary
Ornstein-Uhlenbeck process of variance 1 / lam whose correlation falls as exp(-distance / length). With rho of two
neighbours so far apart,

    precision of x = lam K,   K = v I + sum over neighbours a, b of w1 (e_a e_a' + e_b e_b') - w2 (e_a e_b' + e_b e_a'),

w1 = v rho^2 / (1 - rho^2) and w2 = v rho / (1 - rho^2); v = 1 on a line, and coth(circle / (2 length)) on a circle.

Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, sec. 4.2.1 and B.2; Rue and Held (2005).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.kernels.neighbours import expected_parts, moments_of, neighbour_lines, solve_banded
from tensorcep.priors.learned import MEAN_ROWS
from tensorcep.priors.series import Clock

# Lengths of the grid, in median steps the least, in ranges the largest; on a circle in its own lengths. Beyond the
# largest one a process is a random walk.
LENGTHS, LEAST_STEPS, MOST_RANGES, MOST_CIRCLES, WALK = 24, 0.3, 30.0, 3.0, 1000.0
# Precisions of a season beside that of the process, of the grid.
STRENGTHS = 10.0 ** np.arange(-2.0, 4.0)
# The prior shape of a precision.
SHAPE = 0.5
# As how many rows the prior of a level counts that is 0.
NO_LEVEL = 1e12
# Decimals to which steps are the same.
SAME_STEP = 9
LOG_2PI = float(np.log(2.0 * np.pi))


class Grid(NamedTuple):
    """Lengths and, for each of them, how neighbours so far apart depend on each other.

    Attributes
    ----------
    lengths : (L,) float64
        0 for rows that do not depend on each other.
    own : (L,) float64
        v.
    near, between : (L, J) float64
        w1 and w2 of the J distinct distances.
    """

    lengths: np.ndarray
    own: np.ndarray
    near: np.ndarray
    between: np.ndarray


class Axis(NamedTuple):
    """The rows with entries of a mode on its axis, made once.

    Attributes
    ----------
    clock : Clock
    place : (n,) int64
        These rows of the mode, in the order of their times.
    order : (n,) int64
        The same among the rows with entries alone.
    closed : bool
        Whether the last row is a neighbour of the first one.
    phase : (n,) int64
        Which of the P phases each row has.
    which : (E,) int64
        Which of the J distances each row and the next one are apart; on a circle the last one and the first one, too.
    grid : Grid
    log_det : (L,) float64
        log |K|.
    strengths : (S,) float64
    mean_rows, shape : float
        As how many rows the prior of the level counts, and the prior shape of lam.
    gram : (L, P) float64
        K summed over the rows of a phase and all rows.
    values, vectors : (L, P), (L, P, P) float64
        Eigenvalues and vectors of K in the phases, the level integrated out; without a season there are none.
    """

    clock: Clock
    place: np.ndarray
    order: np.ndarray
    closed: bool
    phase: np.ndarray
    which: np.ndarray
    grid: Grid
    log_det: np.ndarray
    strengths: np.ndarray
    mean_rows: float
    shape: float
    gram: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @property
    def n_phases(self) -> int:
        """P, one without a season."""
        return len(self.clock.phases)

    @property
    def lengths(self) -> np.ndarray:
        """The lengths of the grid, (L,)."""
        return self.grid.lengths

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows are neighbours, (E,) and (E,)."""
        return ends(len(self.place), self.closed)


def weights(lengths: np.ndarray, distances: np.ndarray, circle: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """v (L,), w1 and w2 (L, J)."""
    with np.errstate(divide="ignore", over="ignore"):
        apart = distances / lengths[:, None]
        own = 1.0 / np.tanh(0.5 * circle / lengths) if circle > 0.0 else np.ones(len(lengths))
        return own, own[:, None] / np.expm1(2.0 * apart), own[:, None] * 0.5 / np.sinh(np.minimum(apart, 700.0))


def lengths_of(clock: Clock, times: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The lengths of the grid of rows at these times whose neighbours are these steps apart."""
    span = float(times.max() - times.min())
    if clock.kind == "rw":
        return np.array([WALK * (clock.circle or span)])
    most = MOST_CIRCLES * clock.circle if clock.circle else MOST_RANGES * span
    found = np.geomspace(LEAST_STEPS * float(np.median(steps)), most, LENGTHS)
    return np.append(0.0, found) if clock.kind == "auto" else found


def axis(clock: Clock, seen: np.ndarray, strength: float = 1.0) -> Axis | None:
    """Prepare the rows with entries, (n_k,) bool; None where none has a neighbour.

    `strength` is how many times as much as by default the prior of the parameters counts.
    """
    rows = np.flatnonzero(seen)
    if len(rows) < 2:
        return None
    order, apart, closed = in_time(clock, rows)
    place = rows[order]
    times = clock.times[place]
    if not np.isfinite(apart).any():
        return None
    lengths = lengths_of(clock, times, apart[np.isfinite(apart)])
    if closed:
        apart = np.append(apart, clock.circle - times[-1] + times[0])
    distances, which = np.unique(np.round(apart, SAME_STEP), return_inverse=True)
    grid = Grid(lengths, *weights(lengths, distances, clock.circle if closed else 0.0))
    phase = np.maximum(clock.phase_of(times), 0)
    level = NO_LEVEL if len(clock.groups) else strength * MEAN_ROWS
    prior, nothing = (level, strength * SHAPE), 3 * (np.empty(0),)
    begun = (clock, place, order, closed, phase, which.ravel().astype(np.int64), grid)
    return _with_tables(Axis(*begun, nothing[0], np.ones(1), *prior, *nothing))


def in_time(clock: Clock, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """The order of rows (n,) by groups and times, how far each is from the one before it, and whether on a circle.

    Rows of two groups are infinitely far apart; the distance that closes a circle is left out.
    """
    group = clock.groups[rows] if len(clock.groups) else np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort((clock.times[rows], group))
    group = group[order]
    apart = np.where(group[1:] == group[:-1], np.diff(clock.times[rows[order]]), np.inf)
    return order, apart, clock.circle > 0.0 and len(rows) > 2


def ends(n: int, closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are neighbours, (E,) and (E,)."""
    left = np.arange(n if closed else n - 1)
    return left, (left + 1) % n


def _with_tables(begun: Axis) -> Axis:
    """The axis with what its lengths need: determinants, and K in the phases."""
    grid, n = begun.grid, len(begun.place)
    L, own = len(grid.lengths), np.empty((n, 1))
    log_det = np.log1p(grid.near) @ np.bincount(begun.which)  # of a line: det K is the product of 1 / (1 - rho^2)
    for i in range(L if begun.closed else 0):
        own[:] = grid.own[i]
        near, between = (part[i][begun.which][:, None] for part in (grid.near, grid.between))
        for side in begun.pairs:
            own[side] += near
        log_det[i] = solved(own, between, np.zeros_like(own), begun.closed)[1][0]
    gram = times_k(begun, *_counts(begun))  # (L, P, P)
    totals, whole = gram.sum(axis=2), gram.sum(axis=(1, 2)) + begun.mean_rows
    if not begun.clock.seasonal:
        return begun._replace(log_det=log_det, gram=totals, values=np.zeros((L, 0)), vectors=np.zeros((L, 0, 0)))
    values, vectors = np.linalg.eigh(gram - totals[:, :, None] * totals[:, None] / whole[:, None, None])
    tables = (totals, np.maximum(values, 0.0), vectors)
    return begun._replace(log_det=log_det, strengths=STRENGTHS, gram=tables[0], values=tables[1], vectors=tables[2])


def _counts(of: Axis) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sums of `neighbour_sums`, of rows that are 1 in the column of their phase and 0 in others."""
    P, J, (left, right) = of.n_phases, of.grid.near.shape[1], (of.phase[end] for end in of.pairs)
    own = np.diag(np.bincount(of.phase, minlength=P).astype(np.float64))
    near, between = np.zeros((2, J, P, P))
    for one, other in ((left, right), (right, left)):
        np.add.at(near, (of.which, one, one), 1.0)
        np.add.at(between, (of.which, one, other), 1.0)
    return own, near, between


def times_k(of: Axis, own: np.ndarray, near: np.ndarray, between: np.ndarray) -> np.ndarray:
    """Sums over phases of K times numbers, for each length, (L, P, R), of what `neighbour_sums` makes of these."""
    P, grid = of.n_phases, of.grid
    near, between = (part.reshape(grid.near.shape[1], -1) for part in (near, between))
    apart = (grid.near @ near - grid.between @ between).reshape(len(grid.own), P, -1)
    return np.asarray(grid.own[:, None, None] * own + apart)


class Links(NamedTuple):
    """The prior of the rows with entries of a mode, coupled: precision and natural mean, in D columns.

    Attributes
    ----------
    of : Axis
    own, field : (n, D) float64
        The diagonal of the precision, and precision times mean, in the order of the times.
    between : (E, D) float64
        Less the precision's element of two neighbours.
    """

    of: Axis
    own: np.ndarray
    field: np.ndarray
    between: np.ndarray


def links(of: Axis, scale: np.ndarray, level: np.ndarray, centre: np.ndarray) -> Links:
    """The prior that is the sum over lengths of scale (L, D) K, and of the field K times levels (L, 1 + P, D)."""
    P, grid, (L, D) = of.n_phases, of.grid, scale.shape
    each = level[:, :1] + (level[:, 1:] if level.shape[1] > 1 else np.zeros((L, P, D)))
    each = each + scale[:, None] * centre
    tables = [grid.own @ scale, grid.near.T @ scale, grid.between.T @ scale, np.einsum("l,lpd->pd", grid.own, each)]
    tables += [(part.T @ each.reshape(L, -1)).reshape(-1, P, D) for part in (grid.near, -grid.between)]
    n, E = len(of.place), len(of.which)
    own, field, between = np.empty((n, D)), np.empty((n, D)), np.empty((E, D))
    neighbour_lines(of.which, of.phase, tuple(np.ascontiguousarray(one) for one in tables), own, field, between)
    return Links(of, own, field, between)


def folded(n: int) -> np.ndarray:
    """The places of a circle's rows in an order in which neighbours are at most two apart."""
    order = np.empty(n, dtype=np.int64)
    order[0::2], order[1::2] = np.arange(n - n // 2), n - 1 - np.arange(n // 2)
    return order


def solved(own: np.ndarray, between: np.ndarray, field: np.ndarray, closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The solution (n, D) of each column's system, and the log determinants of their matrices, (D,).

    These have `own` (n, D) on the diagonal, and less `between` (E, D) beside it.
    """
    n, D = own.shape
    order = folded(n) if closed else np.arange(n)
    place, (left, right) = np.empty(n, dtype=np.int64), ends(n, closed)
    place[order] = np.arange(n)
    bands, found, log_det = np.zeros((3 if closed else 2, n, D)), field[order], np.zeros(D)
    bands[0] = own[order]
    low, high = np.minimum(place[left], place[right]), np.maximum(place[left], place[right])
    bands[high - low, low] = -between
    solve_banded(bands, found, np.ones(D), log_det)
    return found[place], log_det


class Chained(NamedTuple):
    """Links (or `bonds.Bonds`), the log determinant of each column's precision, (D,), and the prior means (n, D)."""

    links: Any
    log_det: np.ndarray
    mean: np.ndarray

    def expected(self, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> float:
        """The expected log density of rows (n, D), in order, with these variances and covariances of neighbours."""
        prior, moments = self.links, moments_of(rows, variance, cross)
        given = (*prior.of.pairs, prior.own, prior.between, prior.field, self.mean)
        square, linear = expected_parts(*given, *moments)
        return float(linear - 0.5 * (square - self.log_det.sum() + rows.size * LOG_2PI))


def chained(prior: Links) -> Chained:
    """The prior with its means and determinants, column by column."""
    mean, log_det = solved(prior.own, prior.between, prior.field, prior.of.closed)
    return Chained(prior, log_det, mean)
