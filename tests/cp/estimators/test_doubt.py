"""Latent intervals of Gaussian posteriors of few entries: as wide as entries left out tell, and means as they were."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import ndtri

import tensorcep as tc
from tensorcep.core.loop import LeftOut
from tensorcep.cp.calibration.null_model import MOST_DOUBT, ConstantLaw
from tensorcep.cp.fit.diagnostics import doubt_of
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.subsets import known_at, with_extents
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.simulate import simulate_cp
from tensorcep.likelihoods import get_likelihood
from tensorcep.methods import CEP, VMP

SHAPE = (10, 8, 6)
CELLS = np.indices(SHAPE).reshape(3, -1).T
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ESTIMATORS = {
    "gaussian": (tc.CPRegressor, {}),
    "probit": (tc.CPClassifier, {"link": "probit"}),
    "poisson": (tc.CPCountRegressor, {"likelihood": "poisson"}),
}


def simulated(likelihood, n, seed):
    noise = {"noise_precision": 4.0} if likelihood == "gaussian" else {}
    latent_sd = 0.5 if likelihood == "poisson" else 1.0
    return simulate_cp(SHAPE, 2, n, likelihood=likelihood, latent_sd=latent_sd, random_state=seed, **noise)


def fitted(likelihood, method, n, seed=0, **given):
    estimator, own = ESTIMATORS[likelihood]
    return estimator(2, method=method, random_state=0, **own, **given).fit(simulated(likelihood, n, seed).tensor)


def coverage(likelihood, method, n, seeds):
    """How often 90 % latent intervals of cells that were not observed hold the truth; without the doubt, and with it.

    Then the mean factor of variances.
    """
    found = []
    for seed in seeds:
        drawn, model = simulated(likelihood, n, seed), fitted(likelihood, method, n, seed)
        new = np.ones(SHAPE, dtype=bool)
        new[tuple(drawn.tensor.coords.T)] = False
        truth = drawn.intercept + np.einsum("ar,br,cr->abc", *drawn.factors)[new]
        mean, variance = model.predict_latent(np.argwhere(new))
        doubt = model.posterior_.components().doubt
        own = variance if doubt is None else variance - doubt[0]
        off = np.abs(truth - mean) / ndtri(0.95)
        found.append(
            [np.mean(off <= np.sqrt(own)), np.mean(off <= np.sqrt(variance)), model.diagnostics_.widened or 1.0]
        )
    return np.mean(found, axis=0)


@each(
    "likelihood, method",
    [
        ("gaussian", CEP(n_ensemble=1)),
        ("gaussian", CEP(n_ensemble=2)),
        ("probit", VMP()),
        ("poisson", VMP()),
    ],
)
def test_doubt_widens_latent_values_alone_and_comes_back_from_a_file(likelihood, method, tmp_path):
    model = fitted(likelihood, method, 80)
    doubt = model.posterior_.components().doubt
    assert doubt is not None
    assert np.ptp(doubt) == 0.0
    assert doubt[0] > 0.0
    assert model.diagnostics_.narrow
    assert model.diagnostics_.n_widened_by in (15, 16)
    assert (
        f"latent variances times {model.diagnostics_.widened:.2g}, by {model.diagnostics_.n_widened_by} entries"
        in str(model.diagnostics_)
    )
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    plain = tc.load(tmp_path / "model.npz")
    rows = plain._result.rows
    plain._set(plain._result.changed(rows=rows._replace(belief=rows.belief._replace(doubt=None))))
    for wide in (model, again):
        mean, variance = wide.predict_latent(CELLS)
        np.testing.assert_array_equal(mean, plain.predict_latent(CELLS)[0])
        np.testing.assert_array_equal(variance, plain.predict_latent(CELLS)[1] + doubt[0])
        for name in ("predict", "predict_proba", "decision_function", "mean_and_std"):
            if hasattr(wide, name):
                np.testing.assert_array_equal(getattr(wide, name)(CELLS), getattr(plain, name)(CELLS))
        np.testing.assert_array_equal(wide.sample_y(CELLS, 2, random_state=0), plain.sample_y(CELLS, 2, random_state=0))
    draws = model.sample_posterior(2000, CELLS, random_state=0).var(axis=0)
    assert np.mean(draws) == pytest.approx(np.mean(model.predict_latent(CELLS)[1]), rel=0.1)
    if likelihood == "probit":
        wide, own = (np.diff(one.predict_interval(CELLS), axis=1) for one in (model, plain))
        assert (wide > own).all()


@each("name", ["gaussian", "probit"])
def test_who_predicts_entries_left_out_is_believed_and_who_does_not_is_doubted(name):
    rng, n = np.random.default_rng(0), 200
    y, noise = rng.standard_normal(len(CELLS)), None if name == "probit" else 0.5
    prior = None if noise is None else GammaNoise(1.0, 1.0)
    entries = pack_entries(CELLS, y, SHAPE)
    problem: Any = Problem(entries, SHAPE, 1, get_likelihood(name), None, None, prior)  # type: ignore[arg-type]
    said = entries.y.ravel()[:n] + 0.1 * rng.standard_normal(n)
    told = LeftOut(np.arange(n), np.zeros(n), np.zeros(n), said, np.full(n, 0.1))
    law, nothing = ConstantLaw(0.0, 0.8), np.full(n, -1.0)
    found, unsure, lost = (doubt_of(told, (nothing + x, nothing), law, problem, noise) for x in (2.0, 0.0, -2.0))
    most = 1.0 + np.mean(said**2) - 0.1 if noise is None else MOST_DOUBT * noise**2  # a chance may be any
    assert found == pytest.approx(0.0, abs=0.02)
    assert lost == pytest.approx(most, rel=1e-4)
    assert found < unsure <= most
    if noise is not None:  # signs of what is next to nothing do not tell that anything was found
        assert doubt_of(told._replace(mean=1e-6 * said), (nothing, nothing), law, problem, noise) > 0.5 * most
        assert doubt_of(told._replace(mean=-said), (nothing + 2.0, nothing), law, problem, noise) == pytest.approx(most)


def test_counts_tell_how_far_their_rates_lie_about_the_constant():
    rng, exposure = np.random.default_rng(0), np.repeat([0.5, 2.0], len(CELLS) // 2)
    nothing, told = np.full(20, -1.0), LeftOut(np.arange(20), np.zeros(20), np.zeros(20), np.zeros(20), np.zeros(20))
    for mean, sd in itertools.product((4.0, 1e4), (0.05, 0.5, 1.0)):
        rate = np.exp(sd * rng.standard_normal(len(CELLS)) - 0.5 * sd**2)
        entries = pack_entries(CELLS, rng.poisson(mean * exposure * rate).astype(float), SHAPE)
        poisson = get_likelihood("poisson")
        entries = with_extents(entries, poisson, exposure)
        problem: Any = Problem(entries, SHAPE, 1, poisson, None, None, None)  # type: ignore[arg-type]
        told = told._replace(mean=np.log(mean) + known_at(problem, told.place))
        found = doubt_of(told, (nothing - 5.0, nothing), ConstantLaw(np.log(mean), 1.0), problem, None)
        assert found == pytest.approx(sd**2 + 0.25 * sd**4, rel=0.2, abs=0.01)


def test_few_values_by_cep_have_latent_intervals_that_hold_what_they_say():
    before, after, factor = coverage("gaussian", CEP(n_ensemble=1, n_starts=1), 60, range(4))
    assert before < 0.7
    assert after >= 0.8
    assert factor > 4.0


def test_what_is_known_is_not_widened():
    tensor = simulate_cp(SHAPE, 1, 400, noise_precision=100.0, prior_mean=1.0, random_state=0).tensor
    for method in ("vmp", "cep"):
        model = tc.CPRegressor(1, method=method, interactions="cp", random_state=0).fit(tensor)
        assert not model.diagnostics_.narrow
        assert model.diagnostics_.widened is None
        assert model.posterior_.components().doubt is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* entries touch rows without training entries")
@each("likelihood, method, n", [(name, "cep", n) for name in ESTIMATORS for n in (60, 200)])
def test_latent_intervals_of_thirty_data_sets_hold_the_truth(likelihood, method, n):
    before, after, _ = coverage(likelihood, method, n, range(30))
    assert before < 0.85 <= after
