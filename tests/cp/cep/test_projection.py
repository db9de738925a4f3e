"""CEP with the projection onto the nearest Gaussian: the plain twin, EP, threads, files, streams, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import fit, means, messages, problem, twin_of
from oracles import cep as oracle

import tensorcep as tc
from tensorcep.core.packing import unpack
from tensorcep.ep.gaussian import GaussianEP
from tensorcep.ep.projections import Tilted, project
from tensorcep.likelihoods import get_likelihood

SHAPE = (8, 7, 6)


def nearest(y, m, v, theta=1.0):
    """The probit's tilted moments with the variance of the nearest Gaussian."""
    logz, alpha, beta = oracle.probit(y, m, v)
    arrays = [np.array([float(a)]) for a in (y, theta, m, v)]
    tilted = Tilted(get_likelihood("probit"), *arrays)
    return logz, alpha, float(project(tilted, np.array([alpha]), np.array([beta]))[0])


@each("schedule", ["modewise", "parallel"])
def test_sweep_with_the_nearest_gaussian_equals_the_twin(rng, schedule, monkeypatch):
    monkeypatch.setitem(oracle.TILTED, "probit", nearest)
    coords, y, p = problem(rng, 3, 2, 30, "probit")
    result = fit(p, 2, schedule=schedule, damping=0.4, projection="w2")
    twin = twin_of(p, coords, y)
    for _ in range(2):
        oracle.sweep(twin, schedule, damping=0.4)
    Lam, eta = messages(result.state, p)
    np.testing.assert_allclose(Lam, twin.msg_Lam, atol=1e-9)
    np.testing.assert_allclose(eta, twin.msg_eta, atol=1e-9)


def test_fixed_point_with_known_modes_is_that_of_quantile_propagation(rng):
    """With one column that is known in all modes but the first, each of its rows is a probit regression."""
    coords, y, p = problem(rng, 2, 2, 24, "probit", shape=(3, 8))
    fixed = p._replace(prior=p.prior._replace(Lam=p.prior.Lam.copy(), eta=p.prior.eta.copy()))
    known = rng.standard_normal((8, 2))
    fixed.prior.Lam[3:], fixed.prior.eta[3:] = 1e12 * np.array([1.0, 0.0, 1.0]), 1e12 * known
    posterior = fit(fixed, 80, damping=0.3, projection="w2").posterior
    for i in range(3):
        mine = coords[:, 0] == i
        Lam = unpack(fixed.prior.Lam[i], 2)
        cov = np.linalg.inv(Lam)
        ep = GaussianEP(cov @ fixed.prior.eta[i], cov, projection="w2", tol=1e-11, max_iter=300)
        wanted = ep.fit(known[coords[mine, 1]], (y[mine] > 0).astype(int), "probit")
        np.testing.assert_allclose(np.linalg.inv(unpack(posterior.Lam[i], 2)), wanted.cov, atol=1e-7)
        np.testing.assert_allclose(means(posterior)[i], wanted.mean, atol=1e-7)


@each("messages_kept", ["full", "averaged"])
def test_fit_is_narrower_than_by_moments_and_the_same_on_any_threads(rng, messages_kept):
    _, _, p = problem(rng, 3, 2, 2000, "probit", shape=(25, 20, 16))
    options = {"damping": 0.5, "messages": messages_kept}
    runs = [fit(p, 3, threads=threads, projection="w2", **options) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].posterior.Lam, runs[1].posterior.Lam)
    first = [fit(p, 1, projection=projection, **options).posterior for projection in ("kl", "w2")]
    volume = [np.linalg.slogdet(unpack(one.Lam, 2))[1].sum() for one in first]
    assert volume[1] > volume[0]


def test_real_values_have_the_same_bits_under_either_projection(rng):
    _, _, p = problem(rng, 3, 2, 40)
    one, other = (fit(p, 4, projection=projection).posterior for projection in ("kl", "w2"))
    np.testing.assert_array_equal(one.Lam, other.Lam)


def test_projection_is_refused_where_it_has_no_rule(rng):
    with pytest.raises(ValueError, match="projection must be one of 'kl', 'w2'; got 'l2'"):
        tc.CEP(projection="l2")
    with pytest.raises(ValueError, match="order must be 1 with projection='w2'.* got 2; or take 'kl'"):
        tc.CEP(projection="w2", order=2)
    _, _, p = problem(rng, 3, 2, 20, "tobit")
    with pytest.raises(
        ValueError, match=r"censored values need order=1.*projection='kl'.*lower_limit=None and upper_limit=None"
    ):
        fit(p, 2, projection="w2")


@pytest.mark.filterwarnings("ignore:cep stopped")
@pytest.mark.parametrize("kind", ["probit", "logit", "counts"])
def test_estimators_fit_save_stream_and_fold_in_with_it(kind, rng, tmp_path):
    coords = np.stack(np.unravel_index(rng.choice(np.prod(SHAPE), 150, replace=False), SHAPE), axis=1)
    f = 1.5 * rng.normal(size=SHAPE[0])[coords[:, 0]] * rng.normal(size=SHAPE[1])[coords[:, 1]]
    settings = {"method": tc.CEP(projection="w2", n_starts=1, n_ensemble=1), "max_iter": 6, "random_state": 0}
    if kind == "counts":
        y, model = rng.poisson(np.exp(0.5 * f)).astype(float), tc.CPCountRegressor(2, **settings)
    else:
        y = (f + rng.normal(size=150) > 0.0).astype(float)
        model = tc.CPClassifier(2, link=kind, **settings)
    data = tc.SparseTensor.from_coo(coords, y, shape=SHAPE)
    model.fit(data)
    by_moments = type(model)(**{**model.get_params(deep=False), "method": tc.CEP(n_starts=1, n_ensemble=1)}).fit(data)
    assert 0.0 < np.abs(model.predict_latent(coords)[0] - by_moments.predict_latent(coords)[0]).max() < 0.5
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    assert again.method == model.method
    np.testing.assert_array_equal(again.predict(coords), model.predict(coords))
    new = np.column_stack([np.full(4, SHAPE[0]), np.arange(4), np.arange(4)])
    assert np.isfinite(model.transform(new, y[:4], mode=0).mean).all()
    model.partial_fit(data)
    assert np.isfinite(model.predict(coords)).all()
