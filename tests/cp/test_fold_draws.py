"""Draws of new rows whose entries are not Gaussian in f, against quadrature."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.core.components import Components, EntryTheta
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import pack
from tensorcep.cp.fitted.new_row_draws import drawn_rows, row_draws
from tensorcep.cp.fitted.new_rows import Natural, NewEntries, with_index
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.arrays import log_density

# Three columns, of which the last is clamped in the mode of the new rows; all of which have the same entries.
FREE, COPIES = np.array([True, True, False]), 20_000
OTHERS = np.array([[1.0, 0.2, 0.3], [0.4, 1.5, -0.5], [1.2, -0.3, 0.2]])
PRECISION, NATURAL = np.array([[0.5, 0.1], [0.1, 0.4]]), np.array([0.2, -0.1])


def draws_of(likelihood, y, theta, n_threads=1, copies=COPIES):
    m = len(OTHERS)
    row, others = np.repeat(np.arange(copies), m), np.tile(np.arange(m), copies)[:, None]
    entries = with_index(NewEntries(0, row, others, np.tile(y, copies), copies))
    belief = Components(OTHERS[None], None, EntryTheta(np.full((1, 1), theta)))
    executor = ThreadExecutor(n_threads)
    prior = Natural(pack(PRECISION)[None], NATURAL[None])
    try:
        return drawn_rows(belief, 0, row_draws(likelihood, entries, FREE, False, 3), prior, executor)
    finally:
        executor.close()


def moments_by_quadrature(likelihood, y, theta):
    """Mean and covariance of the free columns, and the mode, on a grid."""
    side = np.linspace(-12.0, 16.0, 301)
    u = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = u @ NATURAL - 0.5 * np.einsum("ni,ij,nj->n", u, PRECISION, u)
    for z, value in zip(OTHERS, y, strict=True):
        f = u @ z[:2] + z[2]
        log_p += log_density(likelihood.loglik, np.full(len(f), value), f, np.full(len(f), theta))[0]
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ u
    return mean, (u - mean).T @ ((u - mean) * p[:, None]), u[np.argmax(p)]


@each(
    ("name", "y", "theta"),
    [("logit", [1.0, 1.0, 1.0], 1.0), ("probit", [1.0, -1.0, 1.0], 1.0), ("negbinomial", [0.0, 3.0, 0.0], 1.5)],
)
def test_drawn_rows_have_the_moments_of_the_posterior(name, y, theta):
    likelihood = get_likelihood(name)
    rows = draws_of(likelihood, np.array(y), theta)
    mean, cov, mode = moments_by_quadrature(likelihood, y, theta)
    error = np.sqrt(np.diagonal(cov) / COPIES)
    np.testing.assert_array_equal(rows[:, 2], 1.0)
    assert (np.abs(rows[:, :2].mean(axis=0) - mean) < 6.0 * error).all()
    assert (np.abs(mode - mean) > 12.0 * error).any()  # draws about the mode would be seen
    np.testing.assert_allclose(np.cov(rows[:, :2].T), cov, atol=0.06 * np.diagonal(cov).max())


def test_drawn_rows_have_the_same_bits_on_two_threads():
    one, two = (draws_of(get_likelihood("logit"), np.ones(3), 1.0, n, 100) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
