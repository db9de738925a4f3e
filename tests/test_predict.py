"""From a posterior and packed rows to moments and draws."""

from __future__ import annotations

import numpy as np
import pytest

from tensorcep.posterior import GammaNoise, Posterior, offsets, pack, unpack
from tensorcep.predict import draw_latent, draw_rows, latent, moments_of_rows, per_mode

SHAPE = (5, 4, 3)


def posterior(rng, R=3, shape=SHAPE):
    root = rng.standard_normal((sum(shape), R, R))
    Lam = root @ root.swapaxes(1, 2) + np.eye(R)
    eta = rng.standard_normal((sum(shape), R))
    return Posterior(shape, R, pack(Lam), eta, GammaNoise(3.0, 2.0), np.ones(sum(shape), dtype=bool))


@pytest.mark.parametrize("R", [1, 3, 8])
def test_moments_of_rows_equal_numpy(rng, R):
    p = posterior(rng, R)
    moments = moments_of_rows(p)
    Lam = unpack(p.Lam, R)
    np.testing.assert_allclose(unpack(moments.cov, R), np.linalg.inv(Lam), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(moments.mean, np.linalg.solve(Lam, p.eta[..., None])[..., 0], rtol=1e-8, atol=1e-10)


def test_moments_of_rows_name_a_row_that_is_no_gaussian(rng):
    p = posterior(rng)
    p.Lam[7] *= -1.0
    with pytest.raises(FloatingPointError, match="row 7 is not positive definite"):
        moments_of_rows(p)


def test_moments_of_no_rows_are_empty():
    p = Posterior((), 2, np.zeros((0, 3)), np.zeros((0, 2)), None, np.zeros(0, dtype=bool))
    assert moments_of_rows(p).mean.shape == (0, 2)


def test_per_mode_splits_in_mode_order(rng):
    moments = moments_of_rows(posterior(rng))
    means, covs = per_mode(moments, SHAPE)
    assert [m.shape for m in means] == [(n, 3) for n in SHAPE]
    np.testing.assert_array_equal(np.concatenate(means), moments.mean)
    np.testing.assert_array_equal(np.concatenate(covs), unpack(moments.cov, 3))


def test_draws_of_rows_have_mean_and_covariance(rng):
    moments, n = moments_of_rows(posterior(rng)), 40_000
    draws = draw_rows(moments, n, rng)
    assert draws.shape == (n, 12, 3)
    cov = unpack(moments.cov, 3)
    sd = np.sqrt(np.einsum("nii->ni", cov))
    assert (np.abs(draws.mean(axis=0) - moments.mean) < 6 * sd / np.sqrt(n)).all()
    centred = draws - moments.mean
    for i in range(3):
        for j in range(3):
            product = centred[..., i] * centred[..., j]
            assert (np.abs(product.mean(axis=0) - cov[:, i, j]) < 6 * product.std(axis=0) / np.sqrt(n)).all()


def test_draw_latent_is_the_cp_sum_of_each_draw(rng, monkeypatch):
    monkeypatch.setattr("tensorcep.predict.CHUNK", 4)  # several chunks, the last of them short
    draws = rng.standard_normal((6, 12, 3))
    rows = np.stack([rng.integers(0, n, 10) for n in SHAPE], axis=1) + offsets(SHAPE)[:-1]
    right = [[np.prod([draw[i] for i in entry], axis=0).sum() for entry in rows] for draw in draws]
    np.testing.assert_allclose(draw_latent(draws, rows), right, rtol=1e-13)


def test_latent_agrees_with_draws(rng):
    moments, n = moments_of_rows(posterior(rng)), 100_000
    rows = np.array([[0, 5, 9], [4, 8, 11]])
    f, v = latent(moments, rows)
    draws = draw_latent(draw_rows(moments, n, rng), rows)
    assert (np.abs(draws.mean(axis=0) - f) < 6 * np.sqrt(v / n)).all()
    square = (draws - f) ** 2
    assert (np.abs(square.mean(axis=0) - v) < 6 * square.std(axis=0) / np.sqrt(n)).all()
    empty = latent(moments, rows[:0])
    assert empty[0].shape == empty[1].shape == (0,)
