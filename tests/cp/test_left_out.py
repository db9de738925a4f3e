"""A choice between problems by entries left out: which one is taken, and how many fits that takes."""

from __future__ import annotations

import numpy as np
from helpers.cases import each
from helpers.problems import problem

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.cp.fit import select
from tensorcep.cp.fit.select import FITS, best_problem, far_behind, far_off
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan.plan import Engine
from tensorcep.cp.settings import SETTINGS

N, SHAPE = 200, (12, 10, 8)
FOLDS = THRESHOLDS.folds
VMP = Engine(METHODS["vmp"], SETTINGS["vmp"]().set_params(anneal=0))


def chosen(rng, monkeypatch, gains, spread):
    """The choice between problems whose scores lie so far above the first one's, and the fits of each problem."""
    monkeypatch.setattr(select, "SWEEPS", 1)
    problems, fits = [problem(rng, n=N, shape=SHAPE)[-1] for _ in gains], [0] * len(gains)
    hard = rng.standard_normal(N)

    def scored(_, of, place):
        i = next(i for i, one in enumerate(problems) if one.entries is of.entries)
        fits[i] += 1
        return hard[: len(place)] + gains[i] + spread * rng.standard_normal(len(place)), np.ones(len(place))

    monkeypatch.setattr(select, "_judged", scored)
    return best_problem(problems, VMP, tol=0.0, n_threads=1), fits


@each(
    ("gains", "spread", "best", "fits"),
    [
        ((0.0, 1.0, -1.0), 0.1, 1, [FITS] * 3),  # one is far ahead of all
        ((0.0, 0.0, -1.0), 0.1, 0, [FOLDS, FOLDS, FITS]),  # two are not told apart: the first
        ((0.0, 2.0, 2.2), 0.5, 2, [FITS, FOLDS, FOLDS]),  # that the first is out decides nothing between others
        ((0.0, -np.inf), 0.1, 0, [FITS] * 2),
        ((0.0, 0.02), 1.0, 0, [FOLDS] * 2),
    ],
)
def test_problems_far_behind_are_not_fitted_again(rng, monkeypatch, gains, spread, best, fits):
    assert chosen(rng, monkeypatch, gains, spread) == (best, fits)


def test_far_behind_is_told_from_noise_of_the_difference_not_of_the_scores(rng):
    hard = 5.0 * rng.standard_normal(400)
    near, far = hard - 0.01 + 0.1 * rng.standard_normal(400), hard - 0.05 + 0.1 * rng.standard_normal(400)
    np.testing.assert_array_equal(far_behind(np.stack([hard, near, far])), [False, False, True])


def test_far_off_is_what_is_so_in_more_than_one_part():
    squares = np.array([[4.0, 6.0], [9.0, 14.0], [160.0, 0.4], [5.0, 90.0], [np.inf, np.inf]])
    np.testing.assert_array_equal(far_off(squares), [False, True, False, True, True])
    np.testing.assert_array_equal(far_off(squares[::-1]), [False] * 5)  # nothing is farther off than what is lost


@each("n_folds", [1, 5])
def test_a_problem_whose_means_are_far_off_is_not_taken_whatever_it_scores(rng, monkeypatch, n_folds):
    monkeypatch.setattr(select, "ENOUGH", n_folds * N // FOLDS)
    problems = [problem(rng, n=N, shape=SHAPE)[-1] for _ in range(2)]
    first = problems[0].entries
    for off, best in [(1.0, 1), (3.0, 0)]:

        def judged(_, of, place, off=off):
            return np.tile([[0.0], [1.0]] if of.entries is first else [[1.0], [off]], len(place))

        monkeypatch.setattr(select, "_judged", judged)
        assert best_problem(problems, VMP, tol=0.0, n_threads=1) == best


def test_few_entries_choose_the_first_without_a_fit(rng, monkeypatch):
    monkeypatch.setattr(select, "_judged", None)
    problems = [problem(rng, n=40, shape=SHAPE)[-1] for _ in range(2)]
    assert best_problem(problems, VMP, tol=0.0, n_threads=1) == 0
