"""Chains of blocks of any width against the dense precision."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.packing import pack, unpack
from tensorcep.priors.solvers.chain import draw_back, eliminate, marginals_back, nothing_before

PRECISION = 0.7


def chain(rng, m, D):
    """The arguments of `eliminate`, and the dense precision (m, D, m, D)."""
    roots, between = rng.standard_normal((m, D, D)), rng.random((m - 1, D))
    Lam, own = roots @ roots.swapaxes(1, 2), 2.0 + rng.random((m, D))
    eta, field = rng.standard_normal((2, m, D))
    K, d = np.zeros((m, D, m, D)), np.arange(D)
    for t in range(m):
        K[t, :, t] = PRECISION * Lam[t] + np.diag(own[t])
    for t in range(m - 1):
        K[t, d, t + 1, d] = K[t + 1, d, t, d] = -between[t]
    return (pack(Lam), eta, PRECISION, own, field, between), K


@each("D", [1, 2, 3, 8, 9, 17])
def test_moments_and_draws_are_those_of_the_dense_precision(rng, D):
    m = 5
    given, K = chain(rng, m, D)
    _, eta, _, _, field, between = given
    V, y, out = np.empty_like(given[0]), np.empty((m, D)), np.empty((m, D))
    dense = K.reshape(m * D, m * D)
    assert eliminate(0, *given, V, y, nothing_before(y.shape[1])) == pytest.approx(
        np.linalg.slogdet(dense)[1], rel=1e-12
    )
    S = np.linalg.inv(dense)
    mean, cov, cross = np.empty_like(y), np.empty_like(V), np.empty_like(between)
    marginals_back(V, y, between, mean, cov, cross)
    np.testing.assert_allclose(mean.ravel(), S @ (PRECISION * eta + field).ravel(), atol=1e-11)
    blocks = S.reshape(m, D, m, D)
    np.testing.assert_allclose(unpack(cov, D), [blocks[t, :, t] for t in range(m)], atol=1e-11)
    np.testing.assert_allclose(cross, [np.diag(blocks[t, :, t + 1]) for t in range(m - 1)], atol=1e-11)
    draw_back(V, y, between, (1, 2, 3), out)  # a draw is the mean and L'^-1 z, whatever y is
    less = np.empty_like(out)
    draw_back(V, np.zeros_like(y), between, (1, 2, 3), less)
    np.testing.assert_allclose(out - less, mean, atol=1e-11)


def fenced(array):
    """A copy with NaN in the memory before and behind it, and that memory."""
    memory = np.full(array.size + 32, np.nan)
    own = memory[16 : 16 + array.size].reshape(array.shape)
    own[:] = array
    return own, memory


@each("D", range(1, 10))
def test_what_lies_beside_the_blocks_is_neither_read_nor_written(rng, D):
    given, _ = chain(rng, 3, D)
    plain = [np.empty_like(given[0]), np.empty((3, D)), np.empty((3, D)), np.empty_like(given[0]), np.empty((2, D))]
    kept, memory = zip(*(fenced(array) for array in plain), strict=True)
    fences = [fenced(part) if isinstance(part, np.ndarray) else (part, None) for part in given]
    for arguments, (V, y, mean, cov, cross) in ((given, plain), ([own for own, _ in fences], kept)):
        eliminate(0, *arguments, V, y, nothing_before(D))
        marginals_back(V, y, arguments[-1], mean, cov, cross)
    for own, same in zip(kept, plain, strict=True):
        np.testing.assert_array_equal(own, same)
    draws = [np.empty((3, D)), fenced(np.zeros((3, D)))]
    draw_back(*plain[:2], given[-1], (1, 2, 3), draws[0])
    draw_back(*kept[:2], fences[-1][0], (1, 2, 3), draws[1][0])
    np.testing.assert_array_equal(draws[1][0], draws[0])
    for whole in [*memory, draws[1][1], *(whole for _, whole in fences if whole is not None)]:
        assert np.isnan(whole[:16]).all()
        assert np.isnan(whole[-16:]).all()


@each("D", [2, 9])
def test_factor_may_take_the_place_of_the_blocks(rng, D):
    given, _ = chain(rng, 4, D)
    V, y, again = np.empty_like(given[0]), np.empty((4, D)), np.empty((4, D))
    eliminate(0, *given, V, y, nothing_before(y.shape[1]))
    eliminate(0, *given, given[0], again, nothing_before(D))
    np.testing.assert_array_equal(given[0], V)
    np.testing.assert_array_equal(again, y)


@each("D", [1, 2, 8, 12])
def test_precision_that_is_not_positive_definite_is_seen(rng, D):
    given, _ = chain(rng, 4, D)
    given[3][2, : min(2, D)] = -50.0  # two of them, whose product is positive
    assert np.isnan(eliminate(0, *given, np.empty_like(given[0]), np.empty((4, D)), nothing_before(D)))


@each("D", [2, 3, 8, 9, 17])
def test_chain_that_is_told_in_pieces_is_the_same(rng, D):
    given, _ = chain(rng, 7, D)
    Lam, eta, *rest = given
    V, y, carry = np.empty_like(Lam), np.empty((7, D)), nothing_before(D)
    whole, of_whole = np.empty_like(Lam), np.empty((7, D))
    log_det = eliminate(0, *given, whole, of_whole, nothing_before(D))
    for first, last in ((0, 1), (1, 4), (4, 7)):
        found = eliminate(first, Lam[first:last], eta[first:last], *rest, V, y, carry)
    np.testing.assert_allclose(V, whole, rtol=0, atol=1e-14)
    np.testing.assert_allclose(y, of_whole, rtol=0, atol=1e-13)
    assert found == pytest.approx(log_det, rel=1e-13)
