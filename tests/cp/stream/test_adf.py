"""Assumed-density filtering: exact on conjugate problems, and nothing but the rows of a batch is touched."""

from __future__ import annotations

import numpy as np
from helpers.problems import build, cells, settings_of
from scipy.stats import norm

from tensorcep.core.loop import run
from tensorcep.core.packing import unpack
from tensorcep.core.persist.records import merge, read_as, split, tree_of
from tensorcep.cp.methods import get_method
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.stream import adf
from tensorcep.cp.stream.adf import learn
from tensorcep.cp.stream.learn import uniform_means
from tensorcep.cp.stream.modes import begin, posterior_of, with_rows
from tensorcep.cp.stream.reservoir import StoredStream, Stream, stored_stream, stream_of
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import Prior, natural_prior

HOW = {"max_iter": 100, "tol": 1e-10}


def begun(shape, R, prior, noise=None):
    """A state before any entry: the posterior is the prior."""
    Lam, eta = natural_prior(prior, shape, R)
    nothing = adf.Posterior(shape, R, Lam, eta, noise, np.zeros(sum(shape), dtype=bool))
    return begin(nothing, Lam, eta, noise, 0.0)


def learned(state, coords, y, likelihood="probit", keep=1.0, time=0.0, **options):
    record = get_likelihood(likelihood)
    batch = adf.batch_of(state, coords, y, record, keep=keep, time=time, seed=0)
    result = learn(get_method("cep", record), batch.problem, settings_of("cep", damping=0.3, **options), **HOW)
    return adf.absorb(state, batch, result.posterior), result


def random_batch(rng, shape=(6, 5, 4), n=12):
    return cells(rng, shape, n), np.where(rng.random(n) > 0.5, 1.0, -1.0)


PRIOR = Prior([0.8, 0.6, 0.7], [1.0, 2.0, 1.5])


def test_adf_is_exact_where_one_row_is_unknown():
    """With every other row known, a row's posterior after two batches is that of Bayesian linear regression."""
    rng = np.random.default_rng(1)
    known = rng.standard_normal((8, 2))
    prior = Prior([np.array([0.3, -0.2]), known], [1.0, 1e12])
    noise = GammaNoise(4e9, 1e9)  # precision 4, as good as known
    y = known @ np.array([1.0, -0.5]) + 0.5 * rng.standard_normal(8)
    coords = np.stack([np.zeros(8, dtype=np.int64), np.arange(8)], axis=1)
    state = begun((1, 8), 2, prior, noise)
    for part in (slice(0, 3), slice(3, 8)):
        state, _ = learned(state, coords[part], y[part], "gaussian")
    posterior = posterior_of(state, 1.0)
    np.testing.assert_allclose(unpack(posterior.Lam[0], 2), np.eye(2) + 4.0 * known.T @ known, rtol=1e-5)
    np.testing.assert_allclose(posterior.eta[0], [0.3, -0.2] + 4.0 * known.T @ y, rtol=1e-4)


def test_adf_one_label_gives_the_tilted_moments():
    """One probit entry whose other row is known: mean and variance of the row as Minka's eqs 49-51 have them."""
    state = begun((1, 1), 1, Prior([0.4, 1.0], [0.5, 1e14]))
    state, _ = learned(state, np.zeros((1, 2), dtype=np.int64), np.array([1.0]))
    posterior = posterior_of(state, 1.0)
    m, v = 0.4, 2.0
    z = m / np.sqrt(1.0 + v)
    r = norm.pdf(z) / norm.cdf(z)
    variance = v - v**2 * r * (z + r) / (1.0 + v)
    np.testing.assert_allclose(1.0 / posterior.Lam[0, 0], variance, rtol=1e-6)
    np.testing.assert_allclose(posterior.eta[0, 0] * variance, m + v * r / np.sqrt(1.0 + v), rtol=1e-6)


def test_adf_first_batch_equals_cep_on_that_batch(rng):
    coords, y = random_batch(rng)
    state, _ = learned(begun((6, 5, 4), 2, PRIOR), coords, y)
    problem = build(coords, y, (6, 5, 4), 2, "probit", PRIOR)
    options = settings_of("cep", damping=0.3, positive=False)
    whole = run(get_method("cep", problem.likelihood), problem, options, **HOW).posterior
    posterior = posterior_of(state, 1.0)
    np.testing.assert_allclose(posterior.Lam, whole.Lam, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.eta, whole.eta, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(posterior.seen, whole.seen)


def test_adf_touches_the_rows_of_the_batch_only(rng):
    state = begun((600, 500, 400), 2, PRIOR)
    before = [mode.Lam.copy() for mode in state.modes]
    coords, y = random_batch(rng)
    state, _ = learned(state, coords + 100, y)
    for k, (mode, old) in enumerate(zip(state.modes, before, strict=True)):
        changed = np.flatnonzero((mode.Lam != old).any(axis=1))
        np.testing.assert_array_equal(changed, np.unique(coords[:, k] + 100))
        np.testing.assert_array_equal(np.flatnonzero(mode.seen), changed)


def test_adf_does_not_depend_on_the_size_of_the_tensor_or_the_order_in_the_batch(rng):
    coords, y = random_batch(rng)
    small, _ = learned(begun((6, 5, 4), 2, PRIOR), coords, y)
    order = rng.permutation(len(y))
    large, _ = learned(begun((60, 5, 40), 2, PRIOR), coords[order], y[order])
    for a, b, n in zip(small.modes, large.modes, (6, 5, 4), strict=True):
        np.testing.assert_array_equal(a.Lam[:n], b.Lam[:n])
        np.testing.assert_array_equal(a.eta[:n], b.eta[:n])


def test_adf_grown_rows_have_their_prior_and_old_rows_stay(rng):
    coords, y = random_batch(rng)
    state, _ = learned(begun((6, 5, 4), 2, PRIOR), coords, y)
    before = posterior_of(state, 1.0)

    def prior_of(k, first, last):
        return np.full((last - first, 3), k + 1.0), np.arange(first, last)[:, None] + np.zeros(2)

    grown = with_rows(state, (6, 9, 40), prior_of)
    posterior = posterior_of(grown, 1.0)
    assert posterior.shape == (6, 9, 40)
    np.testing.assert_array_equal(posterior.Lam[:11], before.Lam[:11])
    np.testing.assert_array_equal(posterior.Lam[11:15], 2.0)
    np.testing.assert_array_equal(posterior.eta[19:, 0], np.arange(4, 40))
    assert not posterior.seen[11:15].any()


def test_adf_uniform_means_do_not_depend_on_how_rows_arrive():
    whole = uniform_means(7, 1, 0, 10, 3)
    parts = [uniform_means(7, 1, a, b, 3) for a, b in ((0, 4), (4, 5), (5, 10))]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert not np.array_equal(whole, uniform_means(7, 2, 0, 10, 3))
    assert not np.array_equal(whole, uniform_means(8, 1, 0, 10, 3))


def test_adf_forgetting_is_a_power_of_the_posterior_between_prior_and_posterior(rng):
    """A row untouched for t units keeps keep^t of what it knew, whether its discount is taken at once or in steps."""
    coords, y = random_batch(rng)
    start = begun((6, 5, 4), 2, PRIOR)
    prior = posterior_of(start, 1.0)
    state, _ = learned(start, coords, y, keep=0.9)
    known = posterior_of(state, 0.9)
    later = posterior_of(state._replace(time=5.0), 0.9)
    np.testing.assert_allclose(later.Lam - prior.Lam, 0.9**5 * (known.Lam - prior.Lam), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(later.eta - prior.eta, 0.9**5 * (known.eta - prior.eta), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(posterior_of(state._replace(time=5.0), 1.0).Lam, known.Lam)
    # a row that the next batch touches starts from the same
    batch = adf.batch_of(state, coords[:1], y[:1], get_likelihood("probit"), keep=0.9, time=5.0, seed=0)
    i = coords[0, 0]
    np.testing.assert_allclose(batch.problem.prior.Lam[0], later.Lam[i], rtol=1e-12)


def test_adf_forgetting_discounts_the_noise_towards_its_prior():
    prior = GammaNoise(1.0, 2.0)
    state = begun((3, 2), 1, Prior([1.0, 1.0], [1.0, 1.0]), prior)._replace(noise=GammaNoise(11.0, 4.0))
    coords = np.zeros((1, 2), dtype=np.int64)
    batch = adf.batch_of(state, coords, np.zeros(1), get_likelihood("gaussian"), keep=0.5, time=2.0, seed=0)
    np.testing.assert_allclose(batch.problem.noise_prior, (1.0 + 10.0 / 4, 2.0 + 2.0 / 4))


def test_adf_stream_survives_packing(rng):
    coords, y = random_batch(rng)
    state, _ = learned(begun((6, 5, 4), 2, PRIOR), coords, y, keep=0.9, time=3.0)
    stream = Stream(state, (None,) * 3, (None,) * 3, 12345678901234567890 % 2**63, True)
    tree, arrays = split(tree_of(stored_stream(stream)))
    again = stream_of(read_as(StoredStream, merge(tree, arrays), ""), (None,) * 3)
    assert again[1:] == stream[1:]
    assert again.state.time == 3.0
    for a, b in zip(stream.state.modes, again.state.modes, strict=True):
        for x, z in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, z)
