"""A dispersion for every row of a mode of counts: every method that learns one, predictions, files, and refusals."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.problems import build, fit, law_of_dispersion, problem
from scipy.stats import nbinom
from sklearn.base import clone

import tensorcep as tc
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments, observed_quantiles
from tensorcep.cp.model.parameters import groups_of
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.posterior import Components, EntryTheta
from tensorcep.cp.workers.checkpoint import _why_not
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.negbinomial import FIRST, group_sums, pooled
from tensorcep.likelihoods.parameters.base import ENOUGH_OF_ROW, Gamma
from tensorcep.likelihoods.parameters.scale_mixture import ALPHAS, Evenness, log_evidence

N, SHAPE = 3000, (25, 12, 10)
METHODS = {
    "vmp": tc.VMP(n_starts=1),
    "pg-vb": tc.PGVB(n_starts=1),
    "pg-gibbs": tc.PGGibbs(n_chains=1, burn_in=100),
    "cep": tc.CEP(n_starts=1, n_ensemble=1),
    "averaged": tc.CEP(messages="averaged", n_starts=1, n_ensemble=1),
    "laplace": tc.Laplace(n_starts=1),
}


def tiered(*quick):
    """Of the others, the slow tier."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]


EVERY = pytest.mark.parametrize("method", tiered("vmp", "pg-vb", "cep"))


@cache
def simulated(kind="rows", n=2 * N):
    """Coordinates and counts about main effects and one component, and the dispersions of the second mode's rows."""
    rng = np.random.default_rng(0)
    coords = np.stack([rng.integers(0, size, n) for size in SHAPE], axis=1)
    f = 1.5 + sum(0.4 * rng.standard_normal(size)[coords[:, k]] for k, size in enumerate(SHAPE))
    f = f + 0.4 * np.prod([rng.standard_normal(size)[coords[:, k]] for k, size in enumerate(SHAPE)], axis=0)
    r = np.geomspace(0.3, 20.0, SHAPE[1])[rng.permutation(SHAPE[1])] if kind == "rows" else np.full(SHAPE[1], 2.0)
    own = r[coords[:, 1]]
    return coords, rng.poisson(rng.gamma(own) / own * np.exp(f)).astype(float), r


def model(method, X, y=None, **params):
    given = {"rank": 1, "interactions": "main+cp", "dispersion": "mode_1", "max_iter": 250, "random_state": 0, **params}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short runs do not converge
        return tc.CPCountRegressor(method=METHODS.get(method, method), **given).fit(X, y)


@cache
def fitted(method, dispersion="mode_1", kind="rows"):
    coords, y, _ = simulated(kind)
    sweeps = 250 if method == "pg-gibbs" else 80
    return model(method, coords[:N], y[:N], dispersion=dispersion, likelihood="negbinomial", max_iter=sweeps)


@EVERY
def test_unequal_dispersions_are_found_and_predict_better_than_one(method):
    coords, y, r = simulated()
    rows, one = fitted(method), fitted(method, "learned")
    assert rows.dispersion_.shape == rows.dispersion_std_.shape == (SHAPE[1],)
    assert np.corrcoef(np.log(rows.dispersion_), np.log(r))[0, 1] > 0.93
    scores = [found.log_score(coords[N:], y[N:]).mean() for found in (one, rows)]
    assert scores[1] > scores[0] + 0.05


@EVERY
def test_intervals_of_every_row_hold_their_share(method):
    coords, y, _ = simulated()
    X, new = coords[N:], y[N:]
    low, high = fitted(method).predict_interval(X, 0.8).T
    within = (low <= new) & (new <= high)
    inside = np.array([within[X[:, 1] == i].mean() for i in range(SHAPE[1])])
    assert inside.min() > 0.7
    assert 0.8 < inside.mean() < 0.92  # counts are whole


@pytest.mark.parametrize("method", tiered("vmp", "pg-vb"))
def test_equal_dispersions_cost_nothing(method):
    coords, y, _ = simulated("equal")
    rows, one = fitted(method, kind="equal"), fitted(method, "learned", kind="equal")
    apart = rows.log_score(coords[N:], y[N:]) - one.log_score(coords[N:], y[N:])
    assert apart.mean() > -2.0 * apart.std() / np.sqrt(N) - 0.002
    assert np.log(rows.dispersion_).std() < 0.2


@pytest.mark.parametrize("method", ["vmp", "pg-vb", "pg-gibbs"])
def test_rows_of_few_entries_shrink_to_the_common_law_and_rows_of_none_have_it(method):
    coords, y, _ = simulated()
    few, none = coords[:N, 1] == 3, coords[:N, 1] == 7
    kept = ~none & (~few | (np.cumsum(few) <= 3))
    found = model(method, coords[:N][kept], y[:N][kept])
    mean, alpha = found._result.belief.theta.uneven.mean(axis=0)
    spread = found.dispersion_std_ / found.dispersion_
    assert found.dispersion_[7] == pytest.approx(mean, rel=0.4 if method == "pg-gibbs" else 1e-6)
    assert spread[7] > 0.7 * alpha**-0.5
    assert spread[3] > 2.0 * np.median(np.delete(spread, [3, 7]))


@each("name", ["vmp", "pg-vb", "pg-gibbs", "cep", "laplace"])
def test_same_bits_on_two_threads(rng, name):
    coords, y, p = problem(rng, 3, 2, 400, "poisson", shape=(20, 16, 12))
    p = build(coords, y, p.shape, 2, "negbinomial", start=p.start)._replace(uneven=Uneven(1))
    one, two = (fit(p, 12, threads, method=name).posterior for threads in (1, 2))
    if name == "pg-gibbs":
        pairs = [(one.rows, two.rows), (one.theta, two.theta), (one.uneven, two.uneven)]
    else:
        pairs = [(one.eta, two.eta), (one.dispersion.a, two.dispersion.a), (one.dispersion.mean, two.dispersion.mean)]
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def test_bound_of_pg_vb_does_not_fall(rng):
    coords, y, p = problem(rng, 3, 2, 60, "poisson")
    p = build(coords, y, p.shape, 2, "negbinomial", start=p.start)._replace(uneven=Uneven(2))
    bound = fit(p, 60, method="pg-vb", anneal=0).trace["lower_bound"]
    assert np.isfinite(bound).all()
    assert np.diff(bound).min() > -1e-7 * abs(bound[-1])


def test_laws_of_groups_are_those_of_each_by_itself(rng):
    group, used, prior = rng.integers(0, 3, 300), np.ones(300), (1.5, 0.5)
    y = nbinom(2.0, 0.3).rvs(300, random_state=1).astype(float)
    m, v = rng.normal(0.9, 0.3, 300), rng.uniform(0, 0.4, 300)
    start, share = np.array([1.0, 2.5, 4.0, 3.0]), np.array([0.5, 1.0, 0.25, 1.0])
    every = law_of_dispersion(y, m, v, share, prior, start, used, group)
    for g in range(3):
        own = group == g
        alone = law_of_dispersion(y[own], m[own], v[own], share[g], prior, start[g])
        np.testing.assert_allclose([every.a[g], every.b[g]], [alone.a[0], alone.b[0]], rtol=1e-8)
    np.testing.assert_allclose([every.a[3], every.b[3]], prior, rtol=1e-5)  # without entries


def test_the_common_law_is_the_most_likely_one_and_laws_move_with_it():
    shape, rate = np.array([30.0, 12.0, 80.0, 0.0]), np.array([60.0, 3.0, 10.0, 0.0])
    before = Evenness(2.0, FIRST, 1.0)
    a, b = before.law
    law, pool = pooled(before, (1.0, 0.1), Gamma(a + shape, b + rate))
    groups, grid = group_sums(shape, rate), np.exp(np.linspace(-2.0, 4.0, 400))
    height = np.array([[log_evidence(groups, t, one) + np.log(t) - 0.1 * t for t in grid] for one in ALPHAS])
    i, j = np.unravel_index(height.argmax(), height.shape)
    assert pool.alpha == ALPHAS[i]
    assert pool.tau == pytest.approx(grid[j], rel=0.02)
    np.testing.assert_allclose([law.a, law.b], [pool.law[0] + shape, pool.law[1] + rate], rtol=1e-9)


def test_a_row_of_many_entries_is_known_by_some_and_one_of_few_by_all(rng):
    coords = np.stack([np.repeat([0, 1], [3000, 40]), rng.integers(0, 9, 3040)], axis=1)
    p = build(coords, np.ones(3040), (2, 9), 1, "negbinomial")
    index = groups_of(p, 0).sample(3040)
    assert np.bincount(groups_of(p, 0).of_entry.ravel()[index]).tolist() == [ENOUGH_OF_ROW, 40]
    assert len(groups_of(p, None).sample(3040)) == 3040


def test_predictions_of_unknown_rows_are_mixed_over_the_common_law():
    """Its mean count does not depend on r; known rows count at their values, whatever their laws."""
    values, laws = np.array([[1.0, 9.0]]), (np.array([[4.0, 9.0]]), np.array([[4.0, 1.0]]))
    theta = EntryTheta(values, 0, 0, laws, uneven=np.array([[2.0, 3.0]]), sure=True)
    belief, rows, y = Components(np.full((1, 4, 1), 0.7), None, theta), np.array([[3], [1]]), np.array([2.0, 5.0])
    record, f, rng = get_likelihood("negbinomial"), 0.7, np.random.default_rng(0)
    factor = rng.gamma(3.0, size=400_000) / 3.0
    r, mean = 2.0 * factor, 2.0 * np.exp(np.log(factor).mean() + f)  # at the mean log r
    found = observed_logpdf(record, belief, rows, y)
    assert found[0] == pytest.approx(np.log(nbinom(r, r / (r + mean)).pmf(2.0).mean()), abs=5e-3)
    assert found[1] == pytest.approx(nbinom(9.0, 1.0 / (1.0 + np.exp(f))).logpmf(5.0), abs=1e-4)
    moments = observed_moments(record, belief, rows)
    assert moments[0] == pytest.approx([mean, 9.0 * np.exp(f)], rel=5e-3)
    assert moments[1][0] == pytest.approx(np.mean(mean + mean**2 / r), rel=0.03)
    levels, counts = (0.5, 0.9), rng.poisson(rng.gamma(r) * mean / r)
    found = observed_quantiles(record, belief, rows, levels)[0]
    np.testing.assert_allclose(found, np.quantile(counts, levels), atol=1)


@pytest.mark.parametrize("method", ["vmp", pytest.param("pg-gibbs", marks=pytest.mark.slow)])
def test_draws_and_files_are_those_of_the_model(tmp_path, method):
    coords, y, _ = simulated()
    table = pd.DataFrame({"who": coords[:N, 0], "shop": coords[:N, 1], "when": coords[:N, 2], "n": y[:N]})
    found = model(method, table.drop(columns="n"), y[:N], dispersion="shop", max_iter=150)
    assert found.likelihood_ == "negbinomial"
    X = table.drop(columns="n")[:300]
    mean, sd = found.predict(X, return_std=True)
    draws = found.sample_y(X, 2000, random_state=1)
    assert np.median(draws.mean(axis=0) / mean) == pytest.approx(1.0, abs=0.05)
    assert np.median(draws.std(axis=0) / sd) == pytest.approx(1.0, abs=0.1)
    found.save(tmp_path / "model.npz")
    back = tc.load(tmp_path / "model.npz")
    beyond = pd.DataFrame({"who": [0, 3], "shop": [99, 2], "when": [0, 1]})
    with pytest.warns(UserWarning, match="prior is used"):
        wide = found.predict_interval(beyond)
    with pytest.warns(UserWarning, match="prior is used"):
        np.testing.assert_array_equal(back.predict_interval(beyond), wide)
    np.testing.assert_array_equal(back.dispersion_, found.dispersion_)
    np.testing.assert_array_equal(back.log_score(X, y[:300]), found.log_score(X, y[:300]))
    assert back.dispersion == clone(found).dispersion == "shop"
    assert found.diagnostics_ is not None


NEW = {"dispersion": "mode_1", "rank": 1}


@each(
    ("params", "words"),
    [
        ({"dispersion": "shop"}, "dispersion must be a number > 0, 'learned', or a mode, one of .*'mode_1'.*'shop'"),
        (
            {"method": "wopt"},
            "method 'wopt' cannot use dispersion='mode_1'; use dispersion='learned', or .*'vmp', .*pg-gibbs",
        ),
        ({"likelihood": "poisson"}, "'mode_1' is for likelihood='negbinomial' or 'auto'; got 'poisson'"),
        ({"zero_inflation": True}, "zero_inflation=True takes one dispersion of all counts; got dispersion='mode_1'"),
        ({"method": tc.PGVB(dispersion_mode=0)}, "names a mode, and so do the settings; got dispersion_mode=0"),
        ({"dispersion": -1.0}, "dispersion must be 'learned', the name of a mode, or a number > 0; got -1"),
        ({"dispersion": True}, "dispersion must be"),
    ],
)
def test_what_cannot_use_dispersions_of_rows_says_so(params, words):
    coords, y, _ = simulated()
    with pytest.raises((ValueError, TypeError), match=words):
        tc.CPCountRegressor(**{**NEW, **params}).fit(coords[:200], y[:200])


def test_streams_scratch_weights_and_new_rows_take_one_dispersion(tmp_path):
    coords, y, _ = simulated()
    one = "partial_fit learns one dispersion; got dispersion='mode_1'"
    with pytest.raises(ValueError, match=one):
        tc.CPCountRegressor(**NEW).partial_fit(coords[:200], y[:200])
    known = fitted("vmp")
    for name in ("vmp", "pg-gibbs"):
        fitted(name).save(tmp_path / "model.npz")
        back = tc.load(tmp_path / "model.npz").set_params(dispersion="learned")
        with pytest.raises(ValueError, match="got a fit with one for every row of a mode; fit again"):
            back.partial_fit(coords[:200], y[:200])
    new = clone(known)
    with pytest.raises(ValueError, match=r"scratch= is for one noise or dispersion.*got a dispersion that differs"):
        new.fit(coords[:200], y[:200], scratch=tmp_path)
    with pytest.raises(ValueError, match="whole numbers, .* where a dispersion is learned"):
        new.fit(coords[:200], y[:200], sample_weight=np.full(200, 0.5))
    with pytest.raises(ValueError, match="transform needs dispersion='learned'; got a fit with dispersion='mode_1'"):
        known.transform(np.array([[SHAPE[0], 0, 0]]), np.ones(1), mode=0)


def test_workers_take_one_dispersion():
    coords, y, _ = simulated()
    work = plan_fit(tc.CPCountRegressor(**NEW)._spec(), (coords[:200], y[:200], SHAPE, (None,) * 3), None)
    assert (
        _why_not(work) == "workers fit entries of one noise or dispersion, without fixed modes; fit it in one process"
    )


def test_a_method_left_open_is_one_that_can():
    coords, y, _ = simulated()
    found = model("auto", coords[:800], y[:800], max_iter=30)
    assert found.method_ == "vmp"
    assert found.dispersion_.shape == (SHAPE[1],)
