"""Rows of a series at other times: between the rows that are known, or beyond them.

Given its neighbours a row of an Ornstein-Uhlenbeck process does not depend on any other. With K as in `priors.axis` its
precision is lam (v + w1 left + w1 right), and its mean beyond level and season the neighbours', with weights w2 beside
that. Far beyond the last row it is that of any row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import ModePrior
from tensorcep.core.packing import pack, unpack
from tensorcep.priors.axis import weights
from tensorcep.priors.deviations import SAME_TIME, neighbours
from tensorcep.priors.graph import Net
from tensorcep.priors.series import Clock

# Log precision of a column that does not vary.
CONSTANT = 200.0


class Laws(NamedTuple):
    """The parameters of a series in S draws, or the one of a posterior.

    Attributes
    ----------
    mean, precision, length : (S, R) float64
    season : (S, P, R) float64
        No phases without a season.
    """

    mean: np.ndarray
    precision: np.ndarray
    length: np.ndarray
    season: np.ndarray

    def levels(self, phase: int) -> np.ndarray:
        """Level and season of a row, (S, R); of a phase that is not known the level."""
        return self.mean + self.season[:, phase] if self.season.shape[1] and phase >= 0 else self.mean

    def more(self, phase: int) -> np.ndarray | float:
        """What the season of a phase that is not known varies by, (S, R)."""
        return np.asarray((self.season**2).mean(axis=1)) if self.season.shape[1] and phase < 0 else 0.0


def lines_of(laws: Laws) -> np.ndarray:
    """The laws as lines, (S, 3 + P, R), as `Draws.drifts` has them."""
    first = (laws.mean, np.log(laws.precision), laws.length)
    return np.concatenate([np.stack(first, axis=1), laws.season], axis=1)


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
            parts.append(lines_of(laws_of_mode(modes, k))[0])
        elif clock is not None:  # too few rows with entries for a series
            parts.append(constant_lines(clock, modes.mean[k]))
            parts[-1][1] = np.log(np.diagonal(modes.precision[k]))
    return np.concatenate(parts)


def in_columns(
    lines: np.ndarray, clocks: tuple[Clock | Net | None, ...], places: Sequence[np.ndarray], free: np.ndarray
) -> np.ndarray:
    """Lines (..., n, Q) of all series as lines of R columns, at these places (Q,) in each mode, -1 for nowhere.

    Other columns are 0 for good, or 1 where they are not free, (K, R) bool.
    """
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


class Places(NamedTuple):
    """New times in order, and their neighbours among the known ones.

    Attributes
    ----------
    order : (q,) int64
    left, right : (q,) int64
        Places among the known times; below 0 for none, of a group without any another number than of others.
    from_left, to_right : (q,) float64
        Distances; infinite where there is none.
    phase : (q,) int64
    """

    order: np.ndarray
    left: np.ndarray
    right: np.ndarray
    from_left: np.ndarray
    to_right: np.ndarray
    phase: np.ndarray


def places(clock: Clock, known: np.ndarray, times: np.ndarray) -> Places:
    """Where new times (q,) lie among the known ones (n,); of groups see `Clock.at`."""
    if known.ndim == 2:
        near = neighbours((known[:, 0], known[:, 1]), (times[:, 0], times[:, 1]))
        order = np.lexsort((times[:, 1], times[:, 0]))
        from_left, to_right = (np.maximum(side, SAME_TIME) for side in (near.from_left, near.to_right))
        return Places(order, near.left, near.right, from_left, to_right, clock.phase_of(times))
    by_time, n = np.argsort(known, kind="stable"), len(known)
    start, circle = known[by_time[0]], clock.circle if len(known) > 2 else 0.0
    have, new = known[by_time] - start, times - start
    new = np.mod(new, circle) if circle else new
    after = np.searchsorted(have, new, side="right")
    left, right = after - 1, after
    if circle:
        from_left, to_right = new - have[left], np.append(have, circle)[right] - new
        right = right % n
    else:
        padded = np.concatenate([[-np.inf], have, [np.inf]])
        from_left, to_right = new - padded[after], padded[after + 1] - new
        right = np.where(right < n, right, -1)
    left, right = (np.where(side < 0, -1, by_time[side]) for side in (left, right))
    from_left, to_right = np.maximum(from_left, SAME_TIME), np.maximum(to_right, SAME_TIME)
    return Places(np.argsort(new, kind="stable"), left, right, from_left, to_right, clock.phase_of(times))


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
    """Rows at new times, (S, q, R), in each draw of the known ones (S, n, R).

    With `joint` they are draws together; otherwise each is one by itself, given the known rows. `noise` is standard
    normal, (S, q, R).
    """
    out, at = np.empty_like(noise), places(clock, known, times)
    phases, before, times = clock.phase_of(known), -1, times.reshape(len(times), -1)[:, -1]
    for i in at.order.tolist():
        left, distance = at.left[i], at.from_left[i]
        follows = joint and before >= 0 and at.left[before] == left and at.right[before] == at.right[i]
        if follows:
            distance = max(float(times[i] - times[before]) % (clock.circle or np.inf), SAME_TIME)
        of_left, of_right, variance = _shares(clock, laws, distance, at.to_right[i])
        value = laws.levels(at.phase[i])
        if follows:
            value = value + of_left * (out[:, before] - laws.levels(at.phase[before]))
        elif left >= 0:
            value = value + of_left * (rows[:, left] - laws.levels(phases[left]))
        if at.right[i] >= 0:
            value = value + of_right * (rows[:, at.right[i]] - laws.levels(phases[at.right[i]]))
        out[:, i] = value + np.sqrt(variance + laws.more(at.phase[i])) * noise[:, i]
        before = i
    return out


def moments_at(
    clock: Clock, known: np.ndarray, mean: np.ndarray, cov: np.ndarray, laws: Laws, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means (q, R) and packed covariances (q, P) of rows at new times, each by itself, given the known rows' moments.

    The covariance of two neighbours follows from those of both, as their joint precision has the prior's coupling.
    """
    at, R = places(clock, known, times), mean.shape[1]
    means, covs, phases = np.empty((len(times), R)), np.empty((len(times), R, R)), clock.phase_of(known)
    for i in range(len(times)):
        sides = (at.left[i], at.right[i])
        *counts, variance = (part[0] for part in _shares(clock, laws, at.from_left[i], at.to_right[i]))
        value, spread = laws.levels(at.phase[i])[0], np.diag(variance + laws.more(at.phase[i]) * np.ones(R))
        for side, share in zip(sides, counts, strict=True):
            if side >= 0:
                value = value + share * (mean[side] - laws.levels(phases[side])[0])
                spread = spread + share[:, None] * unpack(cov[side], R) * share
        if min(sides) >= 0:
            _, _, between = weights(laws.length[0], np.array([at.from_left[i] + at.to_right[i]]), clock.circle)
            both = _covariance(unpack(cov[sides[0]], R), unpack(cov[sides[1]], R), laws.precision[0] * between[:, 0])
            both = counts[0][:, None] * both * counts[1]
            spread = spread + both + both.T
        means[i], covs[i] = value, spread
    return means, pack(covs)


def _covariance(left: np.ndarray, right: np.ndarray, coupling: np.ndarray) -> np.ndarray:
    """The covariance of two Gaussian rows with these covariances whose joint precision couples them by -coupling."""
    roots = [np.linalg.cholesky(side) for side in (left, right)]
    U, g, V = np.linalg.svd(roots[0].T @ (coupling[:, None] * roots[1]))
    y = 2.0 * g / (1.0 + np.sqrt(1.0 + 4.0 * g * g))
    return np.asarray(roots[0] @ (U * y) @ V @ roots[1].T)
