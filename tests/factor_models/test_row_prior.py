"""Features and series of rows in factor models: a dense process, ridge regression, gaps, forecasts, files, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.relation_problems import problem
from scipy.stats import multivariate_normal

import tensorcep as tc
from tensorcep.core.executor import ThreadExecutor
from tensorcep.entries.labels import Labels
from tensorcep.factor_models.settings import VB
from tensorcep.factor_models.side_information import KnownRows, Moments
from tensorcep.factor_models.variational import VB_ENGINE
from tensorcep.priors.features import Mode, design
from tensorcep.priors.normal_wishart import MEAN_ROWS
from tensorcep.priors.series import Series, clock

N, D, TAU, LENGTH = 25, 4, 3.0, 6.0


def known_loadings(rng, known, sweeps=3):
    """A matrix with gaps whose loadings V (D,) and noise are known, after some sweeps: x, V, and the state."""
    x, V = rng.standard_normal((N, D)), rng.standard_normal(D)
    x[rng.random((N, D)) < 0.3] = np.nan
    x[[7, 8, N - 1]] = np.nan
    p = problem(x, 1, "gaussian", noise=TAU)
    seen = ~np.isnan(x).all(axis=1)
    frozen = (None, Moments(V[:, None], np.zeros((1, 1)), False))
    p = p._replace(frozen=frozen, known=(KnownRows(known, seen), None))
    p = p._replace(start=(p.start[0], V[:, None]))
    state = VB_ENGINE.init(p, VB(), ThreadExecutor(1))
    for _ in range(sweeps):
        state, sweep = VB_ENGINE.step(state, p, VB(), ThreadExecutor(1))
    return x, V, state, sweep, VB_ENGINE.finish(state, p)


def told(x, V):
    """What the cells of each row say: precision and natural mean, (N,) each."""
    return TAU * (~np.isnan(x) @ V**2), TAU * np.nan_to_num(x) @ V


def test_rows_of_a_series_are_smoothed_as_by_a_dense_gaussian_process(rng, monkeypatch):
    """One component, known loadings: a dynamic factor model, whose moments and evidence a dense GP has, too."""
    monkeypatch.setattr("tensorcep.priors.ou_process.lengths_of", lambda *_: np.array([LENGTH]))
    monkeypatch.setattr("tensorcep.factor_models.side_information.PINNED", 1e10)
    times = np.cumsum(1.0 + rng.random(N))
    times[0] = times[1] - 1.0  # the step, so that a length is one in units of time
    axis = clock(Series(kind="ou"), Mode("t", Labels(times), N))
    x, V, _, sweep, posterior = known_loadings(rng, axis)
    K = np.exp(-np.abs(times[:, None] - times) / LENGTH)
    precision, field = told(x, V)
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
    np.testing.assert_allclose(posterior.moments[0].mean[:, 0], S @ field, atol=1e-8)
    np.testing.assert_allclose(posterior.moments[0].cov[:, 0], np.diag(S), atol=1e-8)
    np.testing.assert_allclose(posterior.laws[0].lengths, [[LENGTH]])
    i, j = np.nonzero(~np.isnan(x))
    law = multivariate_normal(np.zeros(len(i)), K[i][:, i] * np.outer(V[j], V[j]) + np.eye(len(i)) / TAU)
    assert sweep.lower_bound == pytest.approx(law.logpdf(x[i, j]), abs=1e-3)


def test_length_of_a_series_has_the_posterior_of_the_grid(rng):
    """With lengths learned the rows are Gaussian given the expected precision, which mixes those of the grid."""
    axis = clock(Series(), Mode("t", None, N))
    x, V, state, _, posterior = known_loadings(rng, axis, sweeps=8)
    links, mean = state.laws[0].chained.links, state.laws[0].chained.mean
    dense = np.diag(links.own[:, 0])
    left, right = links.of.pairs
    dense[left, right] = dense[right, left] = -links.between[:, 0]
    precision, field = told(x, V)
    S = np.linalg.inv(dense + np.diag(precision))
    np.testing.assert_allclose(posterior.moments[0].mean[:, 0], S @ (dense @ mean[:, 0] + field), atol=1e-8)
    np.testing.assert_allclose(posterior.moments[0].cov[:, 0], np.diag(S), atol=1e-8)


def test_rows_with_features_are_a_ridge_regression(rng):
    """One component, known loadings: scores, level and slopes are jointly Gaussian given precision and strength."""
    X = rng.standard_normal((N, 2))
    own = design(X, np.ones(N, dtype=bool), ("a", "b"))
    x, V, state, _, posterior = known_loadings(rng, own, sweeps=400)
    modes, seen = state.laws[0].modes, state.laws[0].seen
    lam, strength = modes.precision[0, 0, 0], modes.slopes[0].strength
    n = int(seen.sum())
    A = np.c_[np.eye(n), -np.ones(n), -own.matrix[seen]]
    K = lam * A.T @ A
    K[n:, n:] += lam * np.diag([MEAN_ROWS, strength, strength])
    precision, field = told(x[seen], V)
    K[:n, :n] += np.diag(precision)
    wanted = np.linalg.solve(K, np.append(field, np.zeros(3)))
    np.testing.assert_allclose(posterior.laws[0].coef[:, 0], wanted[n + 1 :], atol=1e-6)
    np.testing.assert_allclose(posterior.moments[0].mean[seen, 0], wanted[:n], atol=1e-6)
    Z = np.c_[np.ones(N), own.matrix]
    np.testing.assert_allclose(posterior.moments[0].mean[~seen, 0], Z[~seen] @ wanted[n:], atol=1e-6)
    H = Z[seen].T @ Z[seen] + np.diag([MEAN_ROWS, strength, strength])
    unsure = np.einsum("nf,fg,ng->n", Z[~seen], np.linalg.inv(H), Z[~seen])
    np.testing.assert_allclose(posterior.moments[0].cov[~seen, 0], (1.0 + unsure) / lam, rtol=1e-8)
    sd = np.sqrt(np.diag(np.linalg.inv(H - np.outer(H[0], H[0]) / H[0, 0] + np.diag([1.0, 0.0, 0.0])))[1:] / lam)
    np.testing.assert_allclose(posterior.laws[0].sd[:, 0], sd, rtol=1e-6)


class Sensors:
    """Days of twelve sensors with two slow components; days without cells, and a week to forecast."""

    def __init__(self):
        rng, n = np.random.default_rng(0), 120
        days = np.arange(n)
        roots = [np.linalg.cholesky(np.exp(-np.abs(days[:, None] - days) / length)) for length in (30.0, 10.0)]
        scores = np.stack([root @ rng.standard_normal(n) for root in roots], axis=1)
        self.f = scores @ rng.standard_normal((2, 12)) + 1.0
        X = self.f + 0.5 * rng.standard_normal(self.f.shape)
        X[rng.random(X.shape) < 0.3] = np.nan
        X[50:54] = X[-7:] = np.nan
        self.X = pd.DataFrame(X, index=pd.date_range("2024-01-01", periods=n), columns=[f"s{d}" for d in range(12)])

    def rmse(self, model, rows):
        return float(np.sqrt(np.mean((model.reconstruct()[rows] - self.f[rows]) ** 2)))


@pytest.fixture(scope="module")
def sensors():
    return Sensors()


@pytest.mark.parametrize("model", [tc.BayesianPCA, tc.BayesianFactorAnalysis])
def test_days_without_cells_are_predicted_from_their_neighbours(sensors, model, tmp_path):
    found = model(2, row_prior=tc.Series(), random_state=0).fit(sensors.X)
    plain = model(2, random_state=0).fit(sensors.X)
    assert sensors.rmse(found, slice(50, 54)) < 0.5 * sensors.rmse(plain, slice(50, 54))
    assert found.lower_bound_ > plain.lower_bound_ + 50.0
    assert (np.diff(found.trace_["lower_bound"]) > -1e-6 * abs(found.lower_bound_)).all()
    assert found.lengths_.shape == (2,)
    assert (found.lengths_ > 2.0).all()
    assert found.feature_effects_ is plain.lengths_ is None
    sd = found.predict_missing(return_std=True)[1]
    assert sd[-1].mean() > 1.2 * max(sd[-7].mean(), sd[52].mean())  # forecasts spread
    found.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.reconstruct(), found.reconstruct())
    np.testing.assert_array_equal(again.lengths_, found.lengths_)
    assert "row_prior=Series()" in repr(again)
    for one in (found, again):
        with pytest.raises(ValueError, match="rows beside those of the fit have no features and no place in time"):
            one.transform(sensors.X)
    with pytest.raises(ValueError, match="partial_fit cannot learn what a row_prior says of rows"):
        found.partial_fit(sensors.X)
    with pytest.raises(ValueError, match="no place in time"):
        again.set_params(row_prior=None).partial_fit(sensors.X)


@pytest.mark.parametrize(
    "how",
    [
        {"likelihood": "bernoulli"},
        {"likelihood": "negbinomial"},
        {"n_components": "auto"},
        {"bias": "none"},
        {"ard": False, "standardize": False},
    ],
)
def test_other_values_and_settings_take_a_series(sensors, how):
    X, what = sensors.X, how.get("likelihood", "gaussian")
    if what != "gaussian":
        X = (X > 1.0).where(X.notna()).astype(float) if what == "bernoulli" else np.rint(np.exp(0.5 * X))
    found = tc.BayesianPCA(**{"n_components": 2, "row_prior": tc.Series(), "random_state": 0, "tol": 1e-2, **how}).fit(
        X
    )
    gap, f = found.reconstruct()[50:54], sensors.f[50:54]
    assert np.corrcoef(gap.ravel(), f.ravel())[0, 1] > 0.4


@pytest.mark.parametrize("model", [tc.GroupFactorAnalysis, tc.BayesianCCA])
def test_views_share_what_is_known_of_their_rows(sensors, model, tmp_path):
    views = [sensors.X.iloc[:, :7], sensors.X.iloc[:, 7:]]
    views[0] = views[0].where(np.tile(np.arange(120)[:, None] > 20, 7))  # days that only the other view has
    found = model(2, row_prior=tc.Series(), tol=1e-3, random_state=0).fit(views)
    plain = model(2, tol=1e-3, random_state=0).fit(views)
    both = [np.hstack([one.reconstruct(0), one.reconstruct(1)])[50:54] - sensors.f[50:54] for one in (found, plain)]
    assert (both[0] ** 2).mean() < 0.5 * (both[1] ** 2).mean()
    assert found.lengths_.shape == (2,)
    found.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.reconstruct(1), found.reconstruct(1))
    with pytest.raises(ValueError, match="no place in time"):
        again.transform(views)
    with pytest.raises(ValueError, match="method 'gibbs' cannot take row_prior"):
        model(2, row_prior=tc.Series(), method="gibbs").fit(views)


def test_rows_of_which_features_alone_are_known(rng, tmp_path):
    n, labels = 90, [f"r{i:02}" for i in range(90)]
    F = pd.DataFrame(rng.standard_normal((n, 3)), index=labels, columns=["a", "b", "c"])
    scores = 1.5 * F[["a", "b"]].to_numpy() + 0.4 * rng.standard_normal((n, 2))
    full = scores @ rng.standard_normal((2, 10)) + 0.4 * rng.standard_normal((n, 10))
    X = pd.DataFrame(np.where(rng.random(full.shape) < 0.2, np.nan, full), index=labels)
    X.iloc[70:] = np.nan
    model = tc.BayesianPCA(2, row_prior=tc.Features(F.iloc[::-1]), random_state=0).fit(X)
    mean, sd = model.predict_missing(return_std=True)
    apart = np.sqrt(np.mean((mean - full)[70:] ** 2))
    assert apart < 0.6 * full.std()
    assert 0.7 < apart / np.sqrt(np.mean(sd[70:] ** 2)) < 1.4
    effects = model.feature_effects_
    assert list(effects.columns) == ["feature", "component", "mean", "sd"]
    assert set(effects["feature"].iloc[:3]) <= {"a", "b"}
    model.save(tmp_path / "model.npz")
    pd.testing.assert_frame_equal(tc.load(tmp_path / "model.npz").feature_effects_, effects)
    assert tc.BayesianPCA(2, random_state=0).fit(X.iloc[:70]).feature_effects_ is None
    with pytest.raises(ValueError, match="row_prior names 20 rows that X does not have; add them to X"):
        tc.BayesianPCA(2, row_prior=tc.Features(F)).fit(X.iloc[:70])


def test_series_gives_the_same_bits_on_any_number_of_threads(sensors):
    one, two = (tc.BayesianPCA(3, row_prior=tc.Series(), n_jobs=n, random_state=0).fit(sensors.X) for n in (1, 2))
    np.testing.assert_array_equal(one.reconstruct(), two.reconstruct())


@each(
    ("how", "sentence"),
    [
        ({"row_prior": "time"}, "row_prior must be None, a tensorcep.Features or a tensorcep.Series; got 'time'"),
        ({"row_prior": tc.Graph([(0, 1)])}, "row_prior must be None, a tensorcep.Features or a tensorcep.Series"),
        ({"method": "gibbs"}, r"method 'gibbs' cannot take row_prior=Series\(...\); use method='vb'"),
        ({"method": "vb-factorized"}, "method 'vb-factorized' cannot take row_prior"),
        ({"bias": "both"}, "of the components alone; got bias='both'; use 'column' or 'none'"),
        ({"row_prior": tc.Series(kind="rw")}, "a random walk has none; use kind='ou'"),
    ],
)
def test_what_cannot_be_done_is_refused(sensors, how, sentence):
    model = tc.BayesianPCA(**{"n_components": 2, "row_prior": tc.Series(), **how})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=sentence):
        model.fit(sensors.X)
    assert vars(model) == before
