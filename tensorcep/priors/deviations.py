"""Deviations of single rows along the axis of another mode, at any row and time: their moments, and draws.

A pair of a row and a time that has no entries follows from its neighbours in time, of the same row: as in
`priors.ou_process`, with one number in place of a row. Those of a row without any are about 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.persist.records import Sized
from tensorcep.priors.ou_process import SAME_TIME, Near, neighbours, weights


class Deviations(NamedTuple):
    """How each row of a mode deviates along the axis of another: a number for every pair of rows that occurs."""

    modes: tuple[int, int]  # the mode whose rows deviate, and the one that is a series
    first: tuple[int, int]  # their first packed rows
    size: int  # rows of the mode whose rows deviate
    row: Annotated[np.ndarray, Sized("p", "i")]  # of each pair, in the order of both
    time: Annotated[np.ndarray, Sized("p")]
    times: Annotated[np.ndarray, Sized("_")]  # (m,): the times of the rows of the series
    # Is added to the latent value, and an Ornstein-Uhlenbeck process about 0 along the axis, in each of C components
    mean: Annotated[np.ndarray, Sized("c p")]
    variance: Annotated[np.ndarray, Sized("c p")] | None  # (C, p); None where components are draws
    precision: Annotated[np.ndarray, Sized("c")]  # of the processes
    length: Annotated[np.ndarray, Sized("c")]
    told: Annotated[np.ndarray, Sized("two p")] | None = None  # what entries say: precision, and that times mean


def joined_deviations(parts: Sequence[Deviations | None]) -> Deviations | None:
    """The deviations in the components of several beliefs; None where there are none."""
    some = [part for part in parts if part is not None]
    if not some:
        return None
    variances = [one.variance for one in some if one.variance is not None]
    names = ("mean", "precision", "length")
    joined: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in some]) for name in names}
    return some[0]._replace(**joined, variance=np.concatenate(variances) if variances else None, told=None)


def shares(of: Deviations, from_left: np.ndarray, to_right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What neighbours at these distances count, and the variance that is left: (C, q) each."""
    (near_left, left), (near_right, right) = (weights(of.length, side, 0.0)[1:] for side in (from_left, to_right))
    total = 1.0 + near_left + near_right
    return left / total, right / total, 1.0 / (total * of.precision[:, None])


def covariance(left: np.ndarray, right: np.ndarray, coupling: np.ndarray) -> np.ndarray:
    """The covariance of two numbers with these variances whose joint precision couples them by -coupling."""
    size = np.sqrt(left * right)
    scaled = size * coupling
    return np.asarray(size * 2.0 * scaled / (1.0 + np.sqrt(1.0 + 4.0 * scaled * scaled)))


def moments(of: Deviations, row: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (C, q) of the deviations of rows (q,) at times (q,), each by itself."""
    row, time, back = _distinct(row, time)
    near = neighbours((of.row, of.time), (row, time))
    known = (near.left >= 0) & (near.from_left <= SAME_TIME)
    mean, variance = np.zeros((len(of.mean), len(row))), np.zeros((len(of.mean), len(row)))
    at = near.left[known]
    mean[:, known] = of.mean[:, at]
    if of.variance is not None:
        variance[:, known] = of.variance[:, at]
    near = Near(*(part[~known] for part in near))  # of pairs that follow from the moments of those that are known
    *counts, between = shares(of, near.from_left, near.to_right)
    places, expected = [np.maximum(side, 0) for side in (near.left, near.right)], np.zeros_like(between)
    for side, place, count in zip((near.left, near.right), places, counts, strict=True):
        count[:, side < 0] = 0.0
        expected += count * of.mean[:, place]
    if of.variance is not None:
        left, right = (of.variance[:, place] for place in places)
        between = between + counts[0] ** 2 * left + counts[1] ** 2 * right
        coupling = of.precision[:, None] * weights(of.length, near.from_left + near.to_right, 0.0)[2]
        between = between + 2.0 * counts[0] * counts[1] * covariance(left, right, coupling)
    mean[:, ~known], variance[:, ~known] = expected, between
    return mean[:, back], variance[:, back]


def _distinct(row: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs, in order, and which of them each pair is."""
    times, rank = np.unique(time, return_inverse=True)
    pairs, back = np.unique(row.astype(np.int64) * (len(times) + 1) + rank.ravel(), return_inverse=True)
    return pairs // (len(times) + 1), times[pairs % (len(times) + 1)], back.ravel()


def drawn(of: Deviations, which: np.ndarray, row: np.ndarray, time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws (S, q) of the deviations of rows at times, together, each from one of the components `which` (S,)."""
    row, time, back = _distinct(row, time)
    of = of._replace(mean=of.mean[which], precision=of.precision[which], length=of.length[which])
    if of.variance is not None:
        of = of._replace(mean=_paths(of, of.variance[which], rng), variance=None)
    near = neighbours((of.row, of.time), (row, time))
    known = (near.left >= 0) & (near.from_left <= SAME_TIME)
    out, noise = np.zeros((len(which), len(row))), rng.standard_normal((len(which), len(row)))
    out[:, known] = of.mean[:, near.left[known]]
    same_gap = (row[1:] == row[:-1]) & (near.left[1:] == near.left[:-1]) & np.isfinite(time[1:])
    depth = _runs(~known & np.append(False, ~known[:-1] & same_gap)[: len(row)])
    for d in range(int(depth.max(initial=0)) + 1):
        i = np.flatnonzero(~known & (depth == d))
        left, apart = near.left[i], near.from_left[i]
        before = of.mean[:, np.maximum(left, 0)] if d == 0 else out[:, i - 1]
        if d:
            apart, left = time[i] - time[i - 1], np.zeros_like(left)
        of_left, of_right, variance = shares(of, np.maximum(apart, SAME_TIME), near.to_right[i])
        mean = np.where(left >= 0, of_left * before, 0.0)
        mean += np.where(near.right[i] >= 0, of_right * of.mean[:, near.right[i]], 0.0)
        out[:, i] = mean + np.sqrt(variance) * noise[:, i]
    return out[:, back]


def _runs(follows: np.ndarray) -> np.ndarray:
    """How many places in a row up to each one follow the one before."""
    place = np.arange(len(follows))
    return place - np.maximum.accumulate(np.where(follows, 0, place)) if len(follows) else place


def _paths(of: Deviations, variance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Joint draws (S, p) of all pairs with these means and variances (S, p): one after the other in each row."""
    out, noise = of.mean.astype(np.float64), rng.standard_normal(of.mean.shape)
    depth = _runs(np.append(False, of.row[1:] == of.row[:-1]))
    for d in range(int(depth.max(initial=0)) + 1):
        i = np.flatnonzero(depth == d)
        spread = variance[:, i]
        if d:
            coupling = of.precision[:, None] * weights(of.length, of.time[i] - of.time[i - 1], 0.0)[2]
            share = covariance(variance[:, i - 1], spread, coupling) / variance[:, i - 1]
            out[:, i] += share * (out[:, i - 1] - of.mean[:, i - 1])
            spread = spread - share**2 * variance[:, i - 1]
        out[:, i] += np.sqrt(np.maximum(spread, 0.0)) * noise[:, i]
    return out
