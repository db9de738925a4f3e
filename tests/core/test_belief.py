"""The records of prior and posterior: packing, natural parameters, the noise."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.posterior import GammaNoise
from tensorcep.priors.fixed import Prior, natural_prior


@each("R", [1, 2, 3, 7])
def test_pack_and_unpack_are_inverse_and_by_rows(rng, R):
    A = rng.standard_normal((4, 2, R, R))
    A = A + A.swapaxes(-1, -2)
    packed = pack(A)
    assert packed.shape == (4, 2, R * (R + 1) // 2)
    np.testing.assert_array_equal(unpack(packed, R), A)
    for i in range(R):
        for j in range(i + 1):
            np.testing.assert_array_equal(packed[..., i * (i + 1) // 2 + j], A[..., i, j])


def test_offsets_are_first_rows_and_the_total():
    np.testing.assert_array_equal(offsets((3, 1, 5)), [0, 3, 4, 9])
    assert offsets((3, 1)).dtype == np.int64


def test_natural_prior_takes_every_form_of_mean_and_precision(rng):
    root = rng.standard_normal((4, 2, 2))
    full = root @ root.swapaxes(1, 2) + np.eye(2)
    forms = [
        (2, 0.5, 3.0, np.eye(2) * 3.0, [0.5, 0.5]),
        (3, [1.0, -2.0], np.array([3.0, 5.0]), np.diag([3.0, 5.0]), [1.0, -2.0]),
        (2, np.array([[1.0, 2.0], [3.0, 4.0]]), full[0], full[0], [[1.0, 2.0], [3.0, 4.0]]),
        (4, 0.0, full, full, 0.0),
    ]
    shape = tuple(n for n, *_ in forms)
    Lam, eta = natural_prior(Prior([f[1] for f in forms], [f[2] for f in forms]), shape, 2)
    first = offsets(shape)
    for k, (n, _, _, precision, mean) in enumerate(forms):
        rows = slice(first[k], first[k + 1])
        right = np.broadcast_to(precision, (n, 2, 2))
        np.testing.assert_allclose(unpack(Lam[rows], 2), right)
        np.testing.assert_allclose(eta[rows], np.einsum("nij,nj->ni", right, np.broadcast_to(mean, (n, 2))))
    assert Lam.flags.c_contiguous
    assert eta.flags.c_contiguous


def test_gamma_noise_moments_are_those_of_the_gamma_distribution(rng):
    noise = GammaNoise(7.0, 3.0)
    tau = rng.gamma(7.0, 1.0 / 3.0, 400_000)
    assert abs(tau.mean() - noise.precision) < 6 * tau.std() / np.sqrt(tau.size)
    inverse = 1.0 / tau
    assert abs(inverse.mean() - noise.variance) < 6 * inverse.std() / np.sqrt(tau.size)
    assert GammaNoise(0.5, 2.0).variance == 4.0
