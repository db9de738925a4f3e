"""The compiled Gibbs step of the rows against its plain twin, with the same normal numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, cells, settings_of
from oracles import gibbs as oracle

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets, unpack
from tensorcep.core.random import new_stream, normal, start_stream, stream_key
from tensorcep.cp.gibbs.method import draw_factors, start_chains
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import Prior

PROBIT = get_likelihood("probit")
# Modes with four, three and two free columns; no two columns are free in the same modes.
UNEQUAL = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)
CASES = [
    (2, (19, 8), np.ones((2, 3), dtype=bool)),
    (3, (18, 7, 6), np.ones((3, 4), dtype=bool)),
    (3, (18, 7, 6), UNEQUAL),
    (4, (5, 4, 3, 4), np.ones((4, 2), dtype=bool)),
]


def test_chains_sweeps_and_modes_have_streams_of_their_own():
    steps = list(itertools.product((3, 4), range(3), range(4), range(3)))  # seeds, chains, sweeps, modes
    assert len({stream_key(*step) for step in steps}) == len(steps)


def normals_of(R, seed, sweep):
    """The normal numbers that a group of rows of a mode is drawn with, padding columns included."""

    def draw(k, group):
        s, key = new_stream(), stream_key(seed, 0, sweep, k)
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + group)
        return np.array([[normal(s) for _ in range(LANES)] for _ in range(R)])

    return draw


@each("weighted", [False, True])
@each(("K", "shape", "free"), CASES)
def test_drawn_rows_are_those_of_the_plain_twin(rng, K, shape, free, weighted):
    coords, R, first = cells(rng, shape, 60), free.shape[1], offsets(shape)
    mean, precision = np.where(free, 0.4, 1.0), np.where(free, 1.7, CLAMPED)
    start = np.where(np.repeat(free, shape, axis=0), rng.standard_normal((sum(shape), R)), 1.0)
    p = build(coords, np.zeros(60), shape, R, prior=Prior(list(mean), list(precision)), start=start)
    p = p._replace(free=None if free.all() else free, seed=11)
    augmentation = PROBIT.normal._replace(weighted=weighted)
    state = start_chains(p, settings_of("gibbs", n_chains=1), augmentation)._replace(sweeps=3)
    np.testing.assert_array_equal(state.rows[0], start)
    n, weight = 60, np.ones(60)
    if weighted:
        weight = rng.random(n) * (rng.random(n) < 0.9)
    target = rng.standard_normal(n) * (weight > 0.0)
    state.own.sites.weight[:n], state.own.sites.target[:n] = weight, target
    packed = (coords + first[:-1])[p.entries.permutation]
    prior = unpack(p.prior.Lam, R), p.prior.eta
    normals = normals_of(state.own.setup.small.rank, 11, 3)
    wanted = oracle.sweep(packed, start, first, free, (weight, target), 2.5, prior, normals)
    squares = draw_factors(state, 0, p, 2.5, ThreadExecutor(1))[0]
    np.testing.assert_allclose(state.rows[0], wanted, rtol=1e-9, atol=1e-10)
    if not weighted:
        f = wanted[packed].prod(axis=1).sum(axis=1)
        assert squares.sum() == pytest.approx(np.sum((target - f) ** 2), rel=1e-9)
