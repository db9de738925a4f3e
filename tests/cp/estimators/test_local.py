"""Series(local=): rows of another mode that deviate along the axis, each by itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.core.packing import offsets
from tensorcep.cp.fit import deviations
from tensorcep.cp.fit.deviations import Deviating, pairs_of, told_apart
from tensorcep.cp.fitted.predict import latent_components

PARKS, DAYS, HOURS, END = 6, 30, 4, 26
QUICK = {"rank": 1, "random_state": 0, "interactions": {"main": 1, "cp": 1}}
VMP = {**QUICK, "method": "vmp"}
CEP = {**QUICK, "method": tc.CEP(n_ensemble=1)}
GIBBS = {**QUICK, "method": tc.Gibbs(n_chains=2), "max_iter": 40}
LOCAL = {"day": tc.Series(local="park")}


class Parks:
    """Parks that deviate for days on end; some days of a park without entries, and four days to forecast."""

    def __init__(self):
        rng = np.random.default_rng(0)
        i, t, h = (part.ravel() for part in np.indices((PARKS, DAYS, HOURS)))
        noise, g = rng.standard_normal((PARKS, DAYS)), np.zeros((PARKS, DAYS))
        for day in range(DAYS):
            g[:, day] = 0.95 * g[:, day - 1] + np.sqrt(1.0 - 0.95**2) * noise[:, day] if day else noise[:, 0]
        self.f = np.sin(t / 4.0) + np.array([0.5, -0.5, 1.0, 0.0])[h] * (1.0 + 0.2 * i) + g[i, t]
        y = self.f + 0.2 * rng.standard_normal(len(i))
        days = pd.date_range("2024-01-01", periods=DAYS, freq="D")
        table = pd.DataFrame({"park": [f"p{n}" for n in i], "day": days[t], "hour": h, "y": y})
        gone = (rng.random((PARKS, DAYS)) < 0.25)[i, t]
        self.train, self.gaps = table[~gone & (t < END)], table[gone & (t < END)]
        self.ahead = table[t >= END]
        self.X = self.train[["park", "day", "hour"]]

    def fit(self, prior=LOCAL, model=tc.CPRegressor, y=None, **how):
        return model(prior=prior, **(how or VMP)).fit(self.X, self.train["y"] if y is None else y[self.train.index])


def cells(table):
    return table[["park", "day", "hour"]]


def rmse(model, table):
    return float(np.sqrt(np.mean((model.predict(cells(table)) - table["y"]) ** 2)))


@pytest.fixture(scope="module")
def data():
    return Parks()


@pytest.fixture(scope="module")
def smooth(data):
    return data.fit()


@pytest.fixture(scope="module")
def sampled(data):
    return data.fit(**GIBBS)


@pytest.fixture(scope="module")
def passed(data):
    return data.fit(**CEP)


EACH = each("name", ["smooth", "sampled", "passed"])


@EACH
def test_days_that_a_row_lacks_follow_from_its_others(data, name, request):
    model, without = request.getfixturevalue(name), data.fit({"day": tc.Series()})
    assert rmse(model, data.gaps) < 0.7 * rmse(without, data.gaps)
    lower, upper = model.predict_interval(cells(data.gaps)).T
    assert 0.7 < np.mean((lower < data.gaps["y"]) & (data.gaps["y"] < upper)) <= 1.0
    _, sd = model.predict(cells(data.ahead.sort_values("day")), return_std=True)
    assert sd[-PARKS * HOURS :].mean() > 1.02 * sd[: PARKS * HOURS].mean()  # later less is known
    assert model.shape_ == (PARKS, END, HOURS)
    assert model.posterior_.rank == len(model.column_modes_) == 4


@EACH
def test_predictions_of_unknown_rows_and_times_are_those_of_the_prior(data, name, request):
    model = request.getfixturevalue(name)
    X = cells(data.ahead.iloc[:3]).assign(park=["p0", "new", "other"])
    with pytest.warns(UserWarning, match="their prior is used"):
        mean, sd = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert sd[1] > sd[0]
    together = model.predict(cells(data.ahead))
    np.testing.assert_allclose(model.predict(cells(data.ahead.iloc[-3:])), together[-3:], rtol=1e-10)


@EACH
def test_a_model_that_deviates_is_saved(data, name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    for table in (data.train, data.gaps, data.ahead):
        np.testing.assert_array_equal(again.predict(cells(table)), model.predict(cells(table)))
    np.testing.assert_array_equal(
        again.log_score(cells(data.gaps), data.gaps["y"]), model.log_score(cells(data.gaps), data.gaps["y"])
    )
    row = model.posterior_.deviations.row
    row[0] += PARKS
    with pytest.raises(ValueError, match="its deviations do not fit its shape"):
        model.save(tmp_path / "model.npz")
    row[0] -= PARKS


@pytest.mark.filterwarnings("ignore:the draws of 'gibbs' do not agree")
@EACH
def test_draws_go_with_the_moments_and_parts_add_up(data, name, request):
    model = request.getfixturevalue(name)
    ahead = data.ahead.iloc[: 8 * (name == "smooth")]  # days ahead of few draws hold the chance of these
    X = cells(pd.concat([data.gaps.iloc[:6], data.train.iloc[:4], ahead]))
    mean, variance = model.predict_latent(X)
    draws = model.sample_posterior(3000, X, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=6.0 * np.sqrt(variance.max() / 3000) + 1e-9)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.2)
    assert model.sample_y(X, 2, random_state=0).shape == (2, len(X))
    parts = model.explain(park="p1", day=data.train["day"].iloc[0], hour=1)
    assert "park along day" in parts["part"].tolist()
    assert parts["mean"].iloc[:-1].sum() == pytest.approx(parts["mean"].iloc[-1], abs=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("how", [VMP, GIBBS, CEP])
def test_what_is_told_apart_says_what_the_run_said(data, how, monkeypatch):
    """The latent values of the run with one more mode, at its entries, are those of the model."""
    seen = {}

    run = Deviating.run

    def spy(policy, plan):
        pairs, entries = pairs_of(plan.problem, policy.local), plan.problem.entries
        found = run(policy, plan)
        n, first = len(entries.permutation), offsets(plan.problem.shape)
        rows = entries.rows.transpose(0, 2, 1).reshape(-1, 3)[:n].astype(np.int64)
        more = np.append(rows, first[-1] + pairs.of_entry.ravel()[:n, None], axis=1)
        seen["exact"] = latent_components(seen["run"].components(), more)
        seen["found"] = latent_components(found.posterior.components(), rows)
        return found

    monkeypatch.setattr(
        deviations, "told_apart", lambda found, *given: told_apart(seen.setdefault("run", found), *given)
    )
    monkeypatch.setattr(Deviating, "run", spy)
    data.fit(**{**how, "max_iter": 10})
    for found, exact in zip(seen["found"], seen["exact"], strict=True):
        np.testing.assert_allclose(found, exact, atol=1e-6)


def test_messages_find_the_deviations_that_mean_field_finds(data, smooth, passed):
    X = cells(pd.concat([data.train, data.gaps]))
    np.testing.assert_allclose(passed.predict(X), smooth.predict(X), atol=0.3)  # what all days share moves slowly
    found, wanted = (one.posterior_.deviations for one in (passed, smooth))
    assert np.corrcoef(found.mean[0], wanted.mean[0])[0, 1] > 0.95
    np.testing.assert_allclose(found.precision, wanted.precision, rtol=0.3)
    np.testing.assert_allclose(rmse(passed, data.gaps), rmse(smooth, data.gaps), rtol=0.1)
    with pytest.warns(UserWarning, match="stopped after max_iter=3 sweeps"):
        assert not data.fit(**{**CEP, "max_iter": 3}).converged_
    averaged = data.fit(**{**CEP, "method": tc.CEP(messages="averaged")})
    assert rmse(averaged, data.gaps) < 1.1 * rmse(smooth, data.gaps)


def test_vmp_that_deviates_never_lowers_its_bound(data):
    how = {**QUICK, "method": tc.VMP(anneal=0), "init": "random", "tol": 0.0, "lower_limit": None, "max_iter": 40}
    with pytest.warns(UserWarning, match="stopped after"):
        bound = data.fit(**how).trace_["lower_bound"]
    assert (np.diff(bound) > -1e-7 * np.abs(bound[1:])).all()


KINDS = [
    (tc.CPClassifier, lambda f: (f > 0.3).astype(int), {"method": tc.PGGibbs(n_chains=1), "max_iter": 20}),
    (tc.CPClassifier, lambda f: (f > 0.3).astype(int), {"method": "pg-vb", "link": "logit"}),
    (
        tc.CPCountRegressor,
        lambda f: np.rint(np.exp(f)),
        {"method": "pg-gibbs", "likelihood": "negbinomial", "max_iter": 20},
    ),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@each(("model", "values", "how"), KINDS)
def test_labels_and_counts_deviate(data, model, values, how):
    found = data.fit(LOCAL, model, pd.Series(values(data.f)), **{**QUICK, **how})
    assert np.corrcoef(found.predict_latent(cells(data.gaps))[0], data.f[data.gaps.index])[0, 1] > 0.5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each("method", [tc.Gibbs(n_chains=1), tc.VMP(n_starts=1), tc.CEP(n_ensemble=1)])
def test_a_fit_that_deviates_has_the_same_bits_on_any_number_of_threads(method):
    rng = np.random.default_rng(0)
    X = np.unique(rng.integers(0, (40, 60, 6), (9000, 3)), axis=0)
    y, how = rng.standard_normal(len(X)), {"rank": 20, "max_iter": 3, "random_state": 0, "init": "random"}
    prior = {1: tc.Series(local=0)}
    one, two = (tc.CPRegressor(prior=prior, method=method, n_jobs=n, **how).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_weights_features_and_matrices_go_with_deviations(data):
    parks = pd.DataFrame({"size": np.arange(PARKS, dtype=float)}, index=[f"p{n}" for n in range(PARKS)])
    weight = np.where(data.train["hour"] == 3, 0.5, 1.0)
    model = tc.CPRegressor(prior={**LOCAL, "park": tc.Features(parks)}, **VMP)
    model.fit(data.X, data.train["y"], sample_weight=weight)
    assert np.isfinite(model.predict(cells(data.gaps))).all()
    flat = data.train.groupby(["park", "day"], observed=True)["y"].mean().reset_index()
    matrix = tc.CPRegressor(1, prior=LOCAL, method="vmp", random_state=0).fit(flat[["park", "day"]], flat["y"])
    assert matrix.posterior_.deviations.mean.shape[1] == len(flat)


def test_a_model_that_deviates_starts_warm_and_forgets(data, smooth):
    model = data.fit()
    before = model.predict(cells(data.gaps))
    model.fit(data.X, data.train["y"], warm_start=True)
    np.testing.assert_allclose(model.predict(cells(data.gaps)), before, atol=0.3)
    model.forget_entries(data.X.iloc[:5], data=data.X, y=data.train["y"])
    assert model.n_samples_seen_ == len(data.X) - 5


REFUSED = [
    ({"method": "laplace"}, "method 'laplace' cannot take a Series with local="),
    (
        {"method": tc.CEP(keep_messages=True)},
        "with keep_messages=True cannot take a Series with local=; use keep_messages=False",
    ),
    ({"prior": {"day": tc.Series(local="day")}}, "local of the Series of mode 'day' must name another mode; got 'day'"),
    ({"prior": {"day": tc.Series(local="city")}}, "mode must be one of"),
    ({"prior": {"hour": tc.Series(cyclic=True, local="park")}}, "is cyclic, along which rows have no local"),
    (
        {"prior": {"day": tc.Series(local="park"), "hour": tc.Series(local="park")}},
        "one Series of a fit may have local=; got 2",
    ),
]


@each(("how", "sentence"), REFUSED)
def test_what_cannot_deviate_is_refused(data, how, sentence):
    model = tc.CPRegressor(**{"prior": LOCAL, **QUICK, **how})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=sentence):
        model.fit(data.X, data.train["y"])
    assert vars(model) == before


def test_what_knows_nothing_of_deviations_is_refused(data, smooth, tmp_path):
    y = data.train["y"]
    with pytest.raises(ValueError, match="transform knows nothing of rows that deviate"):
        smooth.transform(data.X.assign(park="new").iloc[:5], y.iloc[:5], mode="park")
    with pytest.raises(ValueError, match="recommend of mode 'day' knows nothing"):
        smooth.recommend("day", n=1)
    assert len(smooth.recommend("hour", given={"park": "p0"}, n=1, exclude=None))
    with pytest.raises(ValueError, match="fixed_modes cannot hold rows beside"):
        data.fit().fit(data.X, y, fixed_modes="hour")
    once = data.X.drop_duplicates("park")
    with pytest.raises(ValueError, match="needs a row with entries at two times or more"):
        tc.CPRegressor(prior={"day": tc.Series(order=sorted(set(data.X["day"].astype(str))), local="park")}, **VMP).fit(
            once.assign(day=[f"2024-01-{n:02d}" for n in range(1, 1 + len(once))]), y.loc[once.index]
        )
