"""Chains that go ahead of pilots: where they are asked, in which columns they go on, and what becomes of them."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import expit
from sklearn.base import clone

from tensorcep import CPClassifier, CPRegressor, PGGibbs
from tensorcep.core.loop import run
from tensorcep.cp.fit import chains, warm_start
from tensorcep.cp.fit.run import run_plan
from tensorcep.cp.fit.select import paired_parts, plan_fit
from tensorcep.cp.gibbs.held_out import held_places
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.plan.auto import every_column

SHAPE, N, SWEEPS = (30, 20, 15), 2500, 120


@pytest.fixture(autouse=True)
def many(monkeypatch):
    for module in (chains, warm_start):
        monkeypatch.setattr(module, "MANY", 0)


def labels(rng, component=0.0):
    """Cells, and labels of a pair of modes and main effects, and of a CP component of this size."""
    coords = np.stack([rng.integers(0, n, N) for n in SHAPE], axis=1)
    rows = [rng.standard_normal((n, 3)) for n in SHAPE]
    a, b, c = (own[column] for own, column in zip(rows, coords.T, strict=True))
    f = a[:, 0] + 2.0 * b[:, 1] * c[:, 1] + component * a[:, 2] * b[:, 2] * c[:, 2]
    return coords, (rng.random(N) < expit(2.0 * f)).astype(float)


def plan_of(coords, y, cls=CPClassifier, **given):
    given = {"max_iter": SWEEPS, "rank": 3, "random_state": 0, **given}
    return plan_fit(cls(**given)._spec(), (coords, y, SHAPE, ()), None).work


def names_of_pilots(monkeypatch):
    flown = []

    def watched(pilot, *given):
        flown.append(pilot.name)
        return grown(pilot, *given)

    grown = warm_start.grown
    monkeypatch.setattr(warm_start, "grown", watched)
    return flown


def pairs_win(monkeypatch):
    """Chains that are asked later are a little ahead of those before, and all of pilots."""
    later = count()
    monkeypatch.setattr(chains, "log_scores", lambda held, likelihood: np.full(len(held.y), 1e-6 * next(later) - 0.1))


def ranks_asked(monkeypatch):
    asked = []

    def watched(method, problem, *given, **how):
        asked.append(problem.rank)
        return run(method, problem, *given, **how)

    monkeypatch.setattr(chains, "run", watched)
    return asked


def test_two_chains_of_pairs_go_on_alone_where_they_predict_better(rng, monkeypatch):
    plan, flown = plan_of(*labels(rng)), names_of_pilots(monkeypatch)
    pairs_win(monkeypatch)
    alone = plan.paired[0].plan.problem
    np.testing.assert_array_equal(alone.free, free_columns({"main": 1, "pair": 3, "cp": 0}, 3))
    one, two = (run_plan(plan._replace(n_threads=n)) for n in (1, 2))
    assert flown == ["cp", "main"] * 2
    np.testing.assert_array_equal(one.posterior.rows, two.posterior.rows)
    np.testing.assert_array_equal(one.state.held.place, held_places(plan.problem))
    assert one.stands_in == 1
    assert one.state.chains.factors.shape == (2, sum(SHAPE), alone.rank)
    assert one.state.held.weights.sum() == pytest.approx(1.0)
    assert one.n_iter == len(one.trace["seconds"]) == SWEEPS


@each(("given", "gain"), [({}, 1.0), ({"method": PGGibbs(n_chains=4)}, 0.0)])
def test_all_chains_of_pairs_begin_anew_where_two_are_not_enough_or_their_number_was_given(
    rng, monkeypatch, given, gain
):
    plan = plan_of(*labels(rng), **given)
    pairs_win(monkeypatch)
    monkeypatch.setattr(chains, "_gain_of_more", lambda held, likelihood: gain)
    found, own = run_plan(plan), plan.paired[0].plan
    alone = run(own.method, own.problem, own.settings, **own.how)
    assert found.stands_in == 1
    assert len(found.state.chains.factors) == 4
    np.testing.assert_array_equal(found.posterior.rows, alone.posterior.rows)


def test_a_fit_by_chains_of_pairs_says_so_and_can_be_gone_on_with(rng, monkeypatch):
    (coords, y), parts = labels(rng), {"main": 1, "pair": 3, "cp": 0}
    model = CPClassifier(rank=3, max_iter=SWEEPS, shape=SHAPE, random_state=0)
    with monkeypatch.context() as patch:
        pairs_win(patch)
        model.fit(coords, y)
    assert model.interactions_ == parts
    assert [len(column) for column in model.factors_] == list(SHAPE)
    assert set(model.diagnostics_.weights) == {"chain 0", "chain 1"}
    assert model.diagnostics_.n_chains == 2
    assert model.diagnostics_.r_hat > 0.9
    assert np.mean((model.predict_proba(coords)[:, 1] > 0.5) == y) > 0.7
    # as many columns in all as the plan has: which they are tells where the next fit begins
    again = clone(model).fit(coords, y)
    model.fit(coords, y, warm_start=True)
    assert model.interactions_ == parts
    assert again.posterior_.rank == model.posterior_.rank == 12


@each("shape", [(30, 20, 15), (30, 20, 4), (9, 8, 7, 6), (40, 50, 60, 70, 80)])
@each("rank", [3, 12, 20])
def test_pairs_alone_have_no_more_columns_than_all_parts(shape, rank):
    parts = every_column(rank, shape)
    whole, paired = free_columns(parts, len(shape)), paired_parts(parts, shape)
    for alone in (free_columns(one, len(shape)) for one in paired):
        assert alone.shape[1] <= whole.shape[1]
        assert alone.sum(axis=1).max() <= whole.sum(axis=1).max()
    assert paired[-1] == parts | {"cp": 0}
    assert parts["pair"] <= paired[0]["pair"] <= min(shape)


def test_chains_of_pairs_are_not_asked_where_components_say_something(rng, monkeypatch):
    plan, asked = plan_of(*labels(rng, component=4.0)), ranks_asked(monkeypatch)
    assert not chains.chains_ahead(plan).stands_in
    assert len(asked) == 1


def test_chains_of_pairs_are_not_asked_where_nothing_is_said(rng, monkeypatch):
    coords, y = labels(rng)
    plan, asked = plan_of(coords, rng.permutation(y)), ranks_asked(monkeypatch)
    assert not chains.chains_ahead(plan).stands_in
    assert len(asked) == 1


def test_the_first_of_the_chains_of_pairs_that_predict_better_goes_on(rng, monkeypatch):
    plan, asked = plan_of(*labels(rng)), ranks_asked(monkeypatch)
    scores = iter([-0.2, -0.3, -0.1, -0.2, -0.3, -0.2])
    monkeypatch.setattr(chains, "log_scores", lambda held, likelihood: np.full(len(held.y), next(scores)))
    monkeypatch.setattr(chains, "_gain_of_more", lambda held, likelihood: 0.0)
    assert [chains.chains_ahead(plan).stands_in for _ in range(2)] == [2, 0]
    assert asked == [plan.problem.rank, *(one.plan.problem.rank for one in plan.paired)] * 2


def test_columns_that_were_asked_for_stay(rng):
    assert plan_of(*labels(rng), interactions={"main": 1, "pair": 2, "cp": 3}).paired == ()


def test_matrices_and_few_labels_have_no_chains_of_pairs_to_ask(rng, monkeypatch):
    coords, y = labels(rng)
    model = CPClassifier(max_iter=SWEEPS, rank=3, random_state=0)
    assert plan_fit(model._spec(), (coords[:, :2], y, SHAPE[:2], ()), None).work.paired == ()
    monkeypatch.setattr(chains, "MANY", N + 1)
    assert plan_of(coords, y).paired == ()


def test_chains_that_are_ahead_are_those_without_pilots(rng, monkeypatch):
    plan = plan_of(*labels(rng, component=3.0))
    monkeypatch.setattr(chains, "log_scores", lambda held, likelihood: np.zeros(len(held.y)))
    alone = run(plan.method, plan.problem, plan.settings, **plan.how)
    found = run_plan(plan)
    assert not found.state.held.beside.any()
    np.testing.assert_array_equal(found.state.chains.factors, alone.state.chains.factors)
    for name in ("change", "train_score"):
        np.testing.assert_array_equal(found.trace[name], alone.trace[name])


def test_chains_that_are_behind_are_forgotten(rng, monkeypatch):
    plan, flown = plan_of(*labels(rng)), names_of_pilots(monkeypatch)
    monkeypatch.setattr(chains, "log_scores", lambda held, likelihood: np.full(len(held.y), -9.0))
    found = run_plan(plan)
    assert flown == ["cp", "main", "all columns"]
    monkeypatch.setattr(chains, "chains_ahead", lambda plan: None)
    np.testing.assert_array_equal(found.posterior.rows, run_plan(plan).posterior.rows)


@each(
    "given",
    [
        {"max_iter": 6 * chains.WINDOW - 1},
        {"method": PGGibbs(weights="equal")},
        {"method": PGGibbs(n_chains=1)},
        {"cls": CPRegressor},
    ],
)
def test_chains_are_not_asked_where_little_would_be_known(rng, given):
    assert chains.chains_ahead(plan_of(*labels(rng), **given)) is None


def test_a_run_that_is_stopped_ahead_has_all_columns(rng):
    plan = plan_of(*labels(rng))
    stopped = run_plan(plan._replace(callbacks=(lambda sweep, *_: sweep == 3,)))
    assert stopped.stopped
    assert stopped.n_iter == 3
    assert stopped.posterior.rank == plan.problem.rank
