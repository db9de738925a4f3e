"""The first entries of a stream learned batch by batch: as a stream of these batches, and where that is done."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.special import expit

import tensorcep as tc
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.model.subsets import some_of
from tensorcep.cp.stream.cold_start import BATCH, Beginning, Way, _plan, run_in_batches
from tensorcep.cp.stream.reservoir import Kept

quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SHAPE = (60, 40, 20)


def positive(n, seed, shape=SHAPE, rank=2):
    """Cells, and a sum of products of positive rows there, centred, with sd 1."""
    s = tc.simulate_cp(shape, rank, n, noise_precision=1e9, prior_mean=0.7, prior_sd=0.6, random_state=seed)
    f = s.tensor.values
    order = np.random.default_rng(seed).permutation(n)
    return s.tensor.coords[order], ((f - f.mean()) / f.std())[order]


def labelled(n, seed):
    X, f = positive(n, seed)
    return X, (np.random.default_rng(seed).random(n) < expit(2.0 * f)).astype(float)


def counted(n, seed):
    X, f = positive(n, seed)
    return X, np.random.default_rng(seed).poisson(np.exp(0.7 * f + 0.5)).astype(float)


def order_of(work):
    """The rows of the input in the order in which they are learned."""
    n = len(work.problem.entries.permutation)
    return work.problem.entries.permutation[np.random.default_rng(n).permutation(n)]


def plan_of(model, X, y, **beside):
    entries = (X, y, SHAPE, tuple(None for _ in SHAPE))
    return plan_fit(model._spec(), entries, None, streaming=True, prior="fixed", **beside)


@quiet
def test_entries_learned_in_batches_are_a_stream_of_these_batches():
    X, y = labelled(3 * BATCH - 100, 1)
    model = tc.CPClassifier(3, method="cep", prior="fixed", shape=SHAPE, random_state=0)
    work = plan_of(model, X, y)
    found = run_in_batches(work, bold=True).posterior
    for rows in np.array_split(order_of(work), 3):
        model.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(model.posterior_.eta, found.eta, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.posterior_.Lam, found.Lam, rtol=1e-6, atol=1e-8)
    assert found.shape == SHAPE
    assert found.seen.sum() == sum(len(np.unique(column)) for column in X.T)


@quiet
@each("beside", ["weights", "exposures"])
def test_weights_and_exposures_go_with_their_entries(beside):
    """Counts of the second batch have next to no weight, or none was seen for next to no time: they tell nothing."""
    X, y = counted(2 * BATCH, 2)
    model = tc.CPCountRegressor(2, method="cep", prior="fixed", likelihood="poisson", shape=SHAPE, random_state=0)
    order, much = order_of(plan_of(model, X, y)), np.ones(len(y))
    much[order[BATCH:]] = 1e-15
    if beside == "weights":
        work = plan_of(model, X, y, power=much)
    else:
        y = np.where(much < 1.0, 0.0, y)
        work = plan_of(model, X, y, extent=much)
    found = run_in_batches(work, bold=True).posterior
    places = np.argsort(work.problem.entries.permutation)[order[:BATCH]]
    entries = some_of(work.problem, np.sort(places)).entries
    alone = work.with_problem(entries=entries, power=None)
    first = alone.policy.run(alone).posterior
    np.testing.assert_allclose(found.eta, first.eta, rtol=1e-4, atol=1e-5)
    told = run_in_batches(plan_of(model, X, y), bold=True).posterior
    assert np.abs(told.eta - first.eta).max() > 1.0


@quiet
@pytest.mark.slow
@pytest.mark.parametrize(("rank", "most"), [(3, 0.65), (6, 0.68)])
def test_stream_of_labels_with_few_entries_per_row_is_better_than_a_constant(rank, most):
    """A constant has .69; so had streams, or .67, that learned all of few entries together."""
    X, f = positive(5000, 1, (100, 80, 30), rank)
    y = (np.random.default_rng(1).random(5000) < expit(1.5 * f)).astype(float)
    model = tc.CPClassifier(8, random_state=0).stream((X[a : a + 500], y[a : a + 500]) for a in range(0, 4000, 500))
    assert -model.log_score(X[4000:], y[4000:]).mean() < most


@quiet
def test_counts_learned_in_batches_are_poisson_ones_where_the_likelihood_is_left_open():
    left_open, named = tc.CPCountRegressor(2, random_state=0), tc.CPCountRegressor(2, likelihood="negbinomial")
    X, y = counted(600, 3)
    y *= np.random.default_rng(3).integers(0, 9, len(y))  # overdispersed
    first = Beginning(Kept(X, y, 0), SHAPE, (None, None, None), None)
    for model, way, likelihood in (
        (left_open, Way("fixed", in_batches=True), "poisson"),
        (left_open, Way("fixed"), "negbinomial"),
        (named, Way("fixed", in_batches=True), "negbinomial"),
    ):
        assert _plan(model._spec(), first, way).problem.likelihood.name == likelihood
    assert left_open.likelihood == "auto"
