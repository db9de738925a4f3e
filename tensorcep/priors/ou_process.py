"""Rows along an axis: an Ornstein-Uhlenbeck process and a season, its law, parameters and forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from tensorcep.core.packing import pack, unpack
from tensorcep.priors.base import ModePrior, Moments
from tensorcep.priors.graph import Net
from tensorcep.priors.normal_wishart import MEAN_ROWS
from tensorcep.priors.series import Clock
from tensorcep.priors.solvers import chain
from tensorcep.priors.solvers.chain import Links

# The axis of a mode that is a series: which rows are neighbours, and what they say of each other at every length.
#
# The rows with entries of a column, in the order of their times, are a level and a season, and x, a stationary
# Ornstein-Uhlenbeck process of variance 1 / lam whose correlation falls as exp(-distance / length). With rho of two
# neighbours so far apart,
#
#     precision of x = lam K,   K = v I + sum over pairs a, b of w1 (e_a e_a' + e_b e_b') - w2 (e_a e_b' + e_b e_a'),
#
# w1 = v rho^2 / (1 - rho^2) and w2 = v rho / (1 - rho^2); v = 1 on a line, and coth(circle / (2 length)) on a circle.
# Source: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, sec. 4.2.1 and B.2; Rue and Held
# (2005).

# Lengths of the grid, in median steps the least, in ranges the largest; on a circle in its own lengths. Beyond the
# largest one a process is a random walk.
LENGTHS, LEAST_STEPS, MOST_RANGES, MOST_CIRCLES, WALK = 24, 0.3, 30.0, 3.0, 1000.0
STRENGTHS = 10.0 ** np.arange(-2.0, 4.0)  # precisions of a season beside that of the process, of the grid
SHAPE = 0.5  # the prior shape of a precision
NO_LEVEL = 1e12  # as how many rows the prior of a level counts that is 0
SAME_STEP = 9  # decimals to which steps are the same
LOG_2PI = float(np.log(2.0 * np.pi))


class Axis(NamedTuple):
    """The rows with entries of a mode on its axis, made once."""

    clock: Clock
    place: np.ndarray  # (n,) int64: these rows of the mode, in the order of their times
    order: np.ndarray  # (n,) int64: the same among the rows with entries alone
    closed: bool  # whether the last row is a neighbour of the first one
    phase: np.ndarray  # (n,) int64: which of the P phases each row has
    which: np.ndarray  # (E,) int64: which of the J distances the two rows of each of `pairs` are apart
    lengths: np.ndarray  # (L,): of the grid; 0 for rows that do not depend on each other
    own: np.ndarray  # (L,): v
    near: np.ndarray  # (L, J): w1 of the J distances
    between: np.ndarray  # (L, J): w2 of these
    log_det: np.ndarray  # (L,): log |K|
    strengths: np.ndarray  # (S,)
    mean_rows: float  # as how many rows the prior of the level counts
    shape: float  # the prior shape of lam
    gram: np.ndarray  # (L, P): K summed over the rows of a phase and all rows
    values: np.ndarray  # (L, P): eigenvalues of K in the phases, the level integrated out; without a season none
    vectors: np.ndarray  # (L, P, P): their vectors

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows are neighbours, (E,) and (E,)."""
        return ends(len(self.place), self.closed)

    def joint(self, scale: np.ndarray, level: np.ndarray, centre: np.ndarray) -> Links:
        """The prior that is the sum over lengths of scale (L, D) K, and of the field K times levels (L, 1 + P, D)."""
        P, (L, D) = len(self.clock.phases), scale.shape
        each = level[:, :1] + (level[:, 1:] if level.shape[1] > 1 else np.zeros((L, P, D)))
        each = each + scale[:, None] * centre
        tables = [self.own @ scale, self.near.T @ scale, self.between.T @ scale, np.einsum("l,lpd->pd", self.own, each)]
        tables += [(part.T @ each.reshape(L, -1)).reshape(-1, P, D) for part in (self.near, -self.between)]
        n, E = len(self.place), len(self.which)
        lines = np.empty((n, D)), np.empty((n, D)), np.empty((E, D))
        chain.neighbour_lines(self.which, self.phase, tuple(np.ascontiguousarray(one) for one in tables), *lines)
        return Links(self, self.closed, *lines)

    def chained(self, prior: Links) -> Chained:
        """Such a prior with its means and determinants, column by column."""
        mean, log_det = solved(prior.own, prior.between, prior.field, self.closed)
        return Chained(prior, log_det, mean)

    def sums(self, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """x'Kx, (L, D), and Kx summed over each phase, (L, P, D), expected of rows with these moments."""
        J, P, D = self.near.shape[1], len(self.clock.phases), rows.shape[1]
        square, near, between = np.zeros((1, D)), np.zeros((J, D)), np.zeros((J, D))
        linear = np.zeros((P, D)), np.zeros((J, P, D)), np.zeros((J, P, D))
        moments = chain.kernel_moments(rows, variance, cross)
        chain.neighbour_sums(*moments, self.which, self.phase, square, near, between, *linear)
        squares: np.ndarray = self.own[:, None] * square[0] + self.near @ near - 2.0 * (self.between @ between)
        return squares, times_k(self, *linear)

    def unseen(self, modes: ModePrior, k: int, seen: Any, mean: np.ndarray, cov: np.ndarray, told: Any) -> Moments:
        """Means (u, R) and packed covariances of the rows of mode k that are not `seen`, given those that are."""
        known = self.clock.at(seen), mean[seen], cov[seen]
        return moments_at(self.clock, *known, laws_of_mode(modes, k), self.clock.at(~seen))


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
    """The rows with entries, `seen` (n_k,); None where none has a neighbour; the prior counts `strength` times."""
    rows = np.flatnonzero(seen)
    order, times, apart, closed = in_time(clock, rows)
    steps = apart[: len(rows) - 1]
    steps = steps[np.isfinite(steps)]
    if not len(steps):
        return None
    lengths = lengths_of(clock, times, steps)
    distances, which = np.unique(np.round(apart, SAME_STEP), return_inverse=True)
    phase, which = np.maximum(clock.phase_of(times), 0), which.ravel().astype(np.int64)
    grid = lengths, *weights(lengths, distances, clock.circle if closed else 0.0)
    prior = NO_LEVEL if len(clock.groups) else strength * MEAN_ROWS, strength * SHAPE
    rows_and_grid, nothing = (clock, rows[order], order, closed, phase, which, *grid), 3 * (np.empty(0),)
    begun = Axis(*rows_and_grid, nothing[0], np.ones(1), *prior, *nothing)
    L, own = len(lengths), np.empty((len(rows), 1))
    log_det = np.log1p(begun.near) @ np.bincount(which)  # of a line: det K is the product of 1 / (1 - rho^2)
    for i in range(L if closed else 0):
        own[:] = begun.own[i]
        near, between = (part[i][which][:, None] for part in (begun.near, begun.between))
        for side in begun.pairs:
            own[side] += near
        log_det[i] = solved(own, between, np.zeros_like(own), closed)[1][0]
    P, J, (left, right) = len(clock.phases), begun.near.shape[1], (phase[end] for end in begun.pairs)
    counts, (near, between) = np.diag(np.bincount(phase, minlength=P).astype(np.float64)), np.zeros((2, J, P, P))
    for one, other in ((left, right), (right, left)):  # sums of rows that are 1 in the column of their phase alone
        np.add.at(near, (which, one, one), 1.0)
        np.add.at(between, (which, one, other), 1.0)
    gram = times_k(begun, counts, near, between)  # (L, P, P)
    totals, whole = gram.sum(axis=2), gram.sum(axis=(1, 2)) + begun.mean_rows
    if not clock.seasonal:
        return begun._replace(log_det=log_det, gram=totals, values=np.zeros((L, 0)), vectors=np.zeros((L, 0, 0)))
    values, vectors = np.linalg.eigh(gram - totals[:, :, None] * totals[:, None] / whole[:, None, None])
    values = np.maximum(values, 0.0)
    return begun._replace(log_det=log_det, strengths=STRENGTHS, gram=totals, values=values, vectors=vectors)


def in_time(clock: Clock, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """The order of rows (n,) by groups and times, their times, how far each is from the next; whether on a circle."""
    group = clock.groups[rows] if len(clock.groups) else np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort((clock.times[rows], group))
    group, times, closed = group[order], clock.times[rows[order]], clock.circle > 0.0 and len(rows) > 2
    apart = np.where(group[1:] == group[:-1], np.diff(times), np.inf)
    return order, times, np.append(apart, clock.circle - times[-1] + times[0]) if closed else apart, closed


def ends(n: int, closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are neighbours, (E,) and (E,)."""
    left = np.arange(n if closed else n - 1)
    return left, (left + 1) % n


def times_k(of: Axis, own: np.ndarray, near: np.ndarray, between: np.ndarray) -> np.ndarray:
    """Sums over phases of K times numbers, for each length, (L, P, R), of what `neighbour_sums` makes of these."""
    near, between = (part.reshape(of.near.shape[1], -1) for part in (near, between))
    apart = (of.near @ near - of.between @ between).reshape(len(of.own), len(own), -1)
    return np.asarray(of.own[:, None, None] * own + apart)


def links_at(clock: Clock, rows: np.ndarray, law: Any) -> tuple[np.ndarray, Links]:
    """Some rows (n,) of a mode in the order of their times, and their prior at the parameters of a `coupled.Chain`."""
    order, times, apart, closed = in_time(clock, rows)
    n = len(rows)
    v, *others = weights(law.length, apart, clock.circle if closed else 0.0)
    near, between = (part.T * law.precision for part in others)
    own, (left, right) = np.repeat((v * law.precision)[None], n, axis=0), ends(n, closed)
    for side in (left, right):
        own[side] += near
    level = np.repeat(law.mean[None], n, axis=0)
    if len(law.season):
        level += law.season[clock.phase_of(times)]
    field = own * level
    field[left] -= between * level[right]
    field[right] -= between * level[left]
    return rows[order], Links(None, closed, own, field, between)


def solved(own: np.ndarray, between: np.ndarray, field: np.ndarray, closed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Solutions (n, D) for each column's `own` on the diagonal, less `between` beside it, and log determinants."""
    (n, D), order = own.shape, np.arange(len(own))
    if closed:  # an order in which neighbours are at most two apart
        order[0::2], order[1::2] = np.arange(n - n // 2), n - 1 - np.arange(n // 2)
    place, (left, right) = np.argsort(order), ends(n, closed)
    bands, found, log_det = np.zeros((3 if closed else 2, n, D)), field[order], np.zeros(D)
    bands[0] = own[order]
    low, high = np.minimum(place[left], place[right]), np.maximum(place[left], place[right])
    bands[high - low, low] = -between
    chain.solve_banded(bands, found, np.ones(D), log_det)
    return found[place], log_det


class Chained(NamedTuple):
    """Links (or `gmrf.Bonds`), the log determinant of each column's precision, (D,), and the prior means (n, D)."""

    links: Any
    log_det: np.ndarray
    mean: np.ndarray

    def expected(self, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> float:
        """The expected log density of rows (n, D), in order, with these variances and covariances of neighbours."""
        prior, moments = self.links, chain.kernel_moments(rows, variance, cross)
        given = (*prior.of.pairs, prior.own, prior.between, prior.field, self.mean)
        square, linear = chain.expected_parts(*given, *moments)
        return float(linear - 0.5 * (square - self.log_det.sum() + rows.size * LOG_2PI))


# What the rows of a series say of its parameters: level, season, scale and length of every column.
#
# With K as above the prior is mu ~ N(centre, 1 / (m lam)), s_p ~ N(0, 1 / (strength lam)), lam ~ Gamma, and
# length and strength one of a grid. Given both all of this is conjugate, so that their posterior is a table: samplers
# draw from it, and mean-field methods have it as a factor, exactly.


class SeriesTable(NamedTuple):
    """The posterior of a mode's parameters given length (L) and strength (S), in D columns."""

    log_z: np.ndarray  # (L, S, D): log of the prior of both times what the rows say, all else integrated out
    a: float
    b: np.ndarray  # (L, S, D): of the Gamma law of lam
    level: np.ndarray  # (L, D): K times the rows, summed
    season: np.ndarray  # (L, P, D): the same by phase in the eigenvectors, the level integrated out

    @property
    def shares(self) -> np.ndarray:
        """The posterior of length and strength, (L, S, D)."""
        return np.asarray(np.exp(self.log_z - self.log_sum))

    @property
    def log_sum(self) -> np.ndarray:
        """Log evidence of each column, (D,)."""
        return np.asarray(logsumexp(self.log_z, axis=(0, 1)))


def table(of: Any, sums: tuple[np.ndarray, np.ndarray], rate: np.ndarray) -> SeriesTable:
    """The posterior given the sums of a series or graph about the centre of the level; `rate` (D,) is lam's."""
    squares, in_phase = sums
    L, S, n, P = len(of.lengths), len(of.strengths), len(of.place), of.values.shape[1]
    whole, level = of.gram.sum(axis=1) + of.mean_rows, in_phase.sum(axis=1)
    square = squares - level**2 / whole[:, None]
    rest = in_phase - of.gram[:, :, None] * (level / whole[:, None])[:, None]
    season = of.vectors.swapaxes(1, 2) @ rest if P else np.zeros((L, 0, rest.shape[2]))
    kept = of.values[:, None, :] + of.strengths[:, None]  # (L, S, P)
    square = square[:, None] - np.einsum("lsp,lpd->lsd", 1.0 / kept, season**2)
    log_det = of.log_det + np.log(of.mean_rows / whole)
    log_det = log_det[:, None] + P * np.log(of.strengths) - np.log(kept).sum(axis=2)
    a, b = of.shape + 0.5 * n, rate + 0.5 * np.maximum(square, 0.0)
    constant = of.shape * np.log(rate) + gammaln(a) - gammaln(of.shape) - 0.5 * n * LOG_2PI - np.log(L * S)
    return SeriesTable(0.5 * log_det[:, :, None] - a * np.log(b) + constant, a, b, level, season)


def levels(of: Any, known: SeriesTable, shares: np.ndarray, noise: Any = None) -> np.ndarray:
    """Levels of all phases summed over strengths with weights `shares` (L, S, D), for each length: (L, 1 + P, D)."""
    # The first is mu, the others those of the season. `noise` (L, D), (L, P, D) is added to what each varies by.
    kept = of.values[:, None, :] + of.strengths[:, None]
    season = np.einsum("lsd,lsp->lpd", shares, 1.0 / kept) * known.season
    if noise is not None:
        season = season + np.einsum("lsd,lsp->lpd", shares, kept**-0.5) * noise[1]
    season = of.vectors @ season if season.shape[1] else season
    whole, total = of.gram.sum(axis=1)[:, None] + of.mean_rows, shares.sum(axis=1)
    level = (total * known.level - (np.einsum("lp,lpd->ld", of.gram, season) if season.shape[1] else 0.0)) / whole
    if noise is not None:
        level = level + total * noise[0] / np.sqrt(whole)
    return np.concatenate([level[:, None], season], axis=1)


# Rows of a series at other times: between the rows that are known, or beyond them.
#
# Given its neighbours a row of an Ornstein-Uhlenbeck process does not depend on any other. With K as above its
# precision is lam (v + w1 left + w1 right), and its mean beyond level and season the neighbours', with weights w2
# beside that. Far beyond the last row it is that of any row.

# Log precision of a column that does not vary, and the least distance of two rows, in steps.
CONSTANT, SAME_TIME = 200.0, 1e-9


class Laws(NamedTuple):
    """The parameters of a series in S draws, or the one of a posterior."""

    mean: np.ndarray  # (S, R)
    precision: np.ndarray  # (S, R)
    length: np.ndarray  # (S, R)
    season: np.ndarray  # (S, P, R): no phases without a season

    def levels(self, phase: int) -> np.ndarray:
        """Level and season of a row, (S, R); of a phase that is not known the level."""
        return self.mean + self.season[:, phase] if self.season.shape[1] and phase >= 0 else self.mean

    def more(self, phase: int) -> np.ndarray | float:
        """What the season of a phase that is not known varies by, (S, R)."""
        return np.asarray((self.season**2).mean(axis=1)) if self.season.shape[1] and phase < 0 else 0.0


def constant_lines(clock: Clock | Net, row: np.ndarray) -> np.ndarray:
    """The lines (3 + P, R) of a series all of whose rows are this one (R,)."""
    lines = np.zeros((n_lines(clock), len(row)))
    lines[0], lines[1] = row, CONSTANT
    return lines


def lines_of_modes(modes: ModePrior, clocks: tuple[Clock | Net | None, ...]) -> np.ndarray:
    """The lines (n, R) of all series and graphs, one after the other."""
    parts = []
    for k, clock in enumerate(clocks):
        if clock is not None and modes.drifts and modes.drifts[k] is not None:
            law = laws_of_mode(modes, k)
            first = (law.mean, np.log(law.precision), law.length)
            parts.append(np.concatenate([np.stack(first, axis=1), law.season], axis=1)[0])
        elif clock is not None:  # too few rows with entries for a series
            parts.append(constant_lines(clock, modes.mean[k]))
            parts[-1][1] = np.log(np.diagonal(modes.precision[k]))
    return np.concatenate(parts)


def in_columns(
    lines: np.ndarray, clocks: tuple[Clock | Net | None, ...], places: Sequence[np.ndarray], free: np.ndarray
) -> np.ndarray:
    """Lines (..., n, Q) of all series in R columns, at places (Q,) of each mode or -1; others 0, or 1 if not free."""
    out, at = np.empty((*lines.shape[:-1], free.shape[1])), 0
    for k, clock in enumerate(clocks):
        if clock is not None:
            own, used = slice(at, at + n_lines(clock)), places[k] >= 0
            out[..., own, :] = constant_lines(clock, np.where(free[k], 0.0, 1.0))
            out[..., own, places[k][used]] = lines[..., own, :][..., used]
            at = own.stop
    return out


def laws_of(lines: np.ndarray) -> Laws:
    """The laws in lines (S, 3 + P, R)."""
    lines = lines.astype(np.float64)
    return Laws(lines[:, 0], np.exp(lines[:, 1]), lines[:, 2], lines[:, 3:])


def n_lines(clock: Clock | Net) -> int:
    """Lines of a mode."""
    return 3 + (len(clock.phases) if isinstance(clock, Clock) and clock.seasonal else 0)


def laws_of_mode(modes: ModePrior, k: int) -> Laws:
    """The parameters of a mode that is a series, those of one draw."""
    drift: Any = modes.drifts[k]
    parts = (modes.mean[k], np.diagonal(modes.precision[k]), drift.length, drift.season)
    return Laws(*(np.asarray(part)[None] for part in parts))


class Near(NamedTuple):
    """Neighbours of new pairs among the known ones, (q,) each."""

    left: np.ndarray  # below 0 where there is none, and then another number for every row
    right: np.ndarray  # below 0 where there is none
    from_left: np.ndarray  # distances in time; infinite where there is none
    to_right: np.ndarray


def neighbours(known: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]) -> Near:
    """The neighbours of new pairs of a row and a time, if that is not nan; known ones are in the order of both."""
    (known_row, known_time), (row, time) = known, new
    row, distinct = row.astype(np.int64), np.unique(known_time)
    rank = np.searchsorted(distinct, time, side="right")
    key = known_row.astype(np.int64) * (len(distinct) + 1) + np.searchsorted(distinct, known_time) + 1
    right = np.searchsorted(key, row * (len(distinct) + 1) + rank, side="right")
    left, n, found = right - 1, len(key), []
    for side in (left, right):
        inside, at = (side >= 0) & (side < n), np.clip(side, 0, max(n - 1, 0))
        known_there = inside & np.isfinite(time) & (known_row[at] == row) if n else inside
        apart = np.abs(time - known_time[at]) if n else time
        found.append((known_there, np.where(known_there, apart, np.inf)))
    (has_left, from_left), (has_right, to_right) = found
    return Near(np.where(has_left, left, -1 - np.abs(row)), np.where(has_right, right, -1), from_left, to_right)


def places(clock: Clock, known: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, Near]:
    """The order of new times (q,), their phases, and neighbours among the known ones (n,); of groups see `Clock.at`."""
    if known.ndim == 2:
        near = neighbours((known[:, 0], known[:, 1]), (times[:, 0], times[:, 1]))
        order = np.lexsort((times[:, 1], times[:, 0]))
    else:
        by_time = np.argsort(known, kind="stable")
        start, circle = known[by_time[0]], clock.circle if len(known) > 2 else 0.0
        have, new = known[by_time] - start, np.mod(times - start, circle) if circle else times - start
        left, right, *apart = neighbours((np.zeros(len(have)), have), (np.zeros(len(new)), new))
        if circle:  # the first row follows the last one
            right, apart[1] = np.where(right < 0, 0, right), np.where(right < 0, circle - new, apart[1])
        near = Near(*(np.where(side < 0, -1, by_time[side]) for side in (left, right)), *apart)
        order = np.argsort(new, kind="stable")
    from_left, to_right = (np.maximum(side, SAME_TIME) for side in near[2:])
    return order, clock.phase_of(times), near._replace(from_left=from_left, to_right=to_right)


def _shares(clock: Clock, laws: Laws, left: float, right: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the neighbours at these distances count, and the variance that is left: (S, R) each."""
    flat, shape = laws.length.ravel(), laws.length.shape
    own, near, between = weights(flat, np.array([left, right]), clock.circle)
    total = own + near.sum(axis=1)
    counts = (between / total[:, None]).T.reshape(2, *shape)
    return counts[0], counts[1], 1.0 / (total.reshape(shape) * laws.precision)


def draw_at(
    clock: Clock, known: np.ndarray, rows: np.ndarray, laws: Laws, times: np.ndarray, noise: np.ndarray, joint: bool
) -> np.ndarray:
    """Rows at new times, (S, q, R), given known ones (S, n, R), `joint` or each by itself, of standard normal noise."""
    out, phases, before = np.empty_like(noise), clock.phase_of(known), -1
    order, phase, near = places(clock, known, times)
    times = times.reshape(len(times), -1)[:, -1]
    for i in order.tolist():
        left, distance = near.left[i], near.from_left[i]
        follows = joint and before >= 0 and near.left[before] == left and near.right[before] == near.right[i]
        if follows:
            distance = max(float(times[i] - times[before]) % (clock.circle or np.inf), SAME_TIME)
        of_left, of_right, variance = _shares(clock, laws, distance, near.to_right[i])
        value = laws.levels(phase[i])
        if follows:
            value = value + of_left * (out[:, before] - laws.levels(phase[before]))
        elif left >= 0:
            value = value + of_left * (rows[:, left] - laws.levels(phases[left]))
        if near.right[i] >= 0:
            value = value + of_right * (rows[:, near.right[i]] - laws.levels(phases[near.right[i]]))
        out[:, i] = value + np.sqrt(variance + laws.more(phase[i])) * noise[:, i]
        before = i
    return out


def moments_at(clock: Clock, known: Any, mean: np.ndarray, cov: np.ndarray, laws: Laws, times: np.ndarray) -> Moments:
    """Means (q, R), packed covariances (q, P) of rows at new times, each by itself, given the known rows' moments."""
    (_, phase, near), phases, R = places(clock, known, times), clock.phase_of(known), mean.shape[1]
    means, covs = np.empty((len(times), R)), np.empty((len(times), R, R))
    for i in range(len(times)):
        sides = (near.left[i], near.right[i])
        *counts, variance = (part[0] for part in _shares(clock, laws, near.from_left[i], near.to_right[i]))
        value, spread = laws.levels(phase[i])[0], np.diag(variance + laws.more(phase[i]) * np.ones(R))
        for side, share in zip(sides, counts, strict=True):
            if side >= 0:
                value = value + share * (mean[side] - laws.levels(phases[side])[0])
                spread = spread + share[:, None] * unpack(cov[side], R) * share
        if min(sides) >= 0:
            _, _, between = weights(laws.length[0], np.array([near.from_left[i] + near.to_right[i]]), clock.circle)
            left, right = (np.linalg.cholesky(unpack(cov[side], R)) for side in sides)
            U, g, V = np.linalg.svd(left.T @ ((laws.precision[0] * between[:, 0])[:, None] * right))
            y = 2.0 * g / (1.0 + np.sqrt(1.0 + 4.0 * g * g))
            both = counts[0][:, None] * (left @ (U * y) @ V @ right.T) * counts[1]
            spread = spread + both + both.T
        means[i], covs[i] = value, spread
    return means, pack(covs)
