"""Learned priors in the estimators: parameters, predictions of unknown rows, saving, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, new
from helpers.models import paper

import tensorcep as tc
from tensorcep.cp.simulate import simulate_cp

KINDS = each("kind", ["learned", "ard"])


def levels(n_new=3):
    """Values around 3 whose rows all have entries, and coordinates of rows that have none."""
    shape = (60, 50, 40)
    sim = simulate_cp(shape, 1, 3000, prior_mean=1.5, prior_sd=0.4, noise_precision=25.0, random_state=1)
    fresh = np.stack([np.arange(n, n + n_new) for n in shape], axis=1)
    return sim.tensor.coords, sim.tensor.values, fresh


OTHERS = [
    ("regressor", {"method": "vmp"}),
    ("classifier", {"method": "vmp"}),
    ("classifier", {"method": "pg-vb", "link": "logit"}),
    ("counts", {"method": "pg-vb", "likelihood": "negbinomial"}),
    ("regressor", {"method": "laplace"}),
]


@each(("name", "how"), [*((name, {}) for name in NAMES), *OTHERS])
@KINDS
def test_estimator_learns_a_prior_and_saves_it(name, how, kind, tmp_path):
    X, y = entries(name)
    model = new(name, prior=kind, **how).fit(X, y)
    assert model.relevance_.shape == (2,)
    assert len(model.components(0)) == 2 * model.shape_[0]
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.prior == kind
    np.testing.assert_array_equal(again.posterior_.mode_prior.mean, model.posterior_.mode_prior.mean)
    np.testing.assert_array_equal(again.posterior_.mode_prior.precision, model.posterior_.mode_prior.precision)
    with pytest.warns(UserWarning, match="without training entries"):
        np.testing.assert_array_equal(again.predict_latent(X + 50)[0], model.predict_latent(X + 50)[0])


def test_unknown_rows_are_predicted_by_the_learned_prior():
    X, y, fresh = levels()
    how = {"random_state": 0, "fit_intercept": False}  # the prior alone finds the level
    model = paper(tc.CPRegressor, 1, prior="learned", **how).fit(X, y)
    with pytest.warns(UserWarning, match="their prior is used"):
        mean, variance = model.predict_latent(fresh)
    prior = model.posterior_.mode_prior
    np.testing.assert_allclose(mean, np.prod(prior.mean, axis=0).sum(), rtol=1e-9)
    assert abs(mean[0] - y.mean()) < 0.5 * y.std()
    assert 0.5 < np.sqrt(variance[0]) / y.std() < 2.0
    plain = paper(tc.CPRegressor, 1, prior_mean=0.0, **how).fit(X, y)
    with pytest.warns(UserWarning, match="their prior is used"):
        assert abs(plain.predict_latent(fresh)[0][0] - y.mean()) > abs(mean[0] - y.mean())


@each("kind", ["fixed", "learned", "ard"])
def test_samplers_keep_a_row_of_the_prior_that_each_draw_has(kind, tmp_path):
    X, y, fresh = levels()
    how = {"method": "gibbs", "max_iter": 80, "n_chains": 2, "random_state": 0}
    how |= {"init": "random", "weights": "equal", "fit_intercept": False}  # both chains go on, with nothing beside them
    model = paper(tc.CPRegressor, 1, prior=kind, **how).fit(X, y)
    rows = model.posterior_.unknown
    if kind == "fixed":
        assert rows is None
        return
    assert rows.shape == (2, 40, 3, 1)
    half = np.array([[0, 50, 0], [0, 0, 40]])  # each with one row that has no entries
    with pytest.warns(UserWarning, match="their prior is used"):
        mean, variance = model.predict_latent(np.concatenate([fresh, half]))
    u, v, w = (model.posterior_.rows[:, :, first, 0] for first in (0, 60, 110))
    draws = [rows[..., 0].prod(axis=2), u * rows[:, :, 1, 0] * w, u * v * rows[:, :, 2, 0]]
    np.testing.assert_allclose(mean[2:], [d.mean() for d in draws], rtol=1e-9)
    np.testing.assert_allclose(variance[2:], [d.var() for d in draws], rtol=1e-9)
    if kind == "learned":  # "ard" keeps the mean at 0; the two chains differ in the signs of two modes
        assert (rows[0].mean(axis=0) * rows[1].mean(axis=0) < 0.0).sum() == 2
        assert abs(mean[0] - y.mean()) < 0.5 * y.std()
        assert 0.5 < np.sqrt(variance[0]) / y.std() < 2.0
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    with pytest.warns(UserWarning, match="their prior is used"):
        np.testing.assert_array_equal(again.predict_latent(fresh)[0], mean[:3])


def test_learned_prior_beats_the_fixed_one_where_labels_are_unbalanced():
    sim = simulate_cp(
        (40, 30, 20), 1, 3000, likelihood="probit", prior_mean=[-1.3, 1.0, 1.0], prior_sd=0.4, random_state=2
    )
    X, y = sim.tensor.coords, sim.tensor.values
    train = np.random.default_rng(0).permutation(len(y)) < 1500
    scores = {}
    for prior in ("fixed", "learned"):
        model = paper(tc.CPClassifier, 2, prior=prior, init="random", random_state=0)  # the same starts for both
        model.fit(X[train], y[train])
        scores[prior] = model.log_score(X[~train], y[~train]).mean()
    assert scores["learned"] > scores["fixed"] + 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:cep loses some of what")  # of three components where there is one
@KINDS
def test_learned_prior_follows_the_units_of_the_data(kind):
    X, y, _ = levels()
    one, scaled = (paper(tc.CPRegressor, 3, prior=kind, random_state=0).fit(X, c * y) for c in (1.0, 1e3))
    np.testing.assert_allclose(scaled.predict(X), 1e3 * one.predict(X), rtol=1e-6, atol=1e-3)


def test_prior_refuses_words_that_it_does_not_know():
    X, y = entries("regressor")
    with pytest.raises(ValueError, match=r"prior must be one of .*'fixed', 'learned', 'ard'; got 'flat'"):
        new("regressor", prior="flat").fit(X, y)


def test_prior_mean_is_the_centre_of_the_learned_means():
    X, y, _ = levels()
    model = paper(tc.CPRegressor, 2, prior="ard", prior_mean=1.0, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.posterior_.mode_prior.mean, 1.0)
