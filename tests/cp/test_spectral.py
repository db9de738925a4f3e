"""Spectral starts: planted factors, held-out values, orders 2 to 8, bad luck, equal bits, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
from helpers.cases import each
from threadpoolctl import threadpool_limits

from tensorcep.core.executor import ThreadExecutor, threads_of
from tensorcep.cp.init import spectral
from tensorcep.cp.init.spectral import LEAST_OF_THREAD, MOST_APART, Search, _descend, mode_bases, spectral_start
from tensorcep.cp.simulate import simulate_cp


def said_of(start, coords):
    return np.prod([factor[coords[:, k]] for k, factor in enumerate(start.factors)], axis=0).sum(1)


def correlation(start, coords, latent):
    return np.corrcoef(said_of(start, coords), latent)[0, 1]


def simulated(shape, rank, n_entries, seed=0, noise_precision=100.0):
    sim = simulate_cp(
        shape, rank, n_entries, latent_sd=1.0, noise_precision=noise_precision, random_state=np.random.default_rng(seed)
    )
    return sim, sim.tensor.coords, sim.tensor.values


def test_spectral_start_recovers_planted_factors_up_to_sign_and_order():
    sim, coords, values = simulated((60, 50, 40), 3, 60_000)
    start = spectral_start(coords, values, sim.tensor.shape, 3, seed=1)
    assert start.n_found == 3
    for planted, rows in zip(sim.factors, start.factors, strict=True):
        cosine = np.abs(planted.T @ rows) / np.outer(np.linalg.norm(planted, axis=0), np.linalg.norm(rows, axis=0))
        assert sorted(cosine.argmax(0)) == [0, 1, 2]
        assert cosine.max(0).min() > 0.98


@each("shape", [(90, 80), (60, 50, 40), (20, 18, 16, 14), (12, 11, 10, 9, 8), (8, 8, 7, 7, 6, 6)])
def test_spectral_start_says_what_other_cells_hold(shape):
    sim, coords, values = simulated(shape, 3, min(30_000, 3 * int(np.prod(shape)) // 5), noise_precision=4.0)
    used = len(values) // 2
    start = spectral_start(coords[:used], values[:used], shape, 5, seed=0)
    assert correlation(start, coords[used:], sim.latent[used:]) > 0.65
    assert start.n_found <= 5
    assert [factor.shape for factor in start.factors] == [(n, 5) for n in shape]


def test_spectral_start_finds_as_many_components_as_there_are():
    sim, coords, values = simulated((60, 50, 40), 4, 40_000, noise_precision=4.0)
    start = spectral_start(coords, values, sim.tensor.shape, 10, seed=0)
    assert start.n_found == 4
    sizes = np.array([[np.sqrt(np.mean(column**2)) for column in factor.T] for factor in start.factors])
    assert (np.diff(sizes[0, :4]) <= 0.0).all()
    np.testing.assert_allclose(sizes[:, :4], sizes[:1, :4].repeat(3, 0), rtol=1e-6)
    assert sizes[:, 4:].max() < 0.3 * sizes[:, :4].min()
    # the scale is that of the values
    fitted = said_of(start, coords)
    assert 0.9 < (fitted @ sim.latent) / (fitted @ fitted) < 1.1


def test_spectral_start_of_noise_finds_nothing():
    rng = np.random.default_rng(3)
    coords = np.stack(np.unravel_index(rng.choice(60 * 50 * 40, 20_000, replace=False), (60, 50, 40)), 1)
    start = spectral_start(coords, rng.standard_normal(20_000), (60, 50, 40), 4, seed=0)
    assert abs(correlation(start, coords, rng.standard_normal(20_000))) < 0.05
    assert start.n_found <= 1
    assert start.correlation < 0.1


@each("scale", [1e-8, 1e8])
def test_spectral_start_keeps_the_scale_and_ignores_the_level(scale):
    sim, coords, values = simulated((40, 30, 20), 2, 10_000)
    one = spectral_start(coords, values, sim.tensor.shape, 3, seed=0)
    other = spectral_start(coords, scale * (values + 3.0), sim.tensor.shape, 3, seed=0)
    np.testing.assert_allclose(said_of(other, coords), scale * said_of(one, coords), rtol=1e-4, atol=1e-6 * scale)


def few(rng, n, shape):
    return np.stack([rng.integers(0, m, n) for m in shape], 1), rng.standard_normal(n)


@each("shape", [(7, 5), (30, 1, 20), (1, 1, 1), (9, 8, 7), (2,) * 8])
@each("n_entries", [0, 1, 2, 60])
def test_spectral_start_of_few_repeated_or_constant_entries_is_finite(shape, n_entries):
    rng = np.random.default_rng(0)
    coords, values = few(rng, n_entries, shape)
    for y in (values, np.ones(n_entries), np.zeros(n_entries), np.where(np.arange(n_entries) < 1, 1e3, 0.0)):
        start = spectral_start(coords, y, shape, 12, seed=0)
        assert [factor.shape for factor in start.factors] == [(n, 12) for n in shape]
        assert all(np.isfinite(factor).all() and (factor != 0.0).any(0).all() for factor in start.factors)


def test_spectral_start_without_two_entries_in_a_column_finds_nothing():
    cells = np.arange(400)
    start = spectral_start(np.stack([cells] * 3, 1), np.sin(cells), (400,) * 3, 4, seed=0)
    assert start.n_found == 0
    assert start.correlation == 0.0


def test_spectral_start_of_a_seed_is_the_same_on_one_and_two_threads():
    sim, coords, values = simulated((300, 200, 100), 4, 30_000)
    bits = []
    for limit in (1, 2, 3):
        with threadpool_limits(limit), threads_of(limit) as executor:
            bits.append(spectral_start(coords, values, sim.tensor.shape, 6, seed=5, executor=executor).factors)
    for one, *others in zip(*bits, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)
    assert not np.array_equal(bits[0][0], spectral_start(coords, values, sim.tensor.shape, 6, seed=6).factors[0])


def test_spectral_start_of_a_million_rows_takes_memory_of_the_entries():
    rng = np.random.default_rng(0)
    shape = (1_000_000, 100, 50)
    coords, values = few(rng, 10_000, shape)
    tracemalloc.start()
    start = spectral_start(coords, values, shape, 4, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert start.factors[0].shape == (1_000_000, 4)
    assert peak < 250e6  # the factors themselves take 32 MB


def test_spectral_start_does_not_sit_on_a_few_huge_values():
    sim, coords, values = simulated((60, 50, 40), 3, 20_000, noise_precision=4.0)
    spiked = values.copy()
    spiked[::1000] += 60.0
    start = spectral_start(coords, spiked, sim.tensor.shape, 8, seed=0)
    assert start.n_found == 3
    assert correlation(start, coords, sim.latent) > 0.9


@each("seed", range(3))
def test_spectral_start_of_few_entries_of_positive_rows_is_found_in_pairs_of_modes(seed):
    # of 30,000 entries hardly two lie in one of 480,000 columns of an unfolding
    shape, rng = (1000, 800, 600), np.random.default_rng(seed)
    rows = [rng.gamma(4.0, 0.25, size=(n, 3)) for n in shape]
    coords = np.stack([rng.integers(0, n, 35_000) for n in shape], axis=1)
    truth = np.prod([row[coords[:, k]] for k, row in enumerate(rows)], axis=0).sum(axis=1)
    values = truth + rng.normal(0.0, 0.5 * truth.std(), len(truth))
    first, others = slice(0, 30_000), slice(30_000, None)
    assert spectral_start(coords[first], values[first], shape, 5, seed=0, pairs=False).n_found == 0
    start = spectral_start(coords[first], values[first], shape, 5, seed=0)
    assert start.n_found > 0
    assert correlation(start, coords[others], truth[others]) > 0.55


@each("rank", [1, 5, 12])
def test_starts_of_a_small_decomposition_descend_to_the_same_bits_side_by_side_and_alone(rank):
    rng = np.random.default_rng(1)
    core = rng.standard_normal((9, 8, 7))
    together = [rng.standard_normal((8, n, rank)) for n in core.shape]
    alone = [factor.copy() for factor in together]
    losses = _descend(core, together, 0.05, 200)
    for i, loss in enumerate(losses):
        own = [factor[i : i + 1].copy() for factor in alone]
        assert _descend(core, own, 0.05, 200) == loss
        for one, factor in zip(own, together, strict=True):
            np.testing.assert_array_equal(one[0], factor[i])


def test_mode_bases_gives_every_thread_rows_of_about_as_many_elements():
    # most entries are in the first rows of the last mode, which two threads share, and its last rows have none that
    # share a column
    rng, n = np.random.default_rng(0), 4 * LEAST_OF_THREAD
    rows = np.sort((150 * rng.random(n) ** 3).astype(int))
    coords = np.stack([rng.integers(0, 2000, n), np.zeros_like(rows), rows], axis=1)
    coords = np.append(coords, [[2000, 0, 150], [2001, 0, 151]], axis=0)
    values, counted = rng.standard_normal(len(coords)), []

    class Counting(ThreadExecutor):
        def run(self, kernel, first, last, *record, **how):
            def counted_kernel(a, b):
                counted.append((a, b))
                kernel(a, b)

            super().run(counted_kernel, first, last, *record, **how)

    two, shape = Counting(2), (2002, 1, 152)
    rest = (coords, values, (coords[:0], values[:0]), shape, 5)
    bases = [mode_bases(Search(*rest, np.random.default_rng(2), by), 5) for by in (ThreadExecutor(1), two)]
    two.close()
    for one, other in zip(*bases, strict=True):
        np.testing.assert_array_equal(one, other)
    sizes = np.array([b - a for a, b in counted])
    assert len(sizes) % 2 == 0
    assert sizes.min() > 0.4 * (sizes[0] + sizes[1]) > LEAST_OF_THREAD


@each("n", [1, 2, 3])
@each("pairs", [False, True])
@each("apart", [0, MOST_APART])
def test_mode_bases_side_by_side_draw_what_one_after_the_other_does(n, pairs, apart, monkeypatch):
    # rows of the first mode share no cell of the others: nothing is drawn for it but what tells cells apart
    monkeypatch.setattr(spectral, "MOST_APART", apart)
    rng, shape = np.random.default_rng(0), (90, 80, 300)
    coords = np.stack([rng.integers(0, size, 300) for size in shape], axis=1)
    coords[:, 2] = np.arange(300)
    values, rng = rng.standard_normal(300), np.random.default_rng(5)
    with threads_of(n) as executor:
        bases = mode_bases(Search(coords, values, (coords[:0], values[:0]), shape, 2, rng, executor), 2, pairs)
    other = np.random.default_rng(5)
    for k, others in enumerate([[1, 2], [0, 2], [0, 1]]):
        other.integers(1, 2**62, 2)
        cells = [coords[:, [j]] for j in others] if pairs else [coords[:, others]]
        if any(len(np.unique(cell, axis=0)) < 300 for cell in cells):
            other.standard_normal((len(np.unique(coords[:, k])), 4))
        else:
            assert bases[k].shape == (shape[k], 0)
    assert rng.bit_generator.state == other.bit_generator.state
