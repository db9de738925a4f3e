"""Rows that deviate along a series in streams: dense Gaussian processes say the same of pairs; as users meet it."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.problems import settings_of

import tensorcep as tc
from tensorcep.cp.fitted.model import FittedRows
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.inputs.batches import as_batch
from tensorcep.cp.methods import METHODS
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.stream import cold_start
from tensorcep.cp.stream.adf import absorb, batch_of, learn, prior_by_other_rows
from tensorcep.cp.stream.learn import learn_arrival
from tensorcep.cp.stream.modes import ModeRows, PairRows, StreamState, forecast, rows_together, with_rows
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.coupled import Chain
from tensorcep.priors.deviations import moments
from tensorcep.priors.features import Mode
from tensorcep.priors.series import Series, clock

TAU, KNOWN = 3.0, 1e13
PRECISION, LENGTH = 0.7, 4.0
FIRST = [0.0, 1.0, 2.0, 4.0]  # times of the rows there are, and of later ones in the order in which they come
LATER = [5.0, 6.0, 3.0, 9.0, 7.5]


def kernel(left, right):
    """The covariance of deviations at these times."""
    return np.exp(-np.abs(np.subtract.outer(left, right)) / LENGTH) / PRECISION


class Toy:
    """A stream of one column that is known in both modes, the second one a series, along which rows deviate."""

    def __init__(self, monkeypatch, rng):
        monkeypatch.setattr(Chain, "after", lambda known, *_: known)
        self.rng, self.times, self.u = rng, np.array(FIRST), rng.standard_normal(5)
        of = clock(Series(), Mode("t", Labels(self.times), len(FIRST)))
        one = np.ones(1)
        chain = Chain(one > 0, 0 * one, one, 1.0, one, KNOWN * one, 0 * one, np.zeros((0, 1)))
        n = len(FIRST)
        nothing = Natural(np.zeros((n, 1)), np.zeros((n, 1)))
        along = rows_together(chain, of, nothing)
        row = np.full((3, 1), KNOWN), KNOWN * self.u[:3, None]
        modes = tuple(
            ModeRows(*(part.copy() for part in (*rows, *rows)), np.zeros(m, dtype=bool), np.zeros(m))
            for m, rows in ((3, row), (n, along))
        )
        none = [np.zeros(0) for _ in range(4)]
        pairs = PairRows((0, 1), *np.zeros((2, 0), dtype=np.int64), *none, 1.0, 1.0, PRECISION, LENGTH)
        noise = GammaNoise(1e14, 1e14 / TAU)
        both = {"chains": (None, chain), "clocks": (None, of), "pairs": pairs}
        self.state = StreamState(1, (3, n), modes, noise, noise, 0.0, **both)
        self.seen, self.y = np.zeros((0, 2), dtype=np.int64), np.zeros(0)

    def learn(self, coords):
        """Entries of these rows and times, learned as one batch; times that are new are the next of LATER."""
        coords, old = np.array(coords), self.state.sizes
        y = self.rng.standard_normal(len(coords))
        self.state = with_rows(
            self.state,
            coords.max(axis=0) + 1,
            lambda k, a, b: (np.full((b - a, 1), KNOWN), KNOWN * (self.u if k == 0 else np.ones(9))[a:b, None]),
        )
        labels = LATER[old[1] - len(FIRST) :][: self.state.sizes[1] - old[1]]
        self.times = np.append(self.times, labels)
        self.state = forecast(self.state, old, coords, [None, labels], ["row", "t"])
        how = {"keep": 1.0, "time": self.state.time + 1.0, "seed": 0}
        batch = batch_of(self.state, coords, y, get_likelihood("gaussian"), **how)
        for again in (True, False):
            run = {"callbacks": (), "max_iter": 20, "tol": 1e-14, "n_threads": 1, "verbose": False}
            posterior = learn(METHODS["cep"], batch.problem, settings_of("cep"), **run).posterior
            more = prior_by_other_rows(self.state, batch, posterior) if again else None
            batch = more or batch
        self.state = absorb(self.state, batch, posterior._replace(noise=self.state.noise))
        self.seen, self.y = np.concatenate([self.seen, coords]), np.append(self.y, y)

    def dense(self, row, times):
        """Means and variances of the deviations of a row at these times."""
        own = self.seen[:, 0] == row
        at, y = self.times[self.seen[own, 1]], self.y[own] - self.u[row]
        share = np.linalg.solve(kernel(at, at) + np.eye(len(at)) / TAU, kernel(at, times)).T
        return share @ y, np.diag(kernel(times, times) - share @ kernel(at, times))


def deviations_of(state):
    return state.pairs.deviations(state.clocks[1], state.sizes)


BATCHES = [
    [(0, 0), (0, 1), (1, 1), (2, 3), (0, 1)],  # rows with several times, and a cell that occurs twice
    [(0, 4), (1, 4), (2, 5)],
    [(1, 2), (0, 0), (0, 6)],  # earlier times, one of them new
    [(3, 7), (3, 5), (1, 8)],  # a new row
    [(4, 0)],
]


def test_pairs_after_batches_are_those_of_dense_processes(monkeypatch, rng):
    toy = Toy(monkeypatch, rng)
    for batch in BATCHES:
        toy.learn(batch)
        found, pairs = deviations_of(toy.state), toy.state.pairs
        assert len(found.row) == len(np.unique(toy.seen, axis=0))
        for row in np.unique(found.row):
            own = found.row == row
            np.testing.assert_array_equal(found.time[own], np.sort(found.time[own]))
            mean, variance = toy.dense(row, found.time[own])
            np.testing.assert_allclose(found.mean[0, own], mean, atol=1e-8)
            np.testing.assert_allclose(found.variance[0, own], variance, atol=1e-8)
        counts = np.unique(toy.seen, axis=0, return_counts=True)[1].sum()
        np.testing.assert_allclose(pairs.told_Lam.sum(), TAU * counts, rtol=1e-8)
    assert found.size == 5
    assert len(found.times) == 9


def test_pairs_that_a_batch_brings_and_later_ones_are_forecast(monkeypatch, rng):
    toy = Toy(monkeypatch, rng)
    for batch in BATCHES[:4]:
        toy.learn(batch)
    new = toy.state.pairs.with_new(toy.state.clocks[1], np.array([[0, 7], [1, 3], [1, 4], [2, 0]]))
    assert new.with_new(toy.state.clocks[1], np.array([[1, 3], [2, 0]])) is new
    found = new.deviations(toy.state.clocks[1], toy.state.sizes)
    for row in range(3):
        own = found.row == row
        mean, variance = toy.dense(row, found.time[own])
        np.testing.assert_allclose(found.mean[0, own], mean, atol=1e-8)
        np.testing.assert_allclose(found.variance[0, own], variance, atol=1e-8)
    ahead = np.array([10.0, 12.0, 20.0])
    mean, variance = moments(deviations_of(toy.state), np.full(3, 3), ahead)
    for have, wanted in zip((mean[0], variance[0]), toy.dense(3, ahead), strict=True):
        np.testing.assert_allclose(have, wanted, atol=1e-8)
    assert (np.diff(variance[0]) > 0.0).all()


def test_law_of_deviations_is_learned_on_from_all_pairs(rng):
    """Many rows whose entries hardly err: the scale and length that they were drawn with are found."""
    n, m = 60, 40
    times = np.arange(m, dtype=float)
    of = clock(Series(), Mode("t", Labels(times), m))
    rows, along = (part.ravel() for part in np.indices((n, m)))
    drawn = np.linalg.cholesky(kernel(times, times)) @ rng.standard_normal((m, n))
    told = np.full(n * m, 1e4), 1e4 * drawn.T.ravel()
    pairs = PairRows((0, 1), rows, along, told[0] + 1.0, told[1], *told, 1.0, 1.0, 5.0, 1.0)
    known, own = pairs.chain, pairs.clock(of)
    for _ in range(5):
        known = known.after(own, np.ones(n * m, dtype=bool), *pairs.told)
    assert known.precision[0] * known.length[0] == pytest.approx(PRECISION * LENGTH, rel=0.15)
    assert 0.7 < known.length[0] / LENGTH < 1.45  # lengths are those of a grid
    assert abs(known.mean[0]) < 1e-9


PARKS, DAYS, HOURS, BEGIN, END = 6, 30, 4, 8, 26
QUICK = {"rank": 1, "random_state": 0, "interactions": {"main": 1, "cp": 1}}
LOCAL, WITHOUT = {"day": tc.Series(local="park")}, {"day": tc.Series()}


class Parks:
    """Parks that deviate for days on end, some days of a park without entries: the first days, and one at a time."""

    def __init__(self):
        rng = np.random.default_rng(0)
        i, t, h = (part.ravel() for part in np.indices((PARKS, DAYS, HOURS)))
        noise, g = rng.standard_normal((PARKS, DAYS)), np.zeros((PARKS, DAYS))
        for day in range(DAYS):
            g[:, day] = 0.95 * g[:, day - 1] + np.sqrt(1.0 - 0.95**2) * noise[:, day] if day else noise[:, 0]
        self.f = np.sin(t / 4.0) + np.array([0.5, -0.5, 1.0, 0.0])[h] * (1.0 + 0.2 * i) + g[i, t]
        y = self.f + 0.2 * rng.standard_normal(len(i))
        self.days = pd.date_range("2024-01-01", periods=DAYS + 10, freq="D")
        table = pd.DataFrame({"park": [f"p{n}" for n in i], "day": self.days[t], "hour": h, "y": y})
        gone = (rng.random((PARKS, DAYS)) < 0.25)[i, t]
        self.gaps, self.ahead = table[gone & (t < END)], table[t >= END]
        self.train = table[~gone & (t < END)]
        self.parts = [own for _, own in self.train.groupby(np.maximum(t[self.train.index], BEGIN))]

    def model(self, prior=LOCAL, n=None, parts=None, **how):
        model = tc.CPRegressor(prior=prior, **{**QUICK, **how})
        return model.stream((self.parts if parts is None else parts)[:n], modes=["park", "day", "hour"], value="y")


def cells(table):
    return table[["park", "day", "hour"]]


def rmse(model, table):
    return float(np.sqrt(np.mean((model.predict(cells(table)) - table["y"]) ** 2)))


def learn_parts(model, parts):
    for part in parts:
        model.partial_fit(cells(part), part["y"])
    return model


@pytest.fixture(scope="module")
def data():
    return Parks()


@pytest.fixture(scope="module")
def streamed(data):
    return data.model()


@each("method", ["cep", "vmp"])
def test_rows_that_deviate_are_predicted_better_with_local(data, method, streamed, monkeypatch):
    model = streamed if method == "cep" else data.model(method=method)
    monkeypatch.setattr(cold_start, "MOST_KEPT", 0)  # fitted again together, days alone are learned better, too
    without = data.model(WITHOUT, method=method)
    for name, sign in (("rmse", 1.0), ("log_score", -1.0)):
        found, other = (sign * one.stream_trace_[name][1:].mean() for one in (model, without))
        assert found < other - 0.3
    assert rmse(model, data.gaps) < 0.6 * rmse(without, data.gaps)
    fit = tc.CPRegressor(prior=LOCAL, method="vmp", **QUICK).fit(cells(data.train), data.train["y"])
    assert rmse(model, data.gaps) < 1.1 * rmse(fit, data.gaps)
    lower, upper = model.predict_interval(cells(data.gaps)).T
    assert 0.7 < np.mean((lower < data.gaps["y"]) & (data.gaps["y"] < upper)) <= 1.0


def test_forecasts_of_a_stream_with_local_spread(data, streamed):
    X = pd.DataFrame({"park": "p1", "day": data.days[END - 1 : END + 12], "hour": 2})
    mean, sd = streamed.predict(X, return_std=True)
    assert (np.diff(sd) > 0.0).all()
    with pytest.warns(UserWarning, match="their prior is used"):
        new = streamed.predict(X.assign(park="new").iloc[:1], return_std=True)
    assert new[1] > sd[0]
    assert np.isfinite(mean).all()
    parts = streamed.explain(park="p1", day=data.days[END - 1], hour=1)
    assert "park along day" in parts["part"].tolist()


@each("method", ["cep", "vmp"])
def test_first_batch_with_local_is_the_fit(data, method):
    how = {**QUICK, "prior": LOCAL, "method": tc.CEP(n_ensemble=1) if method == "cep" else method}
    one = tc.CPRegressor(**how).partial_fit(cells(data.train), data.train["y"])
    fit = tc.CPRegressor(**how).fit(cells(data.train), data.train["y"])
    X = cells(pd.concat([data.train, data.gaps, data.ahead]))
    np.testing.assert_allclose(one.predict(X), fit.predict(X), rtol=1e-9)
    pairs = one._result.stream.state.pairs
    again = rows_together(pairs.chain, pairs.clock(one._result.stream.state.clocks[1]), pairs.told)
    mean = again.eta[:, 0] / again.Lam[:, 0], pairs.eta / pairs.Lam
    np.testing.assert_allclose(*mean, atol=0.02 * np.std(mean[1]))  # one length in place of the expected one


def test_what_a_batch_is_expected_to_be_is_what_is_predicted(data):
    """Pairs of a batch are forecast as predictions are: the prequential score is that of the cells before."""
    model, part = data.model(n=5), data.parts[5]
    score = model.log_score(cells(part), part["y"]).mean()
    batch = as_batch(cells(part), part["y"])
    told = learn_arrival(model._spec(), model._result, batch, model._commit)["log_score"]
    assert told == pytest.approx(score, rel=1e-6)


def test_labels_and_counts_of_streams_deviate(data):
    rng = np.random.default_rng(1)
    for cls, y in (
        (tc.CPClassifier, (data.f + 0.3 * rng.standard_normal(len(data.f)) > 0.3).astype(int)),
        (tc.CPCountRegressor, rng.poisson(np.exp(np.clip(data.f, -4.0, 3.0)))),
    ):
        model = cls(prior=LOCAL, **QUICK)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learn_parts(model, [part.assign(y=y[part.index]) for part in data.parts])
        f = model.predict_latent(cells(data.gaps))[0]
        assert np.corrcoef(f, data.f[data.gaps.index])[0, 1] > 0.7


@pytest.mark.parametrize("method", ["cep", "vmp"])
def test_stream_with_local_goes_on_after_files_and_kills_with_the_same_bits(data, method, tmp_path, monkeypatch):
    model = data.model(n=6, method=method)
    model.save(tmp_path / "model.npz")
    again, killed = tc.load(tmp_path / "model.npz"), copy.deepcopy(model)
    two = copy.deepcopy(model).set_params(n_jobs=2)
    late = data.gaps.iloc[:9].assign(park="new")  # a new row at earlier days
    parts = [*data.parts[6:9], late]
    with monkeypatch.context() as patch:
        patch.setattr(tc.CPRegressor, "_set", lambda *_: 1 / 0)
        for part in parts[:1]:
            with pytest.raises(ZeroDivisionError):
                killed.partial_fit(cells(part), part["y"])
    X = cells(data.ahead)
    np.testing.assert_array_equal(killed.predict(X), model.predict(X))
    for one in (model, again, killed, two):
        learn_parts(one, parts)
    for one, name in ((model, "straight"), (again, "again"), (killed, "killed")):
        one.save(tmp_path / f"{name}.npz")
    straight = (tmp_path / "straight.npz").read_bytes()
    assert (tmp_path / "again.npz").read_bytes() == straight
    assert (tmp_path / "killed.npz").read_bytes() == straight
    for one in (again, two):
        np.testing.assert_array_equal(one.predict(X, return_std=True), model.predict(X, return_std=True))


def test_a_file_whose_pairs_are_none_of_the_stream_is_refused(data, tmp_path):
    model = data.model(n=3)
    pairs = model._result.stream.state.pairs
    for changed in (
        {"row": pairs.row + PARKS},
        {"along": pairs.along[::-1].copy()},
        {"precision": -1.0},
        {"modes": (0, 2)},
    ):
        state = model._result.stream.state._replace(pairs=pairs._replace(**changed))
        bad = copy.copy(model)
        rows = FittedRows(model.posterior_, model._result.belief, model.labels_)
        stream = model._result.stream._replace(state=state)
        bad._set(model._result.changed(rows=rows, stream=stream))
        with pytest.raises(ValueError, match="its deviations do not fit its stream"):  # as a load would
            bad.save(tmp_path / "bad.npz")


@pytest.mark.parametrize("method", ["vmp", tc.CEP(n_ensemble=2), "pg-vb"])
def test_streams_go_on_from_fits_with_local(data, method, tmp_path):
    first, y = pd.concat(data.parts[:6]), None
    cls = tc.CPRegressor
    if method == "pg-vb":
        cls, y = tc.CPClassifier, (data.f > 0.3).astype(int)
    how = {"link": "logit"} if method == "pg-vb" else {}
    model = cls(prior=LOCAL, method=method, **QUICK, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(cells(first), first["y"] if y is None else y[first.index])
        model.save(tmp_path / "fit.npz")
        again, n = tc.load(tmp_path / "fit.npz"), model.posterior_
        for one in (model, again):
            learn_parts(one, [p if y is None else p.assign(y=y[p.index]) for p in data.parts[6:]])
    assert model.posterior_.deviations.mean.shape == (1, len(data.train.drop_duplicates(["park", "day"])))
    assert model.posterior_.shape[1] == END > n.shape[1]
    np.testing.assert_array_equal(again.predict(cells(data.ahead)), model.predict(cells(data.ahead)))
    f = model.predict_latent(cells(data.gaps))[0]
    assert np.corrcoef(f, data.f[data.gaps.index])[0, 1] > 0.9
    if y is None:
        assert rmse(model, data.gaps) < 0.45


def test_what_a_stream_cannot_do_with_local_is_refused(data, monkeypatch):
    part, later = data.parts[0], data.parts[1]
    for how, sentence in (
        ({"forget": 0.1}, "forget as its law says"),
        ({"revisit": 5}, "set revisit=0"),
        ({"method": "pg-vb"}, "learns no streams"),
        ({"prior": {"day": tc.Series(local="day")}}, "must name another mode"),
    ):
        model = tc.CPRegressor(**{"prior": LOCAL, **QUICK, **how})
        with pytest.raises(ValueError, match=sentence):
            model.partial_fit(cells(part), part["y"])
        assert not hasattr(model, "n_batches_")
    plain = data.model(WITHOUT, n=1).set_params(prior=LOCAL)
    with pytest.raises(ValueError, match="learns a Series with local= from the first batch or fit on, and this one"):
        plain.partial_fit(cells(later), later["y"])
    fit = tc.CPRegressor(prior=WITHOUT, method="vmp", **QUICK).fit(cells(part), part["y"]).set_params(prior=LOCAL)
    with pytest.raises(ValueError, match="and this one was without; begin with a new model"):
        fit.partial_fit(cells(later), later["y"])
    local = tc.CPRegressor(prior=LOCAL, method="vmp", **QUICK).fit(cells(part), part["y"])
    of = local.posterior_.deviations._replace(told=None)
    local._set(
        local._result.changed(rows=local._result.rows._replace(posterior=local.posterior_._replace(deviations=of)))
    )
    with pytest.raises(ValueError, match="from a file of an earlier version with a Series"):
        local.partial_fit(cells(later), later["y"])
    draws = tc.CPRegressor(prior=LOCAL, method=tc.Gibbs(n_chains=1), max_iter=20, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws.fit(cells(part), part["y"])
    with pytest.raises(ValueError, match="'gibbs' gives draws, from which partial_fit cannot go on with a Series"):
        draws.partial_fit(cells(later), later["y"])
    monkeypatch.setattr(cold_start, "MOST_KEPT", 10)
    with pytest.raises(ValueError, match="stream with a Series keeps no entries: pass them as data="):
        data.model(n=2).forget_entries(cells(part.iloc[:2]))


def test_a_stream_with_local_forgets_entries_by_a_fit(data):
    model = data.model(n=3).set_params(max_iter=20, tol=1e9)
    known = pd.concat(data.parts[:3])
    model.forget_entries(cells(known.iloc[:4]), data=cells(known), y=known["y"])
    assert model.n_samples_seen_ == len(known) - 4
    assert model.posterior_.deviations is not None


def test_weights_features_and_scores_go_with_local_in_streams(data):
    parks = pd.DataFrame({"size": np.arange(PARKS, dtype=float)}, index=[f"p{n}" for n in range(PARKS)])
    model, told = tc.CPRegressor(prior={**LOCAL, "park": tc.Features(parks)}, **QUICK), []
    parts = [part.assign(w=np.where(part["hour"] == 3, 0.5, 1.0)) for part in data.parts[:5]]
    how = {"modes": ["park", "day", "hour"], "value": "y", "sample_weight": "w", "scores": told.append}
    model.stream(parts, **how, batch_size=200, first_batch=len(parts[0]))
    found = pd.concat(told)
    assert len(found) == sum(map(len, parts))
    assert np.isfinite(found["surprise"].iloc[len(parts[0]) :]).all()
    assert model._result.stream.state.maps[0] is not None
    assert np.isfinite(model.predict(cells(data.ahead))).all()
    with pytest.raises(ValueError, match="recommend of mode 'day' knows nothing"):
        model.recommend("day", n=1)
