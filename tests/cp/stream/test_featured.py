"""Features of rows in streams: the map that batches teach is that of all rows, cold starts, files, refusals."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse

import tensorcep as tc
from tensorcep.core.packing import offsets, unpack
from tensorcep.priors.base import ModePrior
from tensorcep.priors.by_mode import PriorByMode

N, M, KNOWN = 60, 25, 45
HOW = {"rank": 1, "interactions": "main+cp", "random_state": 0, "max_iter": 60, "tol": 1e-3}


class Ratings:
    """Items whose factor and main effect follow their features; the last ones come late, or never."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.items = pd.DataFrame({"age": rng.standard_normal(N)}, index=[f"i{n:02}" for n in range(N)])
        self.items["kind"] = rng.choice(["a", "b"], N)
        age, main = self.items["age"].to_numpy(), 1.5 * (self.items["kind"] == "a").to_numpy()
        i, j = (part.ravel() for part in np.indices((N, M)))
        u, main = age + 0.2 * rng.standard_normal(N), main + 0.2 * rng.standard_normal(N)
        y = u[i] * rng.standard_normal(M)[j] + main[i] + 0.3 * rng.standard_normal(len(i))
        table = pd.DataFrame({"item": self.items.index[i], "user": j, "y": y})
        early = rng.permutation(np.flatnonzero((i < 25) & (rng.random(len(i)) < 0.5)))
        later = rng.permutation(np.flatnonzero((i < KNOWN) & (rng.random(len(i)) < 0.4)))
        self.parts = [table.iloc[part] for part in (early, *np.array_split(later, 4))]
        self.cold = table[i >= KNOWN]
        self.prior = {"item": tc.Features(self.items)}

    def model(self, n=5, **how):
        model = tc.CPRegressor(**{"prior": self.prior, **HOW, **how})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for part in self.parts[:n]:
                model.partial_fit(part[["item", "user"]], part["y"])
        return model

    def rmse(self, model):
        return float(np.sqrt(np.mean((model.predict(self.cold[["item", "user"]]) - self.cold["y"]) ** 2)))


@pytest.fixture(scope="module")
def data():
    return Ratings()


@pytest.fixture(scope="module")
def streamed(data):
    return data.model()


def stored_moments(state):
    """Means (n, R) and covariances of the rows of the first mode that have entries, as the stream holds them."""
    mode, n = state.modes[0], state.sizes[0]
    seen = mode.seen[:n]
    cov = np.linalg.inv(unpack(mode.Lam[:n][seen], state.rank))
    return seen, np.einsum("nij,nj->ni", cov, mode.eta[:n][seen]), cov.sum(axis=0)


@each("thin", [False, True])
def test_map_after_batches_is_that_of_all_rows_at_once(data, streamed, thin):
    """Sums that batches changed are those over all rows, and the law is the conjugate one of `regression`."""
    model = streamed
    if thin:
        X = sparse.csr_array(np.c_[data.items["age"], data.items["kind"] == "a"].astype(float))
        model = tc.CPRegressor(**{**HOW, "prior": {0: tc.Features(X)}})
        for part in data.parts[:3]:
            cells = np.c_[part["item"].str[1:].astype(int), part["user"]]
            model.partial_fit(cells, part["y"].to_numpy())
    state = model._result.stream.state
    known, design, free = state.maps[0], state.designs[0], state.maps[0].free
    seen, mean, cov = stored_moments(state)
    at = np.flatnonzero(seen)
    assert known.rows == len(at) > 25
    some = design.at(at)
    np.testing.assert_allclose(known.gram, some.gram(), atol=1e-9)
    np.testing.assert_allclose(known.cross, some.transposed(mean[:, free] - known.centre), atol=1e-9)
    lines = np.zeros((0, 2)), np.zeros((0, 2))
    expected = model._result.expected
    plain = PriorByMode(*lines, expected.mean[:1], expected.scale[:1], free[None], expected.strength)
    prior = replace(plain, designs=[design]).for_rows([np.isin(np.arange(len(design.described)), at)])
    now = ModePrior(np.zeros((1, state.rank)), np.eye(state.rank)[None])
    modes = prior.expectation(now, prior.learn([mean], [cov]))
    np.testing.assert_allclose(known.mean, modes.mean[0, free], atol=1e-6)
    np.testing.assert_allclose(known.precision, modes.precision[0][np.ix_(free, free)], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(known.coef, modes.slopes[0].coef[:, free], atol=1e-6)
    unseen = ~np.isin(np.arange(len(design.described)), at)
    shift = prior.shift(0, modes)[unseen] + modes.mean[0]
    np.testing.assert_allclose(model.factors_[0][unseen][:, free], shift[:, free], atol=1e-6)
    unsure = 1.0 + prior.unsure(0, modes, unseen)
    cov = np.linalg.inv(modes.precision[0][np.ix_(free, free)])
    found = model.factor_covs_[0][unseen][:, free][:, :, free]
    np.testing.assert_allclose(found, unsure[:, None, None] * cov, rtol=1e-4)


def test_later_batches_teach_the_map_and_cold_rows_follow(data, streamed):
    plain = data.model(prior="learned")
    with pytest.warns(UserWarning, match="prior is used"):
        without = data.rmse(plain)
    first = data.rmse(data.model(1))
    assert data.rmse(streamed) < min(0.55, first)
    assert data.rmse(streamed) < 0.5 * without
    mean, sd = streamed.predict(data.cold[["item", "user"]], return_std=True)
    assert 0.7 < np.mean((mean - data.cold["y"]) ** 2) ** 0.5 / np.mean(sd**2) ** 0.5 < 1.5
    assert streamed.feature_effects_["feature"].iloc[0] in ("age", "kind=a", "kind=b")


@pytest.mark.parametrize("how", [{}, {"method": "vmp"}, {"forget": 0.05}])
def test_stream_with_features_goes_on_after_save_and_load_with_the_same_bits(data, how, tmp_path):
    model = data.model(2, **how)
    model.save(tmp_path / "model.npz")
    again, straight = tc.load(tmp_path / "model.npz"), copy.deepcopy(model)
    new = pd.DataFrame({"item": ["new", "new", "i50"], "user": [0, 1, 2], "y": [0.1, 0.2, 0.3]})
    for one in (again, straight):
        for part in (data.parts[2], new):
            one.partial_fit(part[["item", "user"]], part["y"])
    for one, name in ((again, "again"), (straight, "straight")):
        one.save(tmp_path / f"{name}.npz")
    files = [np.load(tmp_path / f"{name}.npz") for name in ("again", "straight")]
    assert files[0].files == files[1].files
    for name in files[0].files:
        if files[0][name].dtype.kind == "f":
            np.testing.assert_array_equal(files[0][name], files[1][name])
    assert again.shape_[0] == N + 1
    np.testing.assert_array_equal(
        again.predict(data.cold[["item", "user"]]), straight.predict(data.cold[["item", "user"]])
    )


def test_batch_that_fails_changes_nothing(data):
    model = data.model(2)
    before, map_before = model.predict(data.cold[["item", "user"]]), model._result.stream.state.maps[0]
    with pytest.raises(ValueError, match="nan"):
        model.partial_fit(data.parts[2][["item", "user"]], np.full(len(data.parts[2]), np.nan))
    assert model._result.stream.state.maps[0] is map_before
    np.testing.assert_array_equal(model.predict(data.cold[["item", "user"]]), before)


@pytest.mark.parametrize("method", [tc.CEP(n_ensemble=2), "vmp", "laplace"])
def test_stream_goes_on_from_a_fit_with_features(data, method, tmp_path):
    first = data.parts[0]
    model = tc.CPRegressor(**{**HOW, "prior": data.prior, "method": method}).fit(first[["item", "user"]], first["y"])
    model.save(tmp_path / "model.npz")
    for one in (tc.load(tmp_path / "model.npz"), model):
        for part in data.parts[1:]:
            one.partial_fit(part[["item", "user"]], part["y"])
        assert data.rmse(one) < 0.6
    known = model._result.stream.state.maps[0]
    assert known.rows == model._result.stream.state.modes[0].seen.sum() > 25


@each(
    ("how", "sentence"),
    [
        (
            {"revisit": 10},
            "revisit holds messages beside a prior that stays, not one moved by Features; set revisit=0",
        ),
        ({"method": "laplace"}, "learns no streams"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(data, how, sentence):
    part = data.parts[0]
    model = tc.CPRegressor(**{**HOW, "prior": data.prior, **how})
    before = dict(vars(model))
    with pytest.raises(ValueError, match=sentence):
        model.partial_fit(part[["item", "user"]], part["y"])
    assert vars(model) == before


def test_streams_that_began_otherwise_are_refused(data, streamed):
    part = data.parts[0]
    X, y = part[["item", "user"]], part["y"]
    drawn = tc.CPRegressor(prior=data.prior, method=tc.Gibbs(n_chains=1), rank=1, max_iter=10, random_state=0)
    with pytest.warns(UserWarning, match="was cut short"):
        drawn.fit(X, y)
    with pytest.raises(
        ValueError, match="'gibbs' gives draws, from which partial_fit cannot go on with Features; use .*'cep'"
    ):
        drawn.partial_fit(X, y)
    plain = tc.CPRegressor(**{**HOW, "prior": "learned"}).partial_fit(X, y).set_params(prior=data.prior)
    with pytest.raises(ValueError, match="learns Features from the first batch or fit on, and this one was without"):
        plain.partial_fit(X, y)
    with pytest.raises(ValueError, match="stream with Features keeps no entries: pass them as data="):
        data.model(1, forget=0.1).forget_entries(X.iloc[:2])
    kept = data.model(1).forget_entries(X.iloc[:2])
    assert kept.n_samples_seen_ == len(X) - 2
    again = copy.deepcopy(streamed).forget_entries(X.iloc[:2], data=X, y=y)
    assert again.n_samples_seen_ == len(X) - 2
    assert offsets(again.shape_)[1] == N
