"""New rows whose entries are not Gaussian in f: the Gaussian about the mode, against a search that knows no algebra."""

from __future__ import annotations

import numpy as np
from helpers.cases import each
from scipy.optimize import minimize

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.fitted.new_rows import Natural, drawn_rows, new_entries, new_rows
from tensorcep.cp.posterior import Components, EntryTheta
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.counts import ZeroInflation, zero_inflated

# Three columns, of which the last is clamped in the mode of the new rows.
FREE = np.array([True, True, False])
OTHERS = np.array([[1.0, 0.2, 0.3], [0.4, 1.5, -0.5], [1.2, -0.3, 0.2]])
PRECISION, NATURAL = np.array([[0.5, 0.1], [0.1, 0.4]]), np.array([0.2, -0.1])
PRIOR = Natural(pack(PRECISION)[None], NATURAL[None])
ZEROS = zero_inflated(get_likelihood("poisson"), ZeroInflation())
CASES = [
    ("logit", [1.0, 1.0, 1.0], 1.0),
    ("probit", [1.0, -1.0, 1.0], 1.0),
    ("negbinomial", [0.0, 3.0, 0.0], 1.5),
    ("poisson", [50.0, 0.0, 2.0], 1.0),
    ("tobit", [0.0, 1.5, 0.0], 4.0),
    ("zeros", [0.0, 4.0, 1.0], 0.3),
]


def likelihood_of(name):
    return ZEROS if name == "zeros" else get_likelihood(name)


def entries_of(name, y, copies):
    m = len(OTHERS)
    row, others = np.repeat(np.arange(copies), m), np.tile(np.arange(m), copies)[:, None]
    return new_entries(0, row, others, np.tile(y, copies), FREE, likelihood_of(name))


def belief_of(theta, cov=None):
    return Components(OTHERS[None], cov, EntryTheta(np.full((1, 1), theta)))


def draws_of(name, y, theta, n_threads=1, copies=20_000):
    entries, executor = entries_of(name, y, copies), ThreadExecutor(n_threads)
    says = np.zeros((2, len(entries.y)))
    try:
        return drawn_rows(belief_of(theta), 0, entries, PRIOR, says, 3, executor)
    finally:
        executor.close()


def mode_of(name, y, theta, spread=lambda u, n: 0.0):
    """Mode of the posterior, and the inverse of its curvature at given variances of the latent values."""
    likelihood, at = likelihood_of(name), theta
    if name == "zeros":
        likelihood, at = likelihood.by_component(np.array([[theta]])), 0.0

    def falls(u, fixed):
        total = 0.5 * u @ PRECISION @ u - u @ NATURAL
        for n, (z, value) in enumerate(zip(OTHERS, y, strict=True)):
            f = u @ z[:2] + z[2]
            total -= likelihood.logpdf([value], [f], [spread(fixed, n)], [at])[0]
        return total

    u = np.zeros(2)
    for _ in range(30):
        u = minimize(falls, u, args=(u,), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x
    step = 1e-3 * np.eye(2)
    curve = [
        [(falls(u + a + b, u) - falls(u + a - b, u) - falls(u - a + b, u) + falls(u - a - b, u)) / 4e-6 for a in step]
        for b in step
    ]
    return u, np.linalg.inv(curve)


@each(("name", "y", "theta"), [*CASES, ("poisson", [1e6, 0.0, 2.0], 1.0)])
def test_draws_are_of_the_gaussian_about_the_mode(name, y, theta):
    rows, (mode, cov) = draws_of(name, np.array(y), theta), mode_of(name, y, theta)
    np.testing.assert_array_equal(rows[:, 2], 1.0)
    error = np.sqrt(np.diagonal(cov) / len(rows))
    assert (np.abs(rows[:, :2].mean(axis=0) - mode) < 6.0 * error).all()
    np.testing.assert_allclose(np.cov(rows[:, :2].T), cov, atol=0.06 * np.diagonal(cov).max())


@each(("name", "y", "theta"), CASES)
def test_rows_integrate_over_the_other_rows(name, y, theta):
    root = np.random.default_rng(0).normal(size=(3, 3, 3)) * 0.3
    cov = root @ root.swapaxes(1, 2)
    cov[:, 2] = cov[:, :, 2] = 0.0

    def spread(u, n):
        return u @ cov[n, :2, :2] @ u

    executor = ThreadExecutor(1)
    rows = new_rows(belief_of(theta, pack(cov)[None]), 0, entries_of(name, y, 2), PRIOR, executor)
    mode, expected = mode_of(name, y, theta, spread)
    for Lam, eta in zip(unpack(rows.Lam, 2), rows.eta, strict=True):
        np.testing.assert_allclose(np.linalg.solve(Lam, eta), mode, atol=2e-4)
        np.testing.assert_allclose(np.linalg.inv(Lam), expected, rtol=2e-2)


def test_draws_have_the_same_bits_on_two_threads():
    one, two = (draws_of("logit", np.ones(3), 1.0, n, 100) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
