"""Pilots of samplers: which fly, what becomes of one that fails, and chains in the columns that the best one uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import expit
from scipy.stats import norm

from tensorcep import CPClassifier, CPRegressor, Gibbs
from tensorcep.cp.calibration.holdout import Beside, held_out_places
from tensorcep.cp.fit import chains, validation
from tensorcep.cp.fit import run as policies
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.init.residual import shown, strengths
from tensorcep.cp.model import subsets as sampled
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.simulate import simulate_cp
from tensorcep.likelihoods import get_likelihood

SHAPE = (30, 20, 15)


def entries(rng, pairs=False, n=1500):
    """Cells, and values of a CP component, or of main effects and one pair of modes, with noise."""
    sim = simulate_cp(SHAPE, 2, n, prior_mean=0.0, noise_precision=25.0, random_state=3)
    coords, f = np.asarray(sim.tensor.coords), sim.latent
    if pairs:
        rows = [rng.standard_normal(n) for n in SHAPE]
        f = rows[0][coords[:, 0]] + rows[1][coords[:, 1]] * rng.standard_normal(15)[coords[:, 2]]
    return coords, f + 0.2 * rng.standard_normal(len(f))


def plan_of(coords, y, sweeps=24, **given):
    model = CPRegressor(method=given.pop("method", "auto"), max_iter=sweeps, rank=3, random_state=0, **given)
    return plan_fit(model._spec(), (coords, y, SHAPE, ()), None)


def run(plan):
    return plan.policy.run(plan)


def failing(quick):
    def step(*given):
        raise FloatingPointError

    return quick._replace(engine=quick.engine._replace(method=replace(quick.engine.method, step=step)))


def test_a_pilot_that_fails_counts_nothing_and_the_others_go_on(rng):
    plan = plan_of(*entries(rng))
    assert [quick.name for quick in plan.policy.quick_fits] == ["all columns", "cp", "main"]
    first, *others = plan.policy.quick_fits
    held = run(plan.with_policy(quick_fits=(failing(first), *others))).state.held
    assert held.beside[0] == 0.0
    assert len(held.beside) == 3
    assert held.beside.sum() + held.weights.sum() == pytest.approx(1.0)


def test_without_any_pilot_left_the_run_is_the_plain_one(rng):
    plan = plan_of(*entries(rng))
    without = plan.with_policy(quick_fits=tuple(map(failing, plan.policy.quick_fits)))
    alone = run(plan.with_policy(quick_fits=())).posterior
    np.testing.assert_array_equal(run(without).posterior.rows, alone.rows)


@each("first", [True, False])
def test_chains_that_leave_the_range_of_numbers_are_no_alternative(rng, monkeypatch, first):
    """They ended the fit: a count of 90 among ones and zeros drove those in the components of a pilot away."""
    plan, burn_in, tried = plan_of(*entries(rng)), chains.run, []

    def wild(method, problem, *more, **named):
        tried.append(problem.rank)
        if len(tried) > 1 or first:
            raise np.linalg.LinAlgError("the scatter of the rows is not positive definite")
        return burn_in(method, problem, *more, **named)

    monkeypatch.setattr(chains, "run", wild)
    found = run(plan)
    assert np.isfinite(found.posterior.rows).all()
    if first:
        alone = run(plan.with_policy(quick_fits=())).posterior
        np.testing.assert_array_equal(found.posterior.rows, alone.rows)
    else:
        assert len(tried) > 1
        assert found.state.held.weights is not None


@each(
    ("gains", "sweeps", "best"),
    [
        ([0.1, 0.2, 0.15, 0.19, 9.0], 12, 6),  # twice in vain: it ends, and what came before is kept
        ([0.1, 0.05, 0.2, 0.2005, 0.2009], 15, 15),  # too little is in vain, too, but the best is kept
        ([np.nan, 0.1, np.nan, 0.2, 0.3, 0.31, 0.32, 0.33], 23, 23),
    ],
)
def test_a_pilot_ends_where_the_entries_left_out_gain_no_more(rng, monkeypatch, gains, sweeps, best):
    plan = plan_of(*entries(rng))
    pilot, place = plan.policy.quick_fits[1], held_out_places(plan.problem)
    anneal = pilot.engine.settings.get_params()["anneal"]
    seen = []

    def scored(belief, problem, where, executor):
        gain = gains[min(len(seen), len(gains) - 1)]
        seen.append(belief)
        return Beside(np.full(len(where), gain), np.zeros(len(where)), np.zeros(len(where)), 1.0)

    monkeypatch.setattr(validation, "scores_of", scored)
    monkeypatch.setattr(policies, "QUICK_SWEEPS", 23)
    found = policies.run_quick_fit(pilot, plan.with_options(tol=0.0), 0, place)
    which = len(seen) - 1 if best == 23 else best // validation.ASK_EVERY - 1
    assert len(seen) == -(-sweeps // validation.ASK_EVERY)
    assert found.sweeps == best
    assert anneal > 0
    np.testing.assert_array_equal(found.belief.mean, seen[which].mean)


def test_without_entries_left_out_a_pilot_takes_all_its_sweeps(rng, monkeypatch):
    plan = plan_of(*entries(rng))
    monkeypatch.setattr(policies, "QUICK_SWEEPS", 7)
    for place in (None, np.empty(0, dtype=int)):
        found = policies.run_quick_fit(plan.policy.quick_fits[1], plan.with_options(tol=0.0), 0, place)
        assert found.sweeps == 7
        assert found.scores is None


@each(("bounds", "best"), [([0.0, 1.0, 0.5, 2.0], 1), ([0.0, 1.0, 2.0, 2.0], 3), ([3.0, 2.9], 0)])
def test_a_search_without_entries_left_out_ends_where_the_bound_gains_nothing(rng, monkeypatch, bounds, best):
    plan, flown = plan_of(*entries(rng)), []

    def bounded(*given):
        done = run_engine(*given)
        flown.append(done)
        return done._replace(trace={**done.trace, "lower_bound": np.array([np.nan, bounds[len(flown) - 1]])})

    run_engine = policies.run_engine
    monkeypatch.setattr(policies, "run_engine", bounded)
    monkeypatch.setattr(policies, "with_more_components", lambda problem, *_: problem)
    found = policies.run_quick_fit(plan.policy.quick_fits[1], plan, rounds=3)
    assert len(flown) == min(best + 2, 4)
    assert found.score == bounds[best]
    np.testing.assert_array_equal(found.belief.mean, flown[best].posterior.components().mean)


def test_a_pilot_of_very_many_entries_flies_on_some_of_them_first(rng, monkeypatch):
    plan = plan_of(*entries(rng, n=6000))
    pilot, place, runs = plan.policy.quick_fits[1], held_out_places(plan.problem), []

    def watched(engine, problem, *given):
        runs.append((len(problem.entries.permutation), run_engine(engine, problem, *given)))
        return runs[-1][1]

    run_engine = policies.run_engine
    monkeypatch.setattr(policies, "run_engine", watched)
    whole = policies.run_quick_fit(pilot, plan, place=place)
    assert {n for n, _ in runs} == {6000}
    runs.clear()
    monkeypatch.setattr(sampled, "ENOUGH", 2000)
    found = policies.run_quick_fit(pilot, plan, place=place)
    assert 1800 < runs[0][0] < 2200
    assert [n for n, _ in runs if n > 2200] == [6000]
    assert runs[-1][1].n_iter <= policies.SWEEPS_OF_ALL
    assert found.scores.log_density.mean() > whole.scores.log_density.mean() - 0.01


@each(
    ("likelihood", "values", "share"),
    [("gaussian", (-1.0, 2.0), 1.0), ("logit", (1.0,) * 9 + (-1.0,), 0.36), ("poisson", (0.0, 0.0, 0.0, 1.0), 0.25)],
)
def test_enough_entries_are_more_where_each_says_less(rng, monkeypatch, likelihood, values, share):
    plan = plan_of(*entries(rng, n=6000))
    y = plan.problem.entries.y
    packed = plan.problem.entries._replace(y=np.resize(values, y.shape))
    problem = plan.problem._replace(entries=packed, likelihood=get_likelihood(likelihood))
    monkeypatch.setattr(sampled, "ENOUGH_OF_ROW", 3000 * share / 2 / sum(SHAPE))
    monkeypatch.setattr(sampled, "ENOUGH", 0)
    few = sampled.enough_entries(problem)
    assert len(few.entries.permutation) == pytest.approx(1500, abs=150)
    monkeypatch.setattr(sampled, "ENOUGH", int(3100 * share))
    assert sampled.enough_entries(problem) is None


def test_without_stacking_one_pilot_flies(rng):
    plan = plan_of(*entries(rng), method=Gibbs(weights="equal"))
    assert [quick.name for quick in plan.policy.quick_fits] == ["all columns"]


def test_many_entries_are_sampled_in_the_columns_that_the_best_pilot_uses(rng, monkeypatch):
    coords, y = entries(rng)
    monkeypatch.setattr(chains, "MANY", 0)
    monkeypatch.setattr(policies, "MANY", 0)
    plan = plan_of(coords, y)
    one, two = (run(plan.with_options(n_threads=n)) for n in (1, 2))
    np.testing.assert_array_equal(one.posterior.rows, two.posterior.rows)
    np.testing.assert_array_equal(one.state.held.place, held_out_places(plan.problem))
    assert one.state.held.beside[0] == 0.0  # no pair of modes is left over
    assert one.state.rows.shape[2] <= 3  # of the CP component alone
    assert one.posterior.rank == plan.problem.rank
    first, clamped = plan.problem.entries.offsets, ~plan.problem.free
    for k in range(3):
        rows = one.posterior.rows[0, :, first[k] : first[k + 1]]
        assert (rows[..., clamped[k]] == 1.0).all()
    f = one.posterior.rows[0][:, coords + first[:-1]].prod(axis=2).sum(axis=2).mean(axis=0)
    assert np.sqrt(np.mean((y - f) ** 2)) < 0.25


@pytest.mark.slow
def test_chains_in_the_columns_of_a_pilot_are_beside_it_where_chains_of_all_columns_fail():
    inside, counted = [], []
    for seed in (3, 5):  # of which a pilot was all that counted
        sim = simulate_cp((25, 20, 12), 4, 1800, likelihood="logit", random_state=seed)
        model = CPClassifier(4, method="pg-gibbs", random_state=0).fit(sim.tensor)
        cells = np.stack(np.unravel_index(np.arange(6000), (25, 20, 12)), axis=1)
        truth = np.prod([rows[cells[:, k]] for k, rows in enumerate(sim.factors)], axis=0).sum(axis=1)
        mean, variance = model.predict_latent(cells)
        inside.append(float(np.mean(np.abs(truth - mean) < norm.ppf(0.95) * np.sqrt(variance))))
        chains = [weight for name, weight in model.diagnostics_.weights.items() if name.startswith("chain")]
        counted.append(sum(chains))
    assert min(counted) > 0.3
    assert np.mean(inside) > 0.74  # 0.79; 0.68 by the pilot


def test_the_pilot_of_all_columns_flies_where_pairs_of_modes_are_left_over(rng, monkeypatch):
    coords, y = entries(rng, pairs=True)
    monkeypatch.setattr(policies, "MANY", 0)
    plan = plan_of(coords, y)
    flown = policies.run_quick_fits(plan, held_out_places(plan.problem))
    assert sorted(one.number for one in flown) == [0, 1, 2]


def test_what_rows_leave_over_is_seen_in_main_effects(rng):
    coords, y = entries(rng)
    problem = plan_of(coords, y).problem
    zeros, mains = np.zeros((sum(SHAPE), problem.rank)), np.eye(3, dtype=bool)
    assert not strengths(problem, zeros).any()
    noise = problem._replace(entries=problem.entries._replace(y=rng.standard_normal(problem.entries.y.shape)))
    assert shown(noise, mains, zeros) == 0.0
    rows = problem.entries.rows[:, 0]
    shifted = noise.entries._replace(y=noise.entries.y + rng.standard_normal(sum(SHAPE))[rows])
    for rows_of_start in (zeros, None):
        assert 0.3 < shown(noise._replace(entries=shifted), mains, rows_of_start) < 0.6


def test_pilots_look_at_spectra_and_entries_left_out_with_the_threads_of_the_plan(rng, monkeypatch):
    threads = []

    def watched(function, place):
        def call(*given, **named):
            threads.append(named["executor"].n if place is None else given[place].n)
            return function(*given, **named)

        return call

    monkeypatch.setattr(policies, "with_spectral_start", watched(policies.with_spectral_start, None))
    monkeypatch.setattr(policies, "with_more_components", watched(policies.with_more_components, 3))
    monkeypatch.setattr(validation, "observed_logpdf", watched(validation.observed_logpdf, 4))
    plan = plan_of(*entries(rng))
    place = held_out_places(plan.problem)
    policies.run_quick_fit(plan.policy.quick_fits[1], plan.with_options(n_threads=2), place=place)
    assert len(threads) > 3
    assert set(threads) == {2}


def drawn(model):
    """Which columns the draws of a model have something in, and which of them are components."""
    rows, free = model.posterior_.rows, free_columns(model.interactions_, len(model.shape_))
    clamped = ~free.repeat(model.shape_, axis=0)
    return np.abs(rows - clamped).max(axis=(0, 1, 2)) > 0.0, free.all(axis=0)


def labels_of(rng, f):
    return (rng.random(len(f)) < expit(f)).astype(int)


def test_few_labels_of_a_cp_tensor_are_drawn_in_components_alone(rng):
    sim = simulate_cp((30, 20, 10), 3, 2000, prior_mean=0.0, random_state=3)
    coords = np.asarray(sim.tensor.coords)
    model = CPClassifier(random_state=0, max_iter=150).fit(coords, labels_of(rng, 2.0 * sim.latent))
    found, components = drawn(model)
    assert found.any()
    assert not found[~components].any()


def test_chains_of_all_columns_go_on_where_pairs_of_modes_say_more(rng):
    coords, f = entries(rng, pairs=True)
    model = CPRegressor(random_state=0, max_iter=150).fit(coords, f)
    found, components = drawn(model)
    assert found[~components].all()


@each(("gain", "kept"), [(0.5, False), (0.01, True), (-0.5, True)])
def test_columns_have_to_be_better_beyond_chance(gain, kept):
    first, fewer = (type("Held", (), {"alive": np.arange(2), "score": s})() for s in (np.zeros(50), np.zeros(50)))
    first.score = gain + 0.5 * np.sin(np.arange(50.0))
    assert chains._replaces(fewer, first) is kept
    fewer.alive = np.arange(0)
    assert not chains._replaces(fewer, first)
