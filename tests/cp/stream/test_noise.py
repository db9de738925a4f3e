"""The noise of a stream of real values, beside its exact law on problems that are conjugate given the noise."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.cp.posterior import GammaNoise

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ROWS, PER_ROW = 30, 3


def drawn(seed):
    """Entries of a matrix of rank 1 whose columns are known; the rows are N(0, 1), the noise precision is 4."""
    rng = np.random.default_rng(seed)
    known, rows = rng.standard_normal((7, 1)), rng.standard_normal(ROWS)
    i, j = rng.permutation(np.tile(np.arange(ROWS), PER_ROW)), rng.integers(0, 7, ROWS * PER_ROW)
    y = rows[i] * known[j, 0] + 0.5 * rng.standard_normal(len(i))
    return np.stack([i, j], axis=1), y, known


def exact_precision(X, y, known):
    """E tau under its prior Gamma(1e-3, 1e-3 mean(y^2)), with the rows integrated out, by quadrature over log tau."""
    tau = np.exp(np.linspace(-4.0, 5.0, 2001))
    log_p = 1e-3 * np.log(tau) - 1e-3 * np.mean(y**2) * tau
    for i in range(ROWS):
        z, values = known[X[X[:, 0] == i, 1], 0], y[X[:, 0] == i]
        log_p += 0.5 * (len(z) * np.log(tau) - np.log1p(tau * (z @ z)))
        log_p -= 0.5 * (tau * (values @ values) - tau**2 * (z @ values) ** 2 / (1.0 + tau * (z @ z)))
    weight = np.exp(log_p - log_p.max())
    return weight @ tau / weight.sum()


def streamed(X, y, known, batches, **params):
    prior = tc.Prior([0.0, known], [1.0, 1e8])
    params = {"method": "cep", "max_iter": 300, "tol": 1e-6, "lower_limit": None, **params}
    model = tc.CPRegressor(1, prior=prior, interactions="cp", init="prior", shape=(ROWS, 7), random_state=0, **params)
    for part in np.array_split(np.arange(len(y)), batches):
        model.partial_fit(X[part], y[part])
    return model


def test_stream_keeps_the_noise_near_the_exact_one():
    """The error of log E tau after three batches of about one entry per row: 0.07; with full messages it is 0.12."""
    errors = []
    for seed in range(25):
        data = drawn(seed)
        errors.append(np.log(streamed(*data, 3).noise_precision_ / exact_precision(*data)))
    assert np.sqrt(np.mean(np.square(errors))) < 0.09


@each("method", ["cep", "vmp"])
def test_noise_of_a_stream_is_no_surer_than_its_entries(method):
    """An entry whose row is hardly known tells little of the noise, one whose row is known half a degree of freedom."""
    X, y, known = drawn(0)
    shape = streamed(X, y, known, 3, method=method).posterior_.noise.a
    assert 10.0 < shape < 30.0
    prior = tc.Prior([np.zeros((ROWS, 1)), known], [1e8, 1e8])
    sure = streamed(X, y, known, 3, method=method).set_params(prior=prior)
    sure.fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    assert sure.posterior_.noise.a == pytest.approx(45.0, abs=0.01)


def test_revisited_messages_to_the_noise_are_those_that_it_holds():
    """All entries but those of the last batch are taken out and learned again: what is left is the prior."""
    X, y, known = drawn(1)
    model = streamed(X, y, known, 3, revisit=90)
    stream = model._result.stream
    sample, noise, prior = stream.reservoir.sample, stream.state.noise, stream.state.noise_prior
    left = GammaNoise(noise.a - sample.a.sum(), noise.b - sample.b.sum())
    np.testing.assert_allclose(left, prior, rtol=1e-3, atol=1e-3)
