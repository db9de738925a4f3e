"""Chains that go ahead of pilots: where they are asked, in which columns they go on, and what becomes of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from tensorcep import CPClassifier, CPRegressor, PGGibbs
from tensorcep.core.loop import run
from tensorcep.cp import ahead, fleet, pilots
from tensorcep.cp.estimators.plan import plan_fit
from tensorcep.cp.gibbs.held_out import held_places
from tensorcep.cp.starts import run_plan

SHAPE, N, SWEEPS = (30, 20, 15), 2500, 120


@pytest.fixture(autouse=True)
def many(monkeypatch):
    for module in (ahead, fleet, pilots):
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
    return plan_fit(cls(**given), (coords, y, SHAPE, ()), None).work


def names_of_pilots(monkeypatch):
    flown = []

    def watched(pilot, *given):
        flown.append(pilot.name)
        return grown(pilot, *given)

    grown = fleet.grown
    monkeypatch.setattr(fleet, "grown", watched)
    return flown


def test_chains_of_pairs_go_on_alone_where_they_predict_better(rng, monkeypatch):
    plan, flown = plan_of(*labels(rng)), names_of_pilots(monkeypatch)
    scores = iter([-0.2, -0.1] * 3)  # of all columns, of pairs; pilots are below
    monkeypatch.setattr(ahead, "log_scores", lambda held, likelihood: np.full(len(held.y), next(scores)))
    found = ahead.chains_ahead(plan)
    of_pairs = np.flatnonzero(plan.problem.every_free.sum(axis=0) < 3)
    np.testing.assert_array_equal(found.sampled.columns, of_pairs)
    one, two = (run_plan(plan._replace(n_threads=n)) for n in (1, 2))
    assert flown == ["cp", "main"] * 2
    np.testing.assert_array_equal(one.posterior.rows, two.posterior.rows)
    np.testing.assert_array_equal(one.state.held.place, held_places(plan.problem))
    assert one.state.chains.factors.shape[2] == len(of_pairs)
    assert one.posterior.rank == plan.problem.rank
    assert one.n_iter == len(one.trace["seconds"]) == SWEEPS


def test_chains_of_all_columns_go_on_where_there_is_a_component(rng):
    plan = plan_of(*labels(rng, component=3.0))
    assert len(ahead.chains_ahead(plan).sampled.columns) == plan.problem.rank


def test_columns_that_were_asked_for_stay(rng):
    plan = plan_of(*labels(rng), interactions={"main": 1, "pair": 2, "cp": 3})
    assert len(ahead.chains_ahead(plan).sampled.columns) == plan.problem.rank


def test_chains_that_are_ahead_are_those_without_pilots(rng, monkeypatch):
    plan = plan_of(*labels(rng, component=3.0))
    monkeypatch.setattr(ahead, "log_scores", lambda held, likelihood: np.zeros(len(held.y)))
    alone = run(plan.method, plan.problem, plan.settings, **plan.how)
    found = run_plan(plan)
    assert not found.state.held.beside.any()
    np.testing.assert_array_equal(found.state.chains.factors, alone.state.chains.factors)
    for name in ("change", "train_score"):
        np.testing.assert_array_equal(found.trace[name], alone.trace[name])


def test_chains_that_are_behind_are_forgotten(rng, monkeypatch):
    plan, flown = plan_of(*labels(rng)), names_of_pilots(monkeypatch)
    monkeypatch.setattr(ahead, "log_scores", lambda held, likelihood: np.full(len(held.y), -9.0))
    found = run_plan(plan)
    assert flown == ["cp", "main", "all columns"]
    monkeypatch.setattr(ahead, "MANY", N + 1)
    np.testing.assert_array_equal(found.posterior.rows, run_plan(plan).posterior.rows)


@pytest.mark.parametrize(
    "given",
    [
        {"max_iter": 6 * ahead.WINDOW - 1},
        {"method": PGGibbs(weights="equal")},
        {"method": PGGibbs(n_chains=1)},
        {"cls": CPRegressor},
    ],
)
def test_chains_are_not_asked_where_little_would_be_known(rng, given):
    assert ahead.chains_ahead(plan_of(*labels(rng), **given)) is None


def test_a_run_that_is_stopped_ahead_has_all_columns(rng):
    plan = plan_of(*labels(rng))
    stopped = run_plan(plan._replace(callbacks=(lambda sweep, *_: sweep == 3,)))
    assert stopped.stopped
    assert stopped.n_iter == 3
    assert stopped.posterior.rank == plan.problem.rank
