"""Streams that go on from a fit, or a first batch, with a series or a graph: rows are those of a dense Gaussian."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from helpers.cases import each
from helpers.coupled import process_covariance

import tensorcep as tc
from tensorcep.core.packing import unpack
from tensorcep.cp.stream import cold_start
from tensorcep.priors import gmrf
from tensorcep.priors.graph import Net

N, M, NOISE = 6, 14, 0.3
EXACT = {"rank": 1, "interactions": "cp", "random_state": 0, "max_iter": 400, "tol": 1e-11, "method": "vmp"}
QUICK = {**EXACT, "max_iter": 60, "tol": 1e-6}
PATH = [(i, i + 1) for i in range(8)]
PRIORS = {
    "series": {0: "learned", 1: tc.Series()},
    "season": {0: "learned", 1: tc.Series(period=3)},
    "graph": {0: "learned", 1: tc.Graph(PATH)},
}
CEP = tc.CEP(n_ensemble=1)


def some_batches(rng):
    """Entries of a product of two vectors, the second one smooth: its rows 0:8, others, and some of both."""
    z, x = rng.standard_normal(N), np.cumsum(0.5 * rng.standard_normal(M)) + 1.0
    batches = []
    for rows in (range(8), (8, 9), (3, 10), (11, 7, 12, 13)):
        coords = np.array([(i, t) for t in rows for i in range(N) if rng.random() < 0.8])
        batches.append((coords, z[coords[:, 0]] * x[coords[:, 1]] + NOISE * rng.standard_normal(len(coords))))
    return batches


@pytest.fixture(scope="module")
def batches():
    return some_batches(np.random.default_rng(5))


@pytest.fixture(autouse=True)
def batch_after_batch(monkeypatch):
    """No entries are kept to be fitted again together: what a batch makes of what was known is looked at."""
    monkeypatch.setattr(cold_start, "MOST_KEPT", 0)


def begun(prior, begin, batches, **how):
    """The model after the first batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(tc.CPRegressor(prior=prior, **{**QUICK, **how}), begin)(*batches[0])


def precision_of(known, of):
    """The joint precision of all rows of a column of a chain."""
    if not isinstance(of, Net):
        return known.precision[0] * np.linalg.inv(process_covariance(of, of.times, known.length[0]))
    L = np.diag(of.matrix.sum(axis=1)) - of.matrix.toarray()
    K = np.eye(of.n) + known.length[0] ** 2 * L
    S = np.diag(np.sqrt(np.diag(np.linalg.inv(K))))
    return known.precision[0] * S @ K @ S


def moments(model, k):
    """Means and variances of the rows of mode k."""
    mode, n = model._result.stream.state.modes[k], model._result.stream.state.sizes[k]
    return mode.eta[:n, 0] / mode.Lam[:n, 0], 1.0 / mode.Lam[:n, 0]


@each("begin", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", PRIORS)
def test_rows_are_those_of_a_dense_gaussian(batches, name, begin):
    """Given the law, the noise and the other rows, entries of a batch are Gaussian in the rows."""
    model = begun(PRIORS[name], begin, batches, **EXACT)
    Lam, eta = np.zeros(M), np.zeros(M)
    for i, (coords, y) in enumerate(batches):
        if i:
            model.partial_fit(coords, y)
        posterior = model.posterior_
        tau = posterior.noise.precision
        mean, variance = posterior.eta[:N, 0] / posterior.Lam[:N, 0], 1.0 / posterior.Lam[:N, 0]
        z, square = mean[coords[:, 0]], (mean**2 + variance)[coords[:, 0]]
        Lam += tau * np.bincount(coords[:, 1], square, M)
        eta += tau * np.bincount(coords[:, 1], z * (y - batches[0][1].mean()), M)
    known, of = model._result.stream.state.chains[1], model._result.stream.state.clocks[1]
    level = known.mean[0] + (known.season[of.phase_of(of.times), 0] if len(known.season) else np.zeros(M))
    prior = precision_of(known, of)
    cov = np.linalg.inv(prior + np.diag(Lam))
    found, spread = moments(model, 1)
    np.testing.assert_allclose(found, cov @ (prior @ level + eta), atol=1e-5)
    np.testing.assert_allclose(spread, np.diag(cov), rtol=1e-4)
    assert known.length[0] > 0.0
    assert model.shape_ == (N, M)


@pytest.mark.parametrize("method", [CEP, "vmp", "laplace"])
@each("name", ["season", "graph"])
def test_stream_from_a_fit_goes_on_as_from_a_first_batch(batches, name, method):
    both = [
        begun(PRIORS[name], begin, batches, method=method) for begin in ("fit", "partial_fit") if method != "laplace"
    ]
    fit = both[0] if both else begun(PRIORS[name], "fit", batches, method=method)
    for model in both or [fit]:
        for coords, y in batches[1:]:
            model.partial_fit(coords, y)
    X = np.concatenate([coords for coords, _ in batches])
    y = np.concatenate([values for _, values in batches])
    assert np.sqrt(np.mean((fit.predict(X) - y) ** 2)) < 1.3 * NOISE
    for model in both[1:]:
        np.testing.assert_allclose(fit.predict(X), model.predict(X), atol=0.3 * NOISE)


@each("name", PRIORS)
@pytest.mark.parametrize("method", [CEP, "vmp"])
def test_stream_from_a_fit_is_saved_killed_and_resumed_to_the_same_bytes(batches, name, method, tmp_path):
    straight = begun(PRIORS[name], "fit", batches, method=method)
    straight.save(tmp_path / "fit.npz")
    again, two = tc.load(tmp_path / "fit.npz"), copy.deepcopy(straight).set_params(n_jobs=2)
    for i, (coords, y) in enumerate(batches[1:]):
        for model in (straight, again, two):
            model.partial_fit(coords, y)
        again.set_params(prior=straight.prior)  # files hold the modes of a prior by text
        for model, file in ((straight, f"straight{i}.npz"), (again, f"again{i}.npz")):
            model.save(tmp_path / file)
        assert (tmp_path / f"straight{i}.npz").read_bytes() == (tmp_path / f"again{i}.npz").read_bytes()
        again = tc.load(tmp_path / f"again{i}.npz")
    np.testing.assert_array_equal(two.posterior_.eta, straight.posterior_.eta)
    np.testing.assert_array_equal(two.posterior_.Lam, straight.posterior_.Lam)


def test_silent_rows_of_a_graph_follow_their_neighbours_and_rows_it_does_not_name_do_not(batches):
    model = begun({0: "learned", 1: tc.Graph([*PATH, (8, 13)])}, "fit", batches)
    belief = model.posterior_
    assert model.shape_[1] == 14
    model.partial_fit(*batches[1])  # rows 8 and 9, neighbours in part
    after, narrow = moments(model, 1)
    assert narrow[13] < 0.9 / belief.Lam[N + 13, 0]
    before = belief.eta[N + 13, 0] / belief.Lam[N + 13, 0]
    assert abs(after[13] - after[8]) < abs(before - after[8])
    model.partial_fit([(0, 15)], [0.0])
    known, (mean, variance) = model._result.stream.state.chains[1], moments(model, 1)
    np.testing.assert_allclose([mean[14], variance[14]], [known.mean[0], 1.0 / known.precision[0]], rtol=1e-9)


def test_columns_of_a_graph_by_themselves_keep_their_messages(batches, monkeypatch):
    """Where a factor of all columns takes too long, each has one of its own: means are the same at the same sites."""
    how = {"rank": 2, "method": "vmp"}
    both = []
    for most in (gmrf.MOST_BOND_WORK, 0.0):
        monkeypatch.setattr(gmrf, "MOST_BOND_WORK", most)
        model = begun({0: "learned", 1: tc.Graph(PATH)}, "fit", batches, **how)
        for coords, y in batches[1:]:
            model.partial_fit(coords, y)
        n = model._result.stream.state.sizes[1]
        assert (np.linalg.eigvalsh(unpack(model._result.stream.state.modes[1].Lam[:n], 2)) > 0.0).all()
        both.append(model.predict(np.concatenate([coords for coords, _ in batches])))
    np.testing.assert_allclose(*both, atol=NOISE)


@each("name", ["series", "graph"])
def test_what_cannot_go_on_is_refused(batches, name):
    what = {"series": "a Series", "graph": "a Graph"}[name]
    coords, y = batches[1]
    fit = begun(PRIORS[name], "fit", batches)
    drawn = begun(PRIORS[name], "fit", batches, method=tc.Gibbs(n_chains=1), max_iter=20)
    plain = begun("learned", "fit", batches).set_params(prior=PRIORS[name])
    for model, sentence in (
        (drawn, f"'gibbs' gives draws, from which partial_fit cannot go on with {what}; use partial_fit"),
        (plain, f"learns {what} from the first batch or fit on, and this one was without; begin with a new model"),
        (copy.copy(fit).set_params(forget=0.1), f"rows of {what} forget as its law says; got forget=0.1; set forget=0"),
        (copy.copy(fit).set_params(revisit=5), f"not one moved by {what}; set revisit=0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.partial_fit(coords, y)
    old = copy.copy(fit)
    old._set(old._result.changed(rows=old._result.rows._replace(posterior=fit.posterior_._replace(sites=()))))
    with pytest.raises(ValueError, match=f"of an earlier version with {what}; fit the model again"):
        old.partial_fit(coords, y)
    assert fit.n_batches_ == 1


def test_rank_of_a_stream_is_that_of_a_fit_where_rows_follow_from_each_other(rng):
    coords = np.argwhere(np.ones((12, 14, 10), dtype=bool))
    y = rng.standard_normal(len(coords))
    for prior, rank in (({1: tc.Series()}, 12), ({1: tc.Graph(PATH)}, 12), ("learned", 8)):
        assert begun(prior, "partial_fit", [(coords, y)], rank="auto", max_iter=1).rank_ == rank
    assert begun({1: tc.Series()}, "partial_fit", [(coords[:60], y[:60])], rank="auto", max_iter=1).rank_ == 8
