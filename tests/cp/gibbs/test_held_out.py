"""The Gaussian noise from entries left out in the burn-in: no chain interpolates, none ends at zero factors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.cases import each
from helpers.held import held_of
from helpers.problems import build, cells, settings_of
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPRegressor
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import run
from tensorcep.core.packing import offsets
from tensorcep.core.random import RandomStream, generator
from tensorcep.cp.calibration import holdout
from tensorcep.cp.calibration.holdout import (
    Beside,
    ChainsDrawn,
    chains_of,
    held_out_places,
    hold_out,
    learn_from_held,
    promising_chains,
    ratio_beside_limits,
    stacking_weights,
    weigh_chains,
)
from tensorcep.cp.gibbs.method import _residual_stats, draw_factors
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model import memmap
from tensorcep.cp.model.problem import with_powers
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.parameters.base import NO_LAW, NoisePrecision, ValidationNoise
from tensorcep.likelihoods.tobit import censored_at
from tensorcep.priors.fixed import Prior

SHAPE = (30, 25, 20)
SD = 0.5


def data(rng, n=2000, true_rank=2):
    """Entries of a CP model of low rank, their latent values, and noise of standard deviation SD."""
    coords = cells(rng, SHAPE, n)
    f = np.prod([rng.standard_normal((m, true_rank))[i] for m, i in zip(SHAPE, coords.T, strict=True)], axis=0)
    f = f.sum(axis=1)
    return coords, f, f + SD * rng.standard_normal(n)


def sample(coords, y, R, sweeps=120, threads=1, **given):
    scale = (y.std() / np.sqrt(R)) ** (1.0 / 3.0)
    p = build(coords, y, SHAPE, R, prior=Prior([0.0] * 3, [scale**-2] * 3))
    return run(METHODS["gibbs"], p, settings_of("gibbs", sweeps, **given), max_iter=sweeps, tol=0.0, n_threads=threads)


def latent(posterior, coords):
    """Draws of the latent values, (draws of all chains, n)."""
    rows = posterior.rows.reshape(-1, sum(SHAPE), posterior.rank)
    return rows[:, coords + offsets(SHAPE)[:-1]].prod(axis=2).sum(axis=2)


def error(posterior, coords, f):
    return np.sqrt(np.mean((latent(posterior, coords).mean(axis=0) - f) ** 2))


def test_no_chain_interpolates_where_parameters_outnumber_entries(rng):
    coords, f, y = data(rng)
    train, left = slice(0, 1500), slice(1500, None)
    ways = {"held-out": {}, "sampled": {"noise": "sampled", "weights": "equal"}}  # the second leaves no entries out
    found = {how: sample(coords[train], y[train], 20, **given) for how, given in ways.items()}
    held_out, sampled = (found[how].posterior for how in ways)
    assert sampled.theta.mean() > 4.0 / SD**2  # the twin without the remedy
    within = held_out.theta * found["held-out"].state.held.noise_ratio
    assert 0.5 / SD**2 < within.mean() < 2.0 / SD**2  # beside the draws of one chain
    f_draws = latent(held_out, coords[left])
    expected = f_draws.var(axis=0) + np.mean(1.0 / held_out.theta)  # beside the draws of all chains
    assert np.mean((y[left] - f_draws.mean(axis=0)) ** 2 / expected) == pytest.approx(1.0, abs=0.2)
    assert error(held_out, coords[left], f[left]) < 0.9 * error(sampled, coords[left], f[left])


def test_chains_of_low_rank_find_the_noise_and_do_not_collapse_to_zero(rng):
    coords, f, y = data(rng, true_rank=1)
    posterior = sample(coords, y, 2).posterior
    np.testing.assert_allclose(posterior.theta.mean(axis=(1, 2)), 1.0 / SD**2, rtol=0.5)
    for chain in posterior.rows:
        assert error(posterior._replace(rows=chain[None]), coords, f) < 0.5 * f.std()


def learned(held, sweep, burn_in, f, given):
    """The estimates after a sweep with these latent values (C, n) of values with normal noise."""
    now = ChainsDrawn(sweep, f[:, :, None], (), ((),) * len(f), even=True)
    problem, options = SimpleNamespace(likelihood=GAUSSIAN), SimpleNamespace(burn_in=burn_in)
    return learn_from_held(held, now, given, problem, options, told_noise=False)[0]


def test_noise_of_draws_around_their_mean_is_what_is_left(rng):
    """Draws and truth with variance 2 around a common mean, noise of variance 3."""
    n, C, sweeps = 20_000, 3, 200
    mean = rng.standard_normal(n)
    y = mean + np.sqrt(2.0) * rng.standard_normal(n) + np.sqrt(3.0) * rng.standard_normal(n)
    zeros = np.zeros((C, n))
    held = held_of(y, zeros, zeros - np.inf)
    for sweep in range(sweeps):
        draws = mean + np.sqrt(2.0) * rng.standard_normal((C, n))
        given = np.broadcast_to(held.y, (C, n)), np.full((C, n), 1.0 / 3.0)
        held = learned(held, sweep, sweeps, draws, given)
    held = weigh_chains(held, settings_of("gibbs", 2 * sweeps, burn_in=sweeps, n_chains=C))
    # the running mean over 20 draws of each chain has a variance of its own, 2 / 39
    np.testing.assert_allclose(held.noise, 3.0 + 2 * 2 / 39, atol=0.2)
    np.testing.assert_allclose(held.weights, 1.0 / C)
    assert held.noise_ratio * held.noise.mean() == pytest.approx(3.0, abs=0.2)
    law = NoisePrecision((1.0, 2.0)).expect(NO_LAW, ValidationNoise(held.place, held.noise[1]).stats)
    assert (law.a[0], law.b[0]) == pytest.approx((1.0 + n / 2, 2.0 + held.noise[1] * n / 2))


def test_entries_of_which_little_is_known_hardly_tell_the_noise(rng):
    """One in twenty is of rows that are hardly known, and further off than a chain that has not found them says."""
    n, sweeps, noise = 20_000, 120, 0.01
    spread, off = np.full(n, 0.01), np.full(n, 0.01)
    spread[::20], off[::20] = 0.5, 2.0
    y = np.sqrt(off + noise) * rng.standard_normal(n)
    held = held_of(y, np.zeros((1, n)), np.full((1, n), -np.inf))
    for sweep in range(sweeps):
        draws = np.sqrt(spread) * rng.standard_normal((1, n))
        held = learned(held, sweep, sweeps, draws, (y[None], np.full((1, n), 100.0)))
    assert np.mean(y**2) - spread.mean() > 0.08  # what all alike would say
    np.testing.assert_allclose(held.noise, noise, rtol=0.3)


def test_exact_values_leave_no_noise_and_no_nan():
    zeros = np.zeros((1, 60))
    held = learned(held_of(zeros[0], zeros, zeros), 0, 9, zeros, (zeros, zeros + 1.0))
    np.testing.assert_array_equal(held.noise, 0.0)


def test_weights_are_those_of_the_best_mixture():
    """Two components that each know half of the values, and one that knows none."""
    good, bad = np.log(0.9), np.log(0.1)
    density = np.array([[good] * 50 + [bad] * 50, [bad] * 50 + [good] * 50, [np.log(0.05)] * 100])
    np.testing.assert_allclose(stacking_weights(density, np.full(3, 1.0 / 3.0)), [0.5, 0.5, 0.0], atol=1e-6)


def test_weights_stay_equal_where_nothing_is_gained(rng):
    before = np.array([0.5, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(stacking_weights(-1.0 + 0.01 * rng.standard_normal((4, 200)), before), before)


def test_values_that_nothing_expects_leave_the_weights_as_the_others_have_them(rng):
    """As wild counts are of pilots that have left the range of numbers, and of chains beside them."""
    density, before = rng.standard_normal((3, 60)), np.array([0.5, 0.5, 0.0])
    wild = np.concatenate([density, np.full((3, 2), -np.inf), [[-np.inf], [np.nan], [np.nan]]], axis=1)
    np.testing.assert_array_equal(stacking_weights(wild, before), stacking_weights(density, before))
    wild = np.stack([density[0] + 9.0, np.full(60, np.nan), np.full(60, -np.inf)])
    np.testing.assert_array_equal(stacking_weights(wild, np.array([0.0, 0.5, 0.5])), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(stacking_weights(wild[1:], before[:2]), before[:2])


def test_what_is_beside_the_chains_is_weighed_with_them(rng):
    """A fit that knows the values takes all the weight from chains that know nothing, and the noise is its own."""
    n, C = 400, 2
    y = rng.standard_normal(n)
    zeros = np.zeros((C, n))
    unknown = np.full((C, n), np.log(10) - 0.5 * np.log(2 * np.pi)) - 0.5 * y**2
    held = held_of(y, zeros, unknown)
    known = Beside(np.full(n, -0.5 * np.log(2 * np.pi * 0.01) - 0.5), y + 0.1 * rng.standard_normal(n), zeros[0], 0.01)
    held = weigh_chains(held, settings_of("gibbs", 40, burn_in=20, n_chains=C), [known])
    np.testing.assert_allclose(held.beside, [1.0])
    np.testing.assert_allclose(held.score, known.log_density)
    assert len(held.alive) == 0
    assert held.noise_ratio == pytest.approx(1.0, abs=0.2)


@each("side", [1.0, -1.0])
def test_noise_of_fits_beside_a_limit_is_what_makes_values_left_out_most_likely(rng, side):
    """Where half of the values are at the limit, whose residuals tell no noise."""
    n, noise, spread = 4000, 0.09, 0.1
    mean = rng.standard_normal(n)
    y = mean + np.sqrt(spread + noise) * rng.standard_normal(n)
    y = side * np.maximum(side * y, 0.0)
    likelihood = censored_at(7.0, side)
    for factor in (3.0, 0.5):
        said = Beside(np.zeros(n), mean, np.full(n, spread), noise / factor)
        poor = said._replace(mean=mean + np.nan)  # counts for nothing
        found = ratio_beside_limits(y, likelihood, [poor, said], np.array([0.0, 0.6]))
        assert found == pytest.approx(factor, rel=0.15)


def test_chains_that_explain_little_beside_the_best_are_not_promising(rng):
    n = 500
    y = rng.standard_normal(n)
    mean = np.stack([y + 0.5 * rng.standard_normal(n), rng.standard_normal(n), y + 0.6 * rng.standard_normal(n)])
    held = held_of(y, mean, mean)._replace(spread=2.0 * mean, noise=np.array([1.0, 2.0, 3.0]))
    which = promising_chains(held, 10, 30, GAUSSIAN)
    assert which.tolist() == [0, 2]
    assert promising_chains(held, 11, 30, GAUSSIAN).tolist() == [0, 1, 2]
    assert promising_chains(chains_of(held, np.array([1])), 10, 30, GAUSSIAN).tolist() == [0]
    rest = chains_of(held, which)
    for name in ("mean", "spread", "noise", "log_density"):
        np.testing.assert_array_equal(getattr(rest, name), getattr(held, name)[[0, 2]])
    assert rest.y is held.y
    assert rest.place is held.place


def test_the_burn_in_does_not_read_the_entries_left_out_and_later_sweeps_do(rng):
    coords, _, y = data(rng, 600)
    p = build(coords, y, SHAPE, 2)
    left_out = hold_out(p, 2, 1.0)
    assert left_out is not None
    assert len(left_out.place) == 60
    other = p._replace(entries=p.entries._replace(y=p.entries.y.copy()))
    other.entries.y.ravel()[left_out.place] += 100.0
    drawn = {}
    for name, problem in (("as it is", p), ("changed", other)):
        for burning_in in (True, False):
            state = METHODS["gibbs"].init(problem, settings_of("gibbs", 6, burn_in=3, n_chains=2), ThreadExecutor(1))
            draw_factors(state._replace(sweeps=0 if burning_in else 3), 0, problem, 1.0, ThreadExecutor(1))
            drawn[name, burning_in] = state.rows[0]
    np.testing.assert_array_equal(drawn["as it is", True], drawn["changed", True])
    touched = np.unique(left_out.rows[:, 0])
    assert not np.isclose(drawn["as it is", False][touched], drawn["changed", False][touched]).all(axis=1).any()


def test_what_is_left_out_counts_as_much_as_its_entries_do_and_nothing_after_the_burn_in(rng):
    coords, _, y = data(rng, 600)
    p = build(coords, y, SHAPE, 2)
    options = settings_of("gibbs", 6, burn_in=3, n_chains=2)
    for problem in (p, with_powers(p, rng.random(600))):
        state = METHODS["gibbs"].init(problem, options, ThreadExecutor(1))
        counts = problem.weights.ravel()[state.held.place].sum()
        n = [_residual_stats(0, state._replace(sweeps=s), problem, False, ThreadExecutor(1)).n for s in (2, 3)]
        assert n[1] - n[0] == pytest.approx(counts, rel=1e-12)
        assert counts > 0.0
        assert n[1] == problem.weights.sum()
        np.testing.assert_array_equal(state.given_at(state.held.place, problem)[0][1], state.held.y)


def test_a_fit_that_has_ended_tells_without_lists_of_its_entries(rng):
    coords, _, y = data(rng, 600)
    method, state = METHODS["gibbs"], sample(coords, y, 2, 2).state
    ended = method.ended(state)
    assert sum(part.nbytes for part in ended.own.setup.by_row[:5]) == 8
    assert ended.put(setup=state.own.setup) == state
    assert method.ended(None) is None


@each(("n", "given"), [(11, {}), (600, {"burn_in": 0}), (600, {"noise": "sampled", "weights": "equal"})])
def test_few_entries_or_no_burn_in_leave_nothing_out(rng, n, given):
    coords, _, y = data(rng, n)
    assert sample(coords, y, 2, 2, **given).state.held is None


def test_few_values_of_noise_are_predicted_by_their_mean_and_it_is_said():
    rng = np.random.default_rng(16)
    X = rng.permutation(np.argwhere(np.ones((8, 7, 6))))[:16]
    y = 5.0 + rng.standard_normal(16)
    with pytest.warns(ConvergenceWarning, match="nothing but the mean was found"):
        found = CPRegressor(random_state=0).fit(X, y)
    assert np.abs(found.predict(X) - y.mean()).max() < 0.3


@pytest.mark.slow
def test_intervals_of_few_values_predicted_by_their_mean_are_as_wide_as_all_of_them_tell():
    """The ten that are left out may be much nearer to each other, or farther."""
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.permutation(np.argwhere(np.ones((8, 7, 6))))[:40], rng.standard_normal(40)
        with pytest.warns(ConvergenceWarning, match="nothing but the mean was found"):
            found = CPRegressor(random_state=0).fit(X, y)
        assert np.abs(found.predict(X) - y.mean()).max() < 0.3
        ratios.append(found.predict(X[:5], return_std=True)[1] / y.std())
    assert 0.9 < np.min(ratios) < np.max(ratios) < 1.2


def test_noise_from_entries_left_out_has_the_same_bits_on_two_threads(rng):
    coords, _, y = data(rng)
    one, two = (sample(coords, y, 3, 6, threads, n_chains=2).posterior for threads in (1, 2))
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.theta, two.theta)


def test_noise_must_be_a_known_word():
    with pytest.raises(ValueError, match="noise must be one of"):
        settings_of("gibbs", noise="cv")


def test_labels_are_left_out_of_both_classes_alike(rng):
    y = np.where(np.arange(1000) < 40, 1.0, -1.0)
    p = build(rng.integers(0, 9, (1000, 2)), y, (9, 9), 2, "logit")
    held = hold_out(p, 1, 1.0)
    assert held is not None
    assert (np.count_nonzero(held.y > 0.0), len(held.y)) == (8, 200)  # a fifth, for ones are few
    even = p._replace(entries=p.entries._replace(y=np.where(rng.random(p.entries.y.shape) < 0.5, 1.0, -1.0)))
    assert abs(len(held_out_places(even)) - 100) < 5


@each("ones", [0.0, 0.02, 0.4, 1.0])
@each("likelihood", ["gaussian", "logit"])
def test_entries_left_out_of_very_many_are_drawn_by_themselves(rng, monkeypatch, likelihood, ones):
    n, found = 5000, {}
    y = np.where(rng.random(n) < ones, 1.0, -1.0)
    p = build(rng.integers(0, 9, (n, 2)), y, (9, 9), 2, likelihood)
    sorted_y = p.entries.y.ravel()[:n]
    monkeypatch.setattr(holdout, "MOST_HELD", 400)
    for many, piece in ((n + 1, 1 << 20), (n, 1 << 20), (n, 608)):
        monkeypatch.setattr(holdout, "MANY", many)
        monkeypatch.setattr(memmap, "PIECE", piece)
        found[many, piece] = held_out_places(p)
    first, drawn, in_pieces = found.values()
    np.testing.assert_array_equal(drawn, in_pieces)
    assert len(np.unique(drawn)) == len(drawn) == len(first) > 390
    if likelihood == "logit":  # as many of either class
        np.testing.assert_array_equal(np.sort(sorted_y[drawn]), np.sort(sorted_y[first]))
    assert 0 <= drawn.min() <= drawn.max() < n
    counts = np.histogram(drawn, 5, (0, n))[0]
    assert ((counts - len(drawn) / 5) ** 2 / (len(drawn) / 5)).sum() < 30.0  # a chi-square of 4 degrees of freedom


def test_entries_left_out_of_few_are_the_first_of_all_in_any_order(rng):
    n = 3000
    p = build(rng.integers(0, 9, (n, 2)), rng.standard_normal(n), (9, 9), 2, "gaussian")
    order = generator(p.seed, RandomStream.HELD_OUT).permutation(n)
    np.testing.assert_array_equal(held_out_places(p), order[: n // 10])
