"""Prior and starting means of a model with main effects and interactions (`tensorcep.cp.columns`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from tensorcep.core.packing import offsets
from tensorcep.cp.columns import CLAMPED
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import Prior
from tensorcep.priors.record import RowPrior

# Makes a learned prior of the natural parameters (Lam, eta) that the rows begin with.
Learner = Callable[[np.ndarray, np.ndarray], RowPrior]


class Structure(NamedTuple):
    """What to expect of each column.

    Attributes
    ----------
    free : (K, R) bool
        Columns that are inferred; the others are clamped to 1.
    mean : (K, R) float64
    scale : (R,) float64
        Standard deviation of a free element.
    """

    free: np.ndarray
    mean: np.ndarray
    scale: np.ndarray


def structure(free: np.ndarray, intercept: float, centre: float, scale_of: Callable[[int, int], float]) -> Structure:
    """Expected means and scales of the columns.

    Every part (main effects, pairs, CP) is expected to explain as much as every other. The intercept is the mean of
    the first main effect.

    Parameters
    ----------
    free : (K, R) bool
    intercept : float
    centre : float
        Mean of the elements of columns that are free in two modes or more.
    scale_of : callable
        ``scale_of(order, rank)``: scale at which the sum of `rank` products of `order` factors is as large as the data.
    """
    active = free.sum(axis=0)
    parts, counts = np.unique(active, return_counts=True)
    scales = {int(j): scale_of(int(j), int(n) * len(parts)) for j, n in zip(parts, counts, strict=True)}
    mean = np.where(free & (active > 1), centre, np.where(free, 0.0, 1.0))
    if active.min() == 1:
        first = int(np.argmin(active))
        mean[free[:, first], first] = intercept
    return Structure(free, mean, np.array([scales[int(j)] for j in active]))


def structured_prior(found: Structure, kind: str | None) -> tuple[Prior, Learner | None]:
    """The rows' prior, clamped columns included, and what learns it from its natural parameters on."""
    precision = np.where(found.free, found.scale**-2, CLAMPED)
    scale = np.broadcast_to(found.scale, found.free.shape)
    learned = None if kind is None else partial(LEARNED[kind], mean=found.mean, scale=scale, free=found.free)
    return Prior(list(found.mean), list(precision)), learned


def structured_start(
    found: Structure, shape: Sequence[int], given: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Row means to start from, (n_rows, R): main effects at their mean, products at random, unless they are given."""
    start = np.repeat(found.mean, shape, axis=0)
    free = np.repeat(found.free, shape, axis=0)
    if given is not None:
        return np.where(free, given, start)
    drawn = found.scale * rng.standard_normal((int(offsets(shape)[-1]), found.free.shape[1]))
    return np.where(free & (found.free.sum(axis=0) > 1), drawn, start)
