"""Named engines go on from what a pilot has found, in columns that the data show, as long as that is no loss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import problem
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CEP, CPClassifier, CPRegressor
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.loop import LeftOut
from tensorcep.core.packing import offsets
from tensorcep.cp.fit import run
from tensorcep.cp.fit.run import balanced
from tensorcep.cp.fit.select import narrower
from tensorcep.cp.fit.validation import falls_short
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.init.residual import used_columns
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan.auto import choose
from tensorcep.cp.plan.plan import Engine

SHAPE = (60, 40, 30)


def drawn(seed, n, rank, shape=SHAPE):
    """Cells in random order, and latent values of variance one, of zero-mean components."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(int(np.prod(shape)), n, replace=False)
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    factors = [rng.standard_normal((size, rank)) for size in shape]
    f = np.prod([factor[at] for factor, at in zip(factors, coords.T, strict=True)], axis=0).sum(axis=1)
    return coords, f / f.std(), rng


def rare_labels(seed, n):
    """Labels of which some 6 % are ones."""
    coords, f, rng = drawn(seed, n, 2)
    return coords, (rng.random(n) < 1.0 / (1.0 + np.exp(4.0 - 2.0 * f))).astype(float)


def log_loss(y, p):
    return float(-np.mean(np.log(np.where(y > 0.0, p, 1.0 - p))))


def test_laplace_does_not_follow_the_noise_of_rare_labels_without_a_word():
    """In 20 components, until it converged, its log loss was a third worse than a constant's."""
    coords, y = rare_labels(1, 7000)
    with pytest.warns(ConvergenceWarning, match="held"):
        model = CPClassifier(method="laplace", random_state=0).fit(coords[:4000], y[:4000])
    assert model.rank_ < 8
    assert model.diagnostics_.n_held_out > 0
    share = np.full(3000, y[:4000].mean())
    assert log_loss(y[4000:], model.predict_proba(coords[4000:])[:, 1]) < 1.05 * log_loss(y[4000:], share)


@each("kind", [CPRegressor, CPClassifier])
def test_a_point_estimate_that_follows_the_noise_of_few_entries_says_so(kind):
    """Labels of which it is nearly sure, at twice a constant's log loss, had no word."""
    coords, f, rng = drawn(1, 2400, 4, (100, 80, 60))
    y = f + 0.5 * rng.standard_normal(len(f))
    y = (y > 0.0).astype(float) if kind is CPClassifier else y
    with pytest.warns(ConvergenceWarning, match="nothing but the mean was found: wopt predicts entries that were held"):
        model = kind(method="wopt", random_state=0).fit(coords[:1600], y[:1600])
    found = model.diagnostics_
    assert found.n_held_out > 150
    assert found.score < found.constant_score + THRESHOLDS.least_difference


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mean_field_of_few_entries_goes_on_from_what_predicts_others(monkeypatch):
    """The start that fitted best followed the noise: 1.14-1.24 times as far from new values as their mean is."""
    shape = (100, 80, 60)
    ratios = []
    for seed in (2, 4):
        coords, f, rng = drawn(seed, 4000, 4, shape)
        y = f + 0.1 * rng.standard_normal(len(f))
        model = CPRegressor(method="vmp", random_state=0).fit(coords[:1600], y[:1600])
        assert model.diagnostics_.n_held_out == 160
        error = model.predict(coords[1600:]) - y[1600:]
        ratios.append(np.sqrt(np.mean(error**2) / np.mean((y[1600:] - y[:1600].mean()) ** 2)))
    assert max(ratios) < 1.08
    many = drawn(2, 20_000, 4)
    asked = []
    monkeypatch.setattr(run, "tried", lambda plan, quick: asked.append(plan) or (plan, None))
    CPRegressor(method="vmp", random_state=0, max_iter=60, tol=0.1).fit(*many[:2])
    assert not asked  # so many entries tell enough by themselves


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["laplace", CEP(n_ensemble=1)])
def test_a_fit_goes_on_from_its_pilot_alone(monkeypatch, method):
    """The start that fits best after annealing may be one that follows the noise."""
    begun, run_loop = [], run.run

    def watched(method, problem, *settings, **how):
        begun.extend([] if "state" in how or "kept" in how else [problem.start])  # of no quick fit
        return run_loop(method, problem, *settings, **how)

    monkeypatch.setattr(run, "run", watched)
    found, search = [], run.run_quick_fit
    monkeypatch.setattr(run, "run_quick_fit", lambda *how, **named: found.append(search(*how, **named)) or found[-1])
    coords, y = rare_labels(1, 2000)
    how = {"interactions": "main+cp", "random_state": 0, "max_iter": 40, "tol": 0.5}
    CPClassifier(2, method=method, **how).fit(coords, y)
    assert len(begun) == 1
    at = coords + np.cumsum((0, *SHAPE[:2]))
    kept = np.arange(found[0].belief.mean.shape[-1])
    if method == "laplace":
        kept = used_columns(found[0].quick.problem, found[0].belief.mean[0])
    latent = [np.prod(rows[at][..., kept], axis=1).sum(axis=1) for rows in (begun[0], found[0].belief.mean[0])]
    # messages begin at components of the same size in all modes
    np.testing.assert_allclose(*latent, rtol=1e-10, atol=1e-12)
    assert not np.delete(begun[0], kept, axis=1).any()


@pytest.mark.filterwarnings("ignore:laplace loses some")
def test_methods_that_more_columns_harm_have_those_that_a_pilot_uses_and_some_more():
    coords, f, rng = drawn(0, 3000, 1)
    model = CPRegressor(method="laplace", random_state=0).fit(coords, f + 0.5 * rng.standard_normal(3000))
    assert model.rank_ == 4
    assert model.interactions_ == {"main": 1, "pair": 0, "cp": 4}


def test_fewer_components_are_chosen_where_nothing_is_said_alone():
    model = CPRegressor(method="laplace")
    chosen = choose(model._spec(), 6000, SHAPE, False)
    assert [one.rank for one in narrower(model, chosen, 3)] == [6, 5, 4, 3]
    assert [one.rank for one in narrower(model, chosen, 0)] == [3]
    assert next(narrower(model, chosen, 40)) == chosen
    for given in ({"rank": 20}, {"interactions": "all"}, {"method": "vmp"}):
        model = CPRegressor(**{"method": "laplace", **given})
        chosen = choose(model._spec(), 6000, SHAPE, False)
        assert list(narrower(model, chosen, 3)) == [chosen]


def test_what_is_lost_is_said_where_it_is_beyond_chance(rng):
    quick = rng.standard_normal(400)
    assert falls_short(quick - 0.1 + 0.1 * rng.standard_normal(400), quick)
    assert not falls_short(quick - 0.005, quick)  # matters little
    assert not falls_short(quick + 0.1, quick)
    assert not falls_short(quick + rng.standard_normal(400), quick)
    told = LeftOut(np.arange(400), quick - 0.1, quick, np.zeros(400), np.zeros(400))
    assert falls_short(told.score, told.quick)
    found = Diagnostics("laplace", 9, True, {}, score=-1.0, constant_score=-2.0, gain_error=0.1, n_held_out=400)
    assert found.complaints(200) == []
    (said,) = found._replace(quick_score=-0.7).complaints(200)
    assert "loses some of what a quick mean-field fit finds" in said


def test_a_method_goes_on_from_the_components_that_a_pilot_uses_of_one_size_in_all_modes(rng):
    free = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1]], dtype=bool)
    p = problem(rng, 3, 4, 45)[2]._replace(free=free)
    first = offsets(p.shape)
    rows = rng.standard_normal((sum(p.shape), 4))
    rows[:, 2] *= 0.1  # a thousandth of the others
    scaled = rows.copy()
    scaled[: first[1], 0] *= 50.0
    scaled[first[1] : first[2], 0] /= 40.0
    whole, start = (balanced(scaled, p, Engine(METHODS[name], None)) for name in ("cep", "laplace"))
    assert not start[:, 2].any()
    assert whole[:, 2].all()
    np.testing.assert_array_equal(whole[:, [0, 1, 3]], start[:, [0, 1, 3]])
    np.testing.assert_array_equal(start[: first[1], 1], scaled[: first[1], 1])  # a main effect
    modes = [start[a:b] for a, b in itertools.pairwise(first)]
    sizes = np.array([(mode[:, [0, 3]] ** 2).mean(axis=0) for mode in modes])
    np.testing.assert_allclose(sizes, np.broadcast_to(sizes[0], sizes.shape), rtol=1e-9)
    products = [np.prod([part[a, [0, 3]] for a in first[:-1]], axis=0) for part in (start, scaled)]
    np.testing.assert_allclose(*products, rtol=1e-9)
