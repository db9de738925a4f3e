"""Factors of a sampler's fit: aligned, made when asked for, of a size that can be read, and checked for agreement."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.data import fitted, new
from helpers.models import paper
from scipy.optimize import linear_sum_assignment

import tensorcep as tc
from tensorcep.cp.posterior import Draws

MADE = {"factors", "factor_covs", "aligned"}


@pytest.fixture(scope="module")
def planted():
    return tc.simulate_cp((20, 16, 12), 3, 2500, noise_precision=25.0, latent_sd=1.0, random_state=5)


@pytest.fixture(scope="module")
def sampled(planted):
    """Four chains, each from a start of its own."""
    few = {"n_chains": 4, "burn_in": 60, "thin": 2, "init": "random", "weights": "equal"}
    model = paper(tc.CPRegressor, 3, method="gibbs", prior="learned", max_iter=120, random_state=0, **few)
    return model.fit(planted.tensor)


def cosines(factors, others):
    """Product over the modes of the cosines of two sets of columns, (R, R)."""
    each = [
        (u / np.linalg.norm(u, axis=0)).T @ (v / np.linalg.norm(v, axis=0))
        for u, v in zip(factors, others, strict=True)
    ]
    return np.prod(each, axis=0)


def test_a_fit_and_its_predictions_make_no_factors(planted, sampled):
    model = pickle.loads(pickle.dumps(sampled))
    model._set(model._result.changed())
    model.predict(planted.tensor, return_std=True)
    model.chain_diagnostics(planted.tensor.coords[:5])
    assert not MADE & set(vars(model._result))
    assert model.factors_ is model.factors_
    assert "factor_covs" not in vars(model._result)
    assert MADE & set(vars(model.fit(planted.tensor)._result)) == set()
    assert not MADE & set(vars(new("regressor").fit(planted.tensor)._result))


def test_aligned_factors_are_the_planted_ones(planted, sampled):
    found = cosines(planted.factors, sampled.factors_)
    assert found[linear_sum_assignment(found, maximize=True)].min() > 0.95
    assert sampled.congruence_.min() > 0.95
    assert sampled.n_components_ == 3


def test_the_reconstruction_of_aligned_factors_is_the_prediction(planted, sampled):
    tensor = sampled.to_tensorly()
    cells = tuple(planted.tensor.coords.T)
    found = getattr(sampled, "level_", 0.0) + tensor.to_tensor()[cells]
    mean, variance = sampled.predict_latent(planted.tensor)
    # the means of the factors leave out what they share, which is less than the posterior sd
    assert np.sqrt(np.mean((found - mean) ** 2)) < 0.5 * np.sqrt(variance.mean())
    np.testing.assert_allclose(sampled.predict(planted.tensor), mean)
    assert (np.diff(tensor.weights) < 0.0).all()
    for factor in tensor.factors:
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1.0)
    np.testing.assert_array_equal(sampled.weights_, tensor.weights)


def test_components_of_a_sampler_have_narrow_intervals(sampled):
    table = pd.concat([sampled.components(k) for k in range(3)])
    assert (table["mean"].abs() / table["sd"]).median() > 5.0
    for k, cov in enumerate(sampled.factor_covs_):
        assert cov.shape == (sampled.shape_[k], 3, 3)
        variance = np.diagonal(cov, axis1=1, axis2=2)
        np.testing.assert_allclose(
            variance, sampled._result.aligned.variance[sampled._result.layout.rows[k]], rtol=1e-6
        )


def test_factor_diagnostics_are_those_of_chains_that_agree(sampled):
    table = sampled.factor_diagnostics(1)
    assert set(table.columns.get_level_values(0)) == set(sampled.components(1)["component"])
    assert table.xs("r_hat", axis=1, level=1).to_numpy().max() < 1.2
    assert (table.xs("tail_size", axis=1, level=1) > 5).all(axis=None)
    draws = np.stack(sampled.sample_posterior(10_000, random_state=0)[1])
    assert draws.shape[1:] == (16, 3)
    with pytest.raises(ValueError, match="method 'cep' draws no chains, as factor_diagnostics needs; use one"):
        fitted("regressor").factor_diagnostics(0)


def test_draws_that_a_sampler_disguises_give_the_same_factors(sampled, rng):
    result = sampled.posterior_
    rows = result.rows.copy()
    for chain in range(4):
        for draw in rows[chain]:
            order, sign = rng.permutation(3), rng.choice([-1.0, 1.0], 3)
            draw[:] = draw[:, order]
            draw[:20] *= 2.0 * sign
            draw[20:36] *= 0.5 * sign
    model = pickle.loads(pickle.dumps(sampled))
    model._set(model._result.with_posterior(result._replace(rows=rows)))
    for ours, theirs in zip(model.factors_, sampled.factors_, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    for ours, theirs in zip(model.factor_covs_, sampled.factor_covs_, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.relevance_, sampled.relevance_)


def test_draws_that_do_not_agree_are_warned_of_once(sampled, rng):
    model = pickle.loads(pickle.dumps(sampled))
    shape = (4, 50, *sampled.posterior_.rows.shape[2:])
    model._set(
        model._result.with_posterior(
            Draws(model.shape_, 3, rng.standard_normal(shape), None, None, sampled.posterior_.seen)
        )
    )
    with pytest.warns(UserWarning, match="the draws of 'gibbs' do not agree on the components even after alignment"):
        factors = model.factors_
    assert model.factors_ is factors
    assert model.congruence_.max() < 0.5
    model.components(0)


def test_components_of_half_of_the_draws_are_warned_of(sampled):
    model, rows = pickle.loads(pickle.dumps(sampled)), sampled.posterior_.rows.copy()
    turn = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    rows[2:, :, 36:] = rows[2:, :, 36:] @ turn  # the same columns, which belong to other ones now
    model._set(model._result.with_posterior(sampled.posterior_._replace(rows=rows)))
    with pytest.warns(UserWarning, match=r"do not agree .* \(50 % of them are like a typical one\)"):
        assert len(model.factors_) == 3
    taken = model._result.aligned.like.reshape(4, -1)
    assert (taken == taken[:, :1]).all()  # whole chains: those that were turned, or the others
    assert taken[0, 0] == taken[1, 0] != taken[2, 0] == taken[3, 0]


def test_factors_whose_latent_values_are_not_the_predicted_ones_are_warned_of(sampled):
    model = pickle.loads(pickle.dumps(sampled))
    found = model._result.aligned
    model._result.warn_of_unlike(found._replace(apart=1.0))
    with pytest.warns(UserWarning, match="their latent values are 2.0 standard deviations from the predicted ones"):
        model._result.warn_of_unlike(found._replace(apart=4.0))


@pytest.mark.parametrize(
    ("split", "interactions"),
    [(0, "cp"), *(pytest.param(*given, marks=pytest.mark.slow) for given in ((1, "cp"), (0, "auto"), (1, "auto")))],
)
def test_factors_of_chains_at_unlike_solutions_say_what_predictions_say(split, interactions):
    """IL-2 at a low rank, where chains stay at different solutions: means of all draws had twice the error."""
    train, test = tc.datasets.load_il2().train_test_split(test_size=0.2, random_state=split)
    model = tc.CPRegressor(3, interactions=interactions, random_state=split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains that disagree, and of half of the draws
        found = (model.fit(train).to_tensorly().to_tensor() + model.level_)[tuple(test.coords.T)]
    mean, variance = model.predict_latent(test)
    assert np.mean((found - mean) ** 2) < variance.mean()
    assert tc.metrics.rmse(test.values, found) < 1.1 * tc.metrics.rmse(test.values, mean)


def test_factor_draws_of_several_fits_are_aligned_to_the_best(planted):
    model = paper(tc.CPRegressor, 3, n_ensemble=3, n_starts=1, prior="learned", random_state=0, tol=1e-2)
    model.fit(planted.tensor)
    draws = model.sample_posterior(200, random_state=0)
    means = [draw.mean(axis=0) for draw in draws]
    np.testing.assert_allclose(
        np.diag(cosines(means, np.split(model._result.aligned.reference, [20, 36]))), 1.0, atol=0.05
    )
    f = np.einsum("dnr,dnr,dnr->dn", *(d[:, i] for d, i in zip(draws, planted.tensor.coords.T, strict=True)))
    mean, variance = model.predict_latent(planted.tensor)
    f = f + getattr(model, "level_", 0.0)
    assert (np.abs(f.mean(axis=0) - mean) < 7.0 * np.sqrt(variance / 200)).all()


def test_main_effects_leave_their_constant_to_the_first_and_out_of_the_relevance():
    rng = np.random.default_rng(3)
    X = np.stack([rng.integers(0, n, 900) for n in (15, 12, 10)], axis=1)
    one, two = rng.standard_normal(15), rng.standard_normal(12)
    y = 50.0 + one[X[:, 0]] + 0.5 * two[X[:, 1]] + 0.1 * rng.standard_normal(900)
    few = {"n_chains": 4, "burn_in": 60, "thin": 2}
    model = paper(
        tc.CPRegressor,
        1,
        method="gibbs",
        interactions={"main": 1, "pair": 1},
        prior="learned",
        max_iter=120,
        random_state=0,
        **few,
    ).fit(X, y)
    level = getattr(model, "level_", 0.0)
    assert level + model.factors_[0][:, 0].mean() == pytest.approx(50.0, abs=1.0)
    np.testing.assert_allclose([model.factors_[k][:, k].mean() for k in (1, 2)], 0.0, atol=1e-10)
    np.testing.assert_allclose(model.factors_[1][:, 1], two / 2 - two.mean() / 2, atol=0.1)
    share = np.var(one) / (np.var(one) + 0.25 * np.var(two))
    np.testing.assert_allclose(model.relevance_[:2], [share, 1.0 - share], atol=0.02)
    assert model.n_components_ <= 3
