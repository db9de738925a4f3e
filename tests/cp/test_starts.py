"""Where fits start, and which of several count: every engine named by hand finds what is there."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from helpers.cases import each
from sklearn.metrics import roc_auc_score

from tensorcep import CEP, VMP, CPClassifier, CPRegressor, Laplace, simulate_cp
from tensorcep.core.loop import Run
from tensorcep.cp import settings as passing
from tensorcep.cp.fit import run
from tensorcep.cp.fit.run import mixed
from tensorcep.cp.fit.validation import best_by_score
from tensorcep.cp.init.spectral import spectral_start
from tensorcep.cp.meanfield import method as meanfield
from tensorcep.cp.messages import engine as messages
from tensorcep.cp.plan.plan import REFIT_ANNEAL
from tensorcep.cp.posterior import Mixture


def factors(rng, shape, rank):
    """Factors whose products sum to latent values of variance one."""
    return [rng.standard_normal((n, rank)) * rank ** (-0.5 / len(shape)) for n in shape]


def drawn(seed, shape, rank, n, sd):
    """Cells, values with noise of this standard deviation, and latent values."""
    rng = np.random.default_rng(seed)
    coords = np.stack([rng.integers(0, size, n) for size in shape], axis=1)
    rows = [own[at] for own, at in zip(factors(rng, shape, rank), coords.T, strict=True)]
    f = np.prod(rows, axis=0).sum(axis=1)
    return coords, f + sd * rng.standard_normal(n), f


def run_of(score):
    return Run(None, 3, True, False, {"train_score": np.array([-9.0, score])}, score)


def test_runs_that_have_not_found_what_the_best_one_has_are_no_members():
    found = mixed([run_of(score) for score in (-1.2, -0.7, -0.9)], slack=0.3)
    assert found.state == -0.7
    assert found.n_iter == 9
    np.testing.assert_array_equal(found.trace["train_score"], [-9.0, -0.7, -9.0, -0.9, -9.0, -1.2])


def test_a_run_that_has_left_the_range_of_numbers_is_never_the_best():
    for scores in ((np.nan, -0.7), (-0.7, np.nan), (np.nan, -np.inf, -0.7)):
        found = mixed([run_of(score) for score in scores])
        assert found.state == -0.7
        assert found.posterior is None  # that of one run, no mixture


def test_a_choice_by_score_stays_with_the_first_unless_another_is_better_beyond_chance(rng):
    base = rng.standard_normal(400)
    worse, same, better = base - 1.0, base + 0.1 * rng.standard_normal(400), base + 0.1 + 0.1 * rng.standard_normal(400)
    assert best_by_score(np.stack([base, worse])) == 0
    assert best_by_score(np.stack([base, worse, better, same])) == 2
    assert best_by_score(np.stack([base, np.full(400, -np.inf), better])) == 2
    lucky = [best_by_score(np.stack([base, base + rng.standard_normal(400)])) for _ in range(300)]
    assert np.mean(lucky) < 0.06


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each(("method", "module", "name"), [(VMP, meanfield, "by_row_of"), (CEP, messages, "empty_sums")])
def test_random_starts_share_what_follows_from_the_entries_alone(monkeypatch, method, module, name):
    made, make = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given, **named: made.append(None) or make(*given, **named))
    coords, y, _ = drawn(0, (9, 8, 7), 2, 200, 0.5)
    how = {"method": method(n_starts=3, n_ensemble=1), "init": "random", "interactions": "cp"}
    CPRegressor(2, random_state=0, **how).fit(coords, y)
    assert len(made) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each("method", [CEP, Laplace])
@each("seed", range(4))
def test_starts_that_do_not_wait_lead_to_the_same_bits_in_half_the_memory(monkeypatch, method, seed):
    coords, y, _ = drawn(seed, (30, 20, 15), 2, 4000, 0.5)
    how = {"method": method(n_starts=3, anneal=3), "init": "random", "interactions": "cp", "max_iter": 6}
    beliefs, peaks, trials = [], [], []
    monkeypatch.setattr(run, "_trial", lambda *given, of=run._trial: trials.append(None) or of(*given))
    for many in (4001, 4000):
        monkeypatch.setattr(passing, "MANY_SENT", many)
        model = CPRegressor(4, prior="fixed", random_state=seed, **how)
        tracemalloc.start()
        beliefs.append(model.fit(coords, y)._result.belief)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    np.testing.assert_array_equal(beliefs[0].mean, beliefs[1].mean)
    np.testing.assert_array_equal(beliefs[0].cov, beliefs[1].cov)
    messages = 4000 * 3 * 14 * 8
    assert peaks[0] - peaks[1] > 0.8 * messages
    assert len(trials) in (6, 7)


@each("seed", [0, 2, 3])
def test_spectra_show_every_component_where_there_are_just_enough_columns(seed):
    coords, y, _ = drawn(seed, (500, 300, 200), 8, 100_000, 0.5)
    assert spectral_start(coords, y, (500, 300, 200), 8, seed=0).n_found >= 7


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vmp", "cep", "gibbs"])
def test_fits_with_just_enough_columns_find_all_components(method):
    """The noise has a standard deviation of 0.5, the latent values of 1; a component that is missing adds 0.1."""
    coords, y, _ = drawn(5, (500, 300, 200), 8, 110_000, 0.5)
    model = CPRegressor(8, method=method, random_state=0, n_jobs=2).fit(coords[:100_000], y[:100_000])
    assert np.sqrt(np.mean((model.predict(coords[100_000:]) - y[100_000:]) ** 2)) < 0.54


def test_poor_fits_from_random_starts_do_not_spoil_the_good_one():
    coords, y, _ = drawn(11, (60, 50, 40, 30), 4, 22_000, 0.5)
    model = CPRegressor(4, method="cep", interactions="cp", random_state=0).fit(coords[:20_000], y[:20_000])
    assert np.sqrt(np.mean((model.predict(coords[20_000:]) - y[20_000:]) ** 2)) < 0.54
    assert not isinstance(model.posterior_, Mixture)


@pytest.mark.slow
def test_cep_has_the_columns_that_labels_show():
    """Labels of a CP model and of pairs of modes; the first choice for labels is pairs."""
    rng, shape = np.random.default_rng(1), (60, 50, 40)
    coords, _, f = drawn(1, shape, 3, 33_000, 0.0)
    pair = [own[at] for own, at in zip(factors(rng, shape[:2], 2), coords.T[:2], strict=True)]
    for latent, parts in ((f, {"main": 1, "pair": 0, "cp": 3}), (np.prod(pair, axis=0).sum(axis=1), None)):
        y = (rng.random(len(latent)) < 1.0 / (1.0 + np.exp(-3.0 * latent))).astype(int)
        model = CPClassifier(3, method="cep", random_state=0).fit(coords[:30_000], y[:30_000])
        assert model.interactions_ == (parts or {"main": 1, "pair": 3, "cp": 0})
        best = roc_auc_score(y[30_000:], latent[30_000:])
        assert roc_auc_score(y[30_000:], model.predict_proba(coords[30_000:])[:, 1]) > best - 0.02


@pytest.mark.slow
def test_mean_field_keeps_what_its_pilot_has_found_of_labels():
    """Annealed sweeps with many spare columns lose it, and end at chance."""
    coords, _, f = drawn(33, (250, 150, 100), 6, 45_000, 0.0)
    y = (np.random.default_rng(3).random(len(f)) < 1.0 / (1.0 + np.exp(-2.0 * f))).astype(int)
    model = CPClassifier(20, method="pg-vb", random_state=0).fit(coords[:40_000], y[:40_000])
    assert roc_auc_score(y[40_000:], model.predict_proba(coords[40_000:])[:, 1]) > 0.7


def test_annealed_sweeps_that_the_user_asks_for_are_not_cut(rng):
    coords, y, _ = drawn(1, (20, 15, 10), 2, 600, 0.5)
    how = {"rank": 2, "prior": "learned", "random_state": 0}
    annealed = [
        int(np.isnan(CPRegressor(method=method, **how).fit(coords, y).trace_["lower_bound"]).sum())
        for method in (VMP(anneal=9), VMP())
    ]
    assert annealed == [9, REFIT_ANNEAL]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_starts_that_run_away_warn_of_nothing():
    # few labels for 16 components: undamped in effect, rows of one start leave the range of squares
    labels = simulate_cp((60, 40, 20), 8, 300, likelihood="logit", latent_sd=3.0, random_state=2).tensor
    model = CPClassifier(16, link="logit", method="cep", max_iter=60, random_state=2).fit(labels)
    assert np.isfinite(model.predict_proba(labels.coords)).all()
