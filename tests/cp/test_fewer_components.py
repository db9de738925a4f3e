"""Chains in half the components of their pilot, where these predict entries left out better."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import expit

from scripts.benchmarks.gauntlet import fits
from scripts.benchmarks.gauntlet.problems import GRID
from tensorcep import CPClassifier
from tensorcep.cp.fit import chains
from tensorcep.cp.fit.chains import Sampled
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.init.residual import strengths
from tensorcep.cp.simulate import simulate_cp

SHAPE = (30, 20, 10)


def labels(seed, n=2000):
    """Cells and labels of a CP tensor of three components."""
    sim = simulate_cp(SHAPE, 3, n, prior_mean=0.0, random_state=seed)
    ones = np.random.default_rng(seed).random(n) < expit(2.0 * sim.latent)
    return np.asarray(sim.tensor.coords), ones.astype(int)


def sampled_of(rank):
    """A plan of main effects and so many components, the later the stronger."""
    coords, y = labels(3)
    model = CPClassifier(rank=rank, interactions="main+cp", random_state=0)
    plan = plan_fit(model._spec(), (coords, y, SHAPE, ()), None)
    start = np.full((sum(SHAPE), plan.problem.rank), 0.1)
    components = np.flatnonzero(plan.problem.every_free.all(axis=0))
    start[:, components] = np.linspace(0.5, 1.5, rank)
    problem = plan.problem._replace(start=start)
    return Sampled(plan._replace(problem=problem), np.arange(plan.problem.rank)), components


def test_the_stronger_half_of_the_components_is_kept_and_all_main_effects():
    sampled, components = sampled_of(7)
    half = chains._halved(sampled)
    others = np.setdiff1d(sampled.columns, components)
    np.testing.assert_array_equal(half.columns, np.sort(np.append(others, components[-3:])))
    problem, whole = half.plan.problem, sampled.plan.problem
    assert problem.rank == len(others) + 3
    np.testing.assert_array_equal(problem.start, whole.start[:, half.columns])
    np.testing.assert_allclose(strengths(problem, problem.start), strengths(whole, whole.start)[half.columns])
    assert chains._halved(half) is None  # of three


@each(
    ("scores", "n_components", "tries"),
    [((-0.5, -0.6), 13, 1), ((-0.5, -0.4, -0.45), 6, 2), ((-0.5, -0.4, -0.3), 3, 2), ((-0.5, None), 13, 1)],
)
def test_components_are_halved_as_long_as_entries_left_out_gain(monkeypatch, scores, n_components, tries):
    def run(score):
        held = SimpleNamespace(alive=np.arange(2), score=np.full(9, score))
        return SimpleNamespace(stopped=False, state=SimpleNamespace(held=held))

    found = [None if score is None else run(score) for score in scores]
    asked = []
    monkeypatch.setattr(chains, "_burnt_in", lambda *given: (asked.append(given), found[len(asked)])[1])
    sampled, _ = sampled_of(13)
    last, begun = chains._in_few_enough(sampled, found[0], [], sampled.plan)
    assert last.plan.problem.every_free.all(axis=0).sum() == n_components
    assert len(asked) == tries
    assert begun is found[tries - 1 if n_components > 3 else tries]


@pytest.mark.slow
def test_labels_that_fill_their_rows_are_drawn_in_fewer_components_than_a_row_has_entries(monkeypatch):
    """Twenty components, one for each entry of a row, follow the noise of labels."""
    cell, scores, sizes = GRID["labels-per-row-100"], [], []
    for halved in (chains._halved, lambda sampled: None):
        monkeypatch.setattr(chains, "_halved", halved)
        for seed in (10, 11):
            problem = cell.make(seed)
            model = fits.fit(fits.default(cell, seed), cell, problem)
            scores.append(model.log_score(problem.coords, problem.y).mean())
            sizes.append(np.count_nonzero(np.abs(model.posterior_.rows).max(axis=(0, 1, 2))))
    assert np.mean(scores[:2]) > np.mean(scores[2:]) + 0.005
    assert max(sizes[:2]) < min(sizes[2:])
