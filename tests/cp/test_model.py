"""The CP model's kernels: layout of the entries, gathering and scattering rows, moments of rows and latent values."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import problem

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.model.columns import encode_columns
from tensorcep.cp.model.entries import entries_by_row, pack_entries, sum_products
from tensorcep.cp.model.latent import latent_means, latent_moments
from tensorcep.cp.model.rows import RowState, log_likelihoods
from tensorcep.kernels.rows import gather, packed_products, row_divergences, row_moments, scatter_add, second_moments
from tensorcep.kernels.slots import LANES, lane_zeros

SHAPES = each("shape", [(9, 7), (6, 5, 4), (4, 3, 3, 4), (3, 2, 3, 2, 4), (2, 3, 2, 3, 2, 3)])


def cells(rng, shape, n):
    """n distinct cells in random order, and values."""
    flat = rng.choice(int(np.prod(shape)), size=n, replace=False)
    return np.stack(np.unravel_index(flat, shape), axis=1), rng.standard_normal(n)


def rows_with(rng, n, R):
    """Precisions (n, R, R), natural means, means and covariances of random Gaussian rows."""
    root = rng.standard_normal((n, R, R))
    Lam = root @ root.swapaxes(1, 2) + np.eye(R)
    mean, cov = rng.standard_normal((n, R)), np.linalg.inv(Lam)
    return Lam, np.einsum("nij,nj->ni", Lam, mean), mean, cov


@SHAPES
def test_pack_entries_any_order_of_the_input_gives_the_same_layout(rng, shape):
    coords, y = cells(rng, shape, 30)
    entries = pack_entries(coords, y, shape)
    shuffle = rng.permutation(30)
    again = pack_entries(coords[shuffle], y[shuffle], shape)
    for name in ("rows", "y", "weight", "chunk_start", "offsets"):
        np.testing.assert_array_equal(getattr(entries, name), getattr(again, name))
    np.testing.assert_array_equal(shuffle[again.permutation], entries.permutation)


@SHAPES
@each("n", [1, LANES - 1, LANES, LANES + 1, 35])
def test_pack_entries_holds_every_entry_once_and_pads_with_weight_zero(rng, shape, n):
    coords, y = cells(rng, shape, n)
    entries = pack_entries(coords, y, shape)
    n_blocks = -(-n // LANES)
    assert entries.rows.shape == (n_blocks, len(shape), LANES)
    weight, lane_rows = entries.weight.ravel(), entries.rows.transpose(0, 2, 1).reshape(-1, len(shape))
    np.testing.assert_array_equal(weight, np.arange(n_blocks * LANES) < n)
    np.testing.assert_array_equal(lane_rows[:n], coords[entries.permutation] + offsets(shape)[:-1])
    np.testing.assert_array_equal(entries.y.ravel()[:n], y[entries.permutation])
    np.testing.assert_array_equal(lane_rows[n:], 0)
    np.testing.assert_array_equal(entries.y.ravel()[n:], 0.0)
    assert sorted(entries.permutation) == list(range(n))


@each(("order", "most"), [(2, 43), (3, 33), (4, 59)])
def test_pack_entries_lays_entries_out_where_it_has_sorted_them(rng, order, most):
    coords, y = rng.integers(0, 50, (40_000, order)), rng.standard_normal(40_000)
    pack_entries(coords, y, (50,) * order)  # compiled code is loaded
    tracemalloc.start()
    entries = pack_entries(coords, y, (50,) * order)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most * len(y)  # two arrays of lines; beside them values and weights, where lines are of other sizes
    np.testing.assert_array_equal(entries.y.ravel(), y[entries.permutation])


def test_pack_entries_chunks_cover_the_blocks_in_order_and_their_sums_stay_small(rng):
    shape = (40, 30, 20)
    coords, y = cells(rng, shape, 20_000)
    entries = pack_entries(coords, y, shape)
    start = entries.chunk_start
    assert start[0] == 0
    assert start[-1] == len(entries.rows)
    assert (np.diff(start) > 0).all()
    assert len(start) - 1 > 4
    # a few entries in a large tensor: one sum per row is all that fits the promise on memory
    sparse = pack_entries(*cells(rng, (2000, 2000), 20_000), (2000, 2000))
    n_chunks = len(sparse.chunk_start) - 1
    assert n_chunks * 4000 <= max(4000, 0.25 * 20_000 * 2)


@SHAPES
@each("n", [0, 1, 35])
def test_entries_by_row_lists_every_entry_once_per_mode(rng, shape, n):
    coords, y = cells(rng, shape, n)
    entries, first = pack_entries(coords, y, shape), offsets(shape)
    by_row = entries_by_row(entries)
    rows = coords[entries.permutation] + first[:-1]
    for k in range(len(shape)):
        chunks = by_row.chunks[k]
        assert (chunks[0], chunks[-1]) == (first[k], first[k + 1])
        assert (np.diff(chunks) > 0).all()
        for i in range(first[k], first[k + 1]):
            here = slice(by_row.start[i], by_row.start[i + 1])
            np.testing.assert_array_equal(by_row.entry[here], np.flatnonzero(rows[:, k] == i))
            np.testing.assert_array_equal(by_row.others[here], np.delete(rows[by_row.entry[here]], k, axis=1))


def test_entries_by_row_chunks_hold_about_as_many_entries(rng):
    coords, y = cells(rng, (400, 300), 50_000)
    by_row = entries_by_row(pack_entries(coords, y, (400, 300)))
    for chunks in by_row.chunks:
        sizes = np.diff(by_row.start[chunks])
        assert sizes.sum() == 50_000
        assert sizes.max() < 50_000 / 64 + 300


@SHAPES
@each("width", [1, 3, 8, 13])
def test_sum_products_adds_up_the_products_of_the_other_rows(rng, shape, width):
    coords, y = cells(rng, shape, 35)
    entries, n_rows = pack_entries(coords, y, shape), sum(shape)
    source, weight = rng.standard_normal((n_rows, width)), rng.standard_normal(entries.y.size)
    right = np.zeros((n_rows, width))
    rows = coords[entries.permutation] + offsets(shape)[:-1]
    for k in range(len(shape)):
        product = source[np.delete(rows, k, axis=1)].prod(axis=1)
        np.add.at(right, rows[:, k], weight[:35, None] * product)
    out = np.full((n_rows, width), 9.0)
    sum_products(1, n_rows - 1, entries_by_row(entries), weight, source, out, np.empty(width))
    np.testing.assert_allclose(out[1:-1], right[1:-1], rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(out[[0, -1]], 9.0)


@each("width", [1, 3, 4, 10, 13])
def test_gather_reads_the_row_of_every_lane(rng, width):
    source = rng.standard_normal((7, width))
    rows = rng.integers(0, 7, LANES).astype(np.int32)
    w = lane_zeros((width + 3, LANES))
    w[:] = 9.0
    gather(rows, source, w, 2)
    np.testing.assert_array_equal(w[2 : 2 + width], source[rows].T)
    np.testing.assert_array_equal(w[[0, 1, -1]], 9.0)


@each("dtype", [np.float64, np.float32])
@each("width", [1, 3, 4, 10, 13])
@each("n_rows", [1, 3, 100])
def test_scatter_add_adds_lanes_that_share_a_row(rng, width, dtype, n_rows):
    values = lane_zeros((width, LANES), dtype)
    values[:] = rng.standard_normal((width, LANES))
    rows = rng.integers(0, n_rows, LANES).astype(np.int32)
    total = rng.standard_normal((n_rows, width))
    right = total.copy()
    np.add.at(right, rows, values.T.astype(float))
    scatter_add(rows, values, total)
    np.testing.assert_allclose(total, right, rtol=1e-13, atol=1e-14)


@each("R", [1, 2, 5, 9])
@each("n", [1, 5, LANES, 2 * LANES + 3])
def test_row_moments_equal_numpy_and_flag_bad_rows(rng, R, n):
    Lam, eta, mean, cov = rows_with(rng, n, R)
    if n > 2:
        Lam[n // 2] *= -1.0
    out = [np.full((n, R), 5.0), np.full((n, R * (R + 1) // 2), 5.0), np.full(n, 5.0)]
    row_moments(0, n, pack(Lam), eta, *out)
    good = np.arange(n) != (n // 2 if n > 2 else -1)
    np.testing.assert_array_equal(out[2], good.astype(float))
    np.testing.assert_allclose(out[0][good], mean[good], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(unpack(out[1], R)[good], cov[good], rtol=1e-9, atol=1e-11)


def test_row_moments_write_only_the_rows_asked_for(rng):
    Lam, eta, mean, _ = rows_with(rng, 40, 3)
    out = [np.full((40, 3), 5.0), np.full((40, 6), 5.0), np.full(40, 5.0)]
    row_moments(7, 26, pack(Lam), eta, *out)
    outside = np.r_[:7, 26:40]
    assert all((array[outside] == 5.0).all() for array in out)
    np.testing.assert_allclose(out[0][7:26], mean[7:26], rtol=1e-9, atol=1e-10)


def test_second_moments_add_the_square_of_the_mean(rng):
    _, _, mean, cov = rows_with(rng, 9, 3)
    out = np.full((9, 6), 5.0)
    second_moments(2, 8, mean, pack(cov), out)
    right = pack(cov + mean[:, :, None] * mean[:, None, :])
    np.testing.assert_allclose(out[2:8], right[2:8], rtol=1e-14)
    np.testing.assert_array_equal(out[[0, 1, 8]], 5.0)


@each("R", [1, 2, 7])
@each("n", [1, LANES, 2 * LANES + 3])
def test_row_divergences_are_those_of_normal_distributions(rng, n, R):
    (Lam, eta, mean, cov), (prior_Lam, _, prior_mean, prior_cov) = rows_with(rng, n, R), rows_with(rng, n, R)
    half_log = np.empty(n)
    at_prior = RowState(pack(prior_Lam), eta, prior_mean, pack(prior_cov), np.ones(n))
    row_divergences(0, n, at_prior, pack(prior_Lam), prior_mean, half_log)
    np.testing.assert_allclose(half_log, 0.5 * np.linalg.slogdet(prior_Lam)[1], rtol=1e-9, atol=1e-9)
    found = np.empty(n)
    row_divergences(0, n, RowState(pack(Lam), eta, mean, pack(cov), np.ones(n)), pack(prior_Lam), prior_mean, found)
    d = mean - prior_mean
    right = 0.5 * (np.einsum("nij,nji->n", prior_Lam, cov) + np.einsum("ni,nij,nj->n", d, prior_Lam, d) - R)
    right += 0.5 * (np.linalg.slogdet(Lam)[1] - np.linalg.slogdet(prior_Lam)[1])
    assert (right > 0).all()
    np.testing.assert_allclose(found - half_log, right, rtol=1e-9)


@SHAPES
@each("R", [1, 4, 9])
def test_latent_means_are_the_sum_of_products(rng, shape, R):
    coords, y = cells(rng, shape, 33)
    entries = pack_entries(coords, y, shape)
    mean = rng.standard_normal((sum(shape), R))
    f = np.full(entries.y.shape, 5.0)
    groups = encode_columns(np.ones((len(shape), R), dtype=bool)).groups
    latent_means(1, 3, entries.rows, mean, groups, f)
    rows = coords[entries.permutation] + offsets(shape)[:-1]
    right = mean[rows].prod(axis=1).sum(axis=1)
    np.testing.assert_array_equal(f[0], 5.0)
    np.testing.assert_allclose(f.ravel()[LANES:33], right[LANES:], rtol=1e-12, atol=1e-13)


def brute_force_moments(mean, cov, rows):
    """E f and E f^2 - (E f)^2 from full second moments of each row (n, K)."""
    second = cov + mean[:, :, None] * mean[:, None, :]
    f = mean[rows].prod(axis=1).sum(axis=1)
    return f, second[rows].prod(axis=1).sum(axis=(1, 2)) - f**2


@SHAPES
@each("R", [1, 2, 5])
def test_latent_moments_equal_brute_force(rng, shape, R):
    _, _, mean, cov = rows_with(rng, sum(shape), R)
    rows = cells(rng, shape, 17)[0] + offsets(shape)[:-1]
    f, v = np.empty(17), np.empty(17)
    latent_moments(rows, mean, pack(cov), f, v)
    f_right, v_right = brute_force_moments(mean, cov, rows)
    np.testing.assert_allclose(f, f_right, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(v, v_right, rtol=1e-10)


@each("shape", [(2, 2), (2, 2, 2), (2, 2, 2, 2)])
def test_latent_moments_agree_with_monte_carlo(rng, shape):
    _, _, mean, cov = rows_with(rng, sum(shape), 3)
    rows = np.array([[0] * len(shape), [1] * len(shape)]) + offsets(shape)[:-1]
    f, v = np.empty(2), np.empty(2)
    latent_moments(rows, mean, pack(cov), f, v)
    n = 200_000
    for entry in range(2):
        draws = np.ones((n, 3))
        for row in rows[entry]:
            draws *= rng.multivariate_normal(mean[row], cov[row], size=n)
        total = draws.sum(axis=1)
        assert abs(total.mean() - f[entry]) < 6 * total.std() / np.sqrt(n)
        square = (total - f[entry]) ** 2
        assert abs(square.mean() - v[entry]) < 6 * square.std() / np.sqrt(n)


def test_latent_moments_keep_a_variance_that_is_tiny_beside_the_mean(rng):
    mean, cov = 1e3 * np.ones((3, 2)), np.zeros((3, 3))
    cov[:, [0, 2]] = 1e-14
    f, v = np.empty(1), np.empty(1)
    latent_moments(np.array([[0, 1, 2]]), mean, cov, f, v)
    # the first-order terms; E[f^2] - E[f]^2 in floating point would be wrong in every digit
    assert v[0] == pytest.approx(3 * 2 * 1e-14 * 1e12, rel=1e-10)


@each("shared", [False, True])
def test_packed_products_are_those_of_the_full_matrices(rng, shared):
    L, x = rng.standard_normal((1 if shared else 5, 4, 4)), rng.standard_normal((5, 4))
    L = L + L.transpose(0, 2, 1)
    out = np.full_like(x, np.nan)
    packed_products(1, 4, pack(L), x, out)
    np.testing.assert_allclose(out[1:4], (np.broadcast_to(L, (5, 4, 4)) @ x[..., None])[1:4, :, 0], rtol=1e-12)
    assert np.isnan(out[[0, 4]]).all()


def test_log_likelihoods_are_zero_in_padding_lanes_whatever_the_density_of_nothing_is(rng):
    """Lanes without an entry hold y = 0, at which a likelihood of positive values is infinite."""

    def loglik(y, f, theta, value, d1, d2):
        with np.errstate(divide="ignore"):
            value[:] = np.log(np.abs(y))
            d1[:] = d2[:] = 1.0 / y

    _, _, p = problem(rng, n=30)
    p = p._replace(likelihood=replace(p.likelihood, loglik=loglik))
    found = log_likelihoods(p, np.zeros(p.entries.y.shape), 1.0, ThreadExecutor(1))
    padding = p.entries.weight == 0.0
    assert padding.any()
    assert all((part[padding] == 0.0).all() and np.isfinite(part).all() for part in found)


@each("order", [1, 2, 3, 4])
@each("n", [0, 20, 8000])
def test_entries_are_packed_in_stable_lexical_order_and_tell_where_they_were(rng, n, order):
    columns, y, shape = rng.integers(0, 6, (n, order)), rng.normal(size=n), (6, 7, 6, 6)[:order]
    packed, place = pack_entries(columns, y, shape), np.lexsort(columns.T[::-1])
    rows = packed.rows.transpose(0, 2, 1).reshape(-1, order)
    assert rows.shape == (-(-n // LANES) * LANES, order)
    np.testing.assert_array_equal(packed.permutation, place)
    np.testing.assert_array_equal(rows[:n] - packed.offsets[:-1], columns[place])
    np.testing.assert_array_equal(rows[n:], 0)
    np.testing.assert_array_equal(packed.y.ravel(), np.append(y[place], np.zeros(len(rows) - n)))
    np.testing.assert_array_equal(packed.weight.ravel(), np.arange(len(rows)) < n)
