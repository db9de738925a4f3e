"""Entries that sweeps are timed on: random cells of a third-order tensor, shaped as Alog's.

The shape is (200, 100, 200) with N = 21,076 for "alog"; for other N it grows from that at 1e5 to (20000, 10000, 20000)
at 1e7, so that a row keeps its 500 or 1000 entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior.belief import GammaNoise
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import FixedPrior, Prior, natural_prior

ALOG_ENTRIES = 21_076
ORDER = 3


class Case(NamedTuple):
    """What is timed together: one set of entries, one rank, one likelihood."""

    data: str
    n: int
    shape: tuple[int, ...]
    rank: int
    likelihood: str


def entry_counts(text: str) -> list[tuple[str, int]]:
    """Names and numbers of entries: "alog,1e5" gives ("alog", 21076), ("1e5", 100000)."""
    return [(word, ALOG_ENTRIES if word == "alog" else int(float(word))) for word in text.split(",")]


def shape_of(n: int) -> tuple[int, ...]:
    """Alog's shape, grown so that a row keeps its number of entries."""
    unit = max(100, n // 1000)
    return 2 * unit, unit, 2 * unit


def drawn(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Coordinates of random cells in random order, values from the CP model of the same rank, and its factors."""
    rng = np.random.default_rng(seed)
    likelihood = get_likelihood(case.likelihood)
    coords = np.stack([rng.integers(0, size, case.n) for size in case.shape], axis=1)
    factors = [rng.standard_normal((size, case.rank)) * case.rank ** (-0.5 / ORDER) for size in case.shape]
    f = np.empty(case.n)
    for a in range(0, case.n, 1 << 18):
        part = coords[a : a + (1 << 18)]
        product = np.ones((len(part), case.rank))
        for k, factor in enumerate(factors):
            product *= factor[part[:, k]]
        f[a : a + len(part)] = product.sum(axis=1)
    y = likelihood.check_y(likelihood.sample(rng, f, np.full(case.n, likelihood.default_theta)))
    return coords, y, factors


def problem_of(case: Case, coords: np.ndarray, y: np.ndarray, factors: list[np.ndarray]) -> Problem:
    """These entries packed, with a prior of rows that explain them and a start at the factors."""
    scale = case.rank ** (-0.5 / ORDER)
    prior = Prior([0.0] * ORDER, [1.0 / scale**2] * ORDER)
    rows_prior = FixedPrior(*natural_prior(prior, case.shape, case.rank))
    noise = GammaNoise(1e-3, 1e-3) if case.likelihood == "gaussian" else None
    entries, likelihood = pack_entries(coords, y, case.shape), get_likelihood(case.likelihood)
    start = np.concatenate(factors)
    return Problem(entries, case.shape, case.rank, likelihood, rows_prior, start, noise_prior=noise)


def simulate(case: Case, seed: int) -> Problem:
    """Random cells, values from the CP model of the same rank, and a start at its factors."""
    return problem_of(case, *drawn(case, seed))


def damping_of(likelihood: str, schedule: str) -> float:
    """The estimators' own choice: without damping, updates of some likelihoods go wrong, and a wrong one is slower."""
    return 0.0 if (likelihood, schedule) == ("gaussian", "modewise") else 0.5
