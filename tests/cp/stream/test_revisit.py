"""Revisited entries: exact on conjugate problems, posterior = prior x messages throughout, a uniform sample."""

from __future__ import annotations

import numpy as np
from helpers.cases import each
from helpers.problems import settings_of

from tensorcep.cp.methods import get_method
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.stream import adf
from tensorcep.cp.stream.adf import learn
from tensorcep.cp.stream.modes import begin, posterior_of
from tensorcep.cp.stream.reservoir import Reservoir, Sample, after_revisit, revisit, slots_of_new
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import Prior, natural_prior

HOW = {"max_iter": 100, "tol": 1e-12}


def begun(shape, R, prior, noise=None):
    """A state before any entry: the posterior is the prior."""
    Lam, eta = natural_prior(prior, shape, R)
    nothing = adf.Posterior(shape, R, Lam, eta, noise, np.zeros(sum(shape), dtype=bool))
    return begin(nothing, Lam, eta, noise, 0.0)


def learned(state, reservoir, coords, y, capacity, likelihood="gaussian", keep=1.0, time=0.0):
    record = get_likelihood(likelihood)
    how = {"keep": keep, "time": time, "seed": 5, "likelihood": record}
    made = revisit(state, reservoir, coords, y, capacity=capacity, **how)
    result = learn(get_method("cep", record), made.batch.problem, settings_of("cep"), **HOW)
    posterior, reservoir = after_revisit(made, result.posterior, result.state.own.messages)
    return adf.absorb(state, made.batch, posterior), reservoir


@each("keep", [1.0, 0.8])
@each("capacity", [3, 20])
def test_revisit_leaves_a_conjugate_posterior_as_it_is(keep, capacity):
    """With the other mode and the noise known, messages do not change: out and in again gives the same posterior."""
    rng = np.random.default_rng(1)
    known = rng.standard_normal((9, 2))
    noise = GammaNoise(4e14, 1e14)
    y = known @ np.array([1.0, -0.5]) + 0.5 * rng.standard_normal(9)
    coords = np.stack([np.zeros(9, dtype=np.int64), np.arange(9)], axis=1)
    states = []
    for size in (0, capacity):
        state = begun((1, 9), 2, Prior([np.array([0.3, -0.2]), known], [1.0, 1e16]), noise)
        reservoir = Reservoir.empty(2, 2)
        for time, part in enumerate((slice(0, 4), slice(4, 6), slice(6, 9))):
            state, reservoir = learned(state, reservoir, coords[part], y[part], size, keep=keep, time=float(time))
        states.append(state)
    assert reservoir.revisited == (3 + 3 if capacity == 3 else 4 + 6)
    assert reservoir.skipped == 0
    plain, again = (posterior_of(state, keep) for state in states)
    np.testing.assert_allclose(again.Lam[0], plain.Lam[0], rtol=1e-9)
    np.testing.assert_allclose(again.eta[0], plain.eta[0], rtol=1e-9)
    np.testing.assert_allclose(again.noise, plain.noise, rtol=1e-9)


def problem_with_a_heavy_message():
    """A state, and a reservoir of two entries of which the first claims a message that the row's posterior lacks."""
    state = begun((3, 3), 1, Prior([0.5, 0.5], [1.0, 1.0]))
    coords = np.array([[0, 0], [1, 1]])
    Lam, eta = np.zeros((2, 2, 1)), np.zeros((2, 2, 1))
    Lam[0, 0] = 1.5
    sample = Sample(coords, np.ones(2), np.zeros(2), Lam, eta, np.zeros(2), np.zeros(2))
    return state, Reservoir.empty(2, 1)._replace(sample=sample, seen=2)


def test_revisit_skips_and_counts_entries_without_which_a_row_is_no_gaussian():
    state, reservoir = problem_with_a_heavy_message()
    before = posterior_of(state, 1.0)
    how = {"keep": 1.0, "time": 1.0, "seed": 5, "likelihood": get_likelihood("probit")}
    made = revisit(state, reservoir, np.array([[2, 2]]), np.ones(1), capacity=2, **how)
    np.testing.assert_array_equal(made.held, [1])
    assert (made.reservoir.revisited, made.reservoir.skipped) == (1, 1)
    np.testing.assert_array_equal(made.batch.used[0], [1, 2])
    state, after = learned(state, reservoir, np.array([[2, 2]]), np.ones(1), 2, "probit", time=1.0)
    np.testing.assert_array_equal(posterior_of(state, 1.0).Lam[0], before.Lam[0])
    assert after.skipped == 1


def test_revisit_without_a_reservoir_is_the_plain_batch():
    rng = np.random.default_rng(2)
    coords, y = np.stack([rng.integers(0, 4, 10)] * 2, axis=1), np.sign(rng.standard_normal(10))
    state = begun((4, 4), 2, Prior([0.7, 0.6], [1.0, 2.0]))
    how = {"keep": 1.0, "time": 0.0, "seed": 5, "likelihood": get_likelihood("probit")}
    made = revisit(state, Reservoir.empty(2, 2), coords, y, capacity=5, **how)
    plain = adf.batch_of(state, coords, y, **how).problem
    assert made.batch.problem.start is None
    np.testing.assert_array_equal(made.batch.problem.prior.Lam, plain.prior.Lam)
    np.testing.assert_array_equal(made.batch.problem.entries.rows, plain.entries.rows)


def filled(parts, capacity, seed):
    """Numbers of the entries that a reservoir holds after batches of these sizes."""
    held = np.full(capacity, -1)
    seen = 0
    for n in parts:
        slots = slots_of_new(seed, seen, n, int((held >= 0).sum()), capacity)
        for number in np.flatnonzero(slots >= 0):
            held[slots[number]] = seen + number
        seen += n
    return held


def test_reservoir_does_not_depend_on_the_batches_that_entries_come_in():
    whole = filled([200], 10, 7)
    np.testing.assert_array_equal(whole, filled([3, 30, 7, 159, 1], 10, 7))
    assert not np.array_equal(whole, filled([200], 10, 8))


def test_reservoir_is_a_uniform_sample():
    """The share of 2000 seeds in which an entry is held is 10/50 for every entry, within 6 standard deviations."""
    counts = np.zeros(50)
    for seed in range(2000):
        counts[filled([20, 30], 10, seed)] += 1
    assert counts.sum() == 20_000
    np.testing.assert_array_less(np.abs(counts / 2000 - 0.2), 6 * np.sqrt(0.2 * 0.8 / 2000))
