"""The samplers in the free columns: against plain least squares, and what becomes of the clamped ones."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import settings_of, structured
from helpers.samplers import with_theta

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import run
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.methods import METHODS

# Modes with four, three and two free columns; no two columns are free in the same modes.
UNEQUAL = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)
PAIRS = [("gibbs", "gaussian"), ("gibbs", "probit"), ("pg-gibbs", "logit")]
EVERY = each(("method", "likelihood"), PAIRS)


def sample(p, method="gibbs", sweeps=5, threads=1, **given):
    options = settings_of(method, sweeps, **{"burn_in": 0, "n_chains": 1, "thin": 1, **given})
    return run(METHODS[method], p, options, max_iter=sweeps, tol=0.0, n_threads=threads)


def least_squares_sweep(p, coords, y):
    """The rows after each mode's in turn went to their conditional mean under the prior with precision 1e-12 / 1e12."""
    rows, first = p.start.copy(), offsets(p.shape)
    packed = coords + first[:-1]
    Lam = unpack(p.prior.Lam, p.rank)
    for k in range(len(p.shape)):
        mine = np.flatnonzero(p.free[k])
        z = np.prod([rows[packed[:, j]] for j in range(len(p.shape)) if j != k], axis=0)
        offset = z[:, ~p.free[k]].sum(axis=1)
        for i in range(first[k], first[k + 1]):
            here = packed[:, k] == i
            A = z[here][:, mine].T @ z[here][:, mine] + 1e-12 * Lam[i][np.ix_(mine, mine)]
            b = z[here][:, mine].T @ (y - offset)[here] + 1e-12 * p.prior.eta[i, mine]
            rows[i, mine] = np.linalg.solve(A, b)
    return rows


def entries_of(p):
    """Coordinates and values, in the order of the packed entries."""
    n, K = len(p.entries.permutation), len(p.shape)
    rows = p.entries.rows.transpose(0, 2, 1).reshape(-1, K)[:n]
    return rows - offsets(p.shape)[:-1], p.entries.y.ravel()[:n]


@each(("K", "free"), [(2, None), (3, None), (3, UNEQUAL), (4, None)])
def test_a_sweep_with_little_noise_is_one_of_alternating_least_squares(rng, K, free):
    """A noise precision of 1e12 leaves draws at the conditional mean."""
    shape = {2: (12, 10), 3: (9, 8, 7), 4: (6, 6, 5, 6)}[K]
    p, _ = structured(rng, K, n=10000, free=free, shape=shape)
    gibbs, options = METHODS["gibbs"], settings_of("gibbs", n_chains=1, noise="sampled")
    state = gibbs.init(p, options, ThreadExecutor(1))
    state = with_theta(state, np.full((1, 1), 1e12))
    state, _ = gibbs.step(state, p, options, ThreadExecutor(1))
    found = state.rows[0]
    np.testing.assert_allclose(found, least_squares_sweep(p, *entries_of(p)), rtol=1e-3, atol=1e-3)


@EVERY
@each("kind", [None, "learned", "ard"])
def test_draws_hold_clamped_columns_at_exactly_one(rng, method, likelihood, kind):
    p, _ = structured(rng, 3, likelihood, kind, free=UNEQUAL)
    rows = sample(p, method, n_chains=2).posterior.rows
    free = np.repeat(UNEQUAL, p.shape, axis=0)
    assert rows.shape == (2, 5, sum(p.shape), 5)
    assert (rows[:, :, ~free] == 1.0).all()
    assert (rows.std(axis=(0, 1))[free] > 1e-3).all()


def test_the_fit_of_a_structured_draw_is_that_of_its_parts(rng):
    p, _ = structured(rng, 3)
    result = sample(p)
    rows, tau = result.posterior.rows[0, -1], result.posterior.theta[0, -1, 0]
    coords, y = entries_of(p)
    parts = rows[coords + offsets(p.shape)[:-1]].prod(axis=1)  # every column adds its product
    wanted = np.mean(0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * (y - parts.sum(axis=1)) ** 2)
    assert result.trace["train_score"][-1] == pytest.approx(wanted, rel=1e-9)


@EVERY
def test_structured_draws_are_the_same_on_two_threads(rng, method, likelihood):
    p, _ = structured(rng, 3, likelihood, "learned", n=2000, shape=(40, 35, 20))
    one, two = (sample(p, method, 3, threads).posterior.rows for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_free_columns_sample_what_tight_priors_do(rng):
    """The posterior of the latent values, against the same model with the clamped columns drawn like others."""
    p, whole = structured(rng, 3, n=200)  # of sixty entries a chain stays long on one of two sides
    moments = []
    for problem in (p, whole):
        draws = sample(problem, sweeps=3000, burn_in=200, thin=2).posterior.rows[0]
        f = draws[:, entries_of(p)[0] + offsets(p.shape)[:-1]].prod(axis=2).sum(axis=2)
        moments.append((f.mean(axis=0), f.std(axis=0)))
    np.testing.assert_allclose(moments[0][0], moments[1][0], atol=0.15 * moments[0][1].max())
    np.testing.assert_allclose(moments[0][1], moments[1][1], rtol=0.25)
