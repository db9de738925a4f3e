"""Entries on scratch: the packing, the lists by row, and the sweeps of the bits that memory gives."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import problems
from helpers.cases import each

from tensorcep.core.arrays import Scratch, on_scratch
from tensorcep.cp.messages import engine
from tensorcep.cp.model import memmap, parameters, subsets
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.entries import Entries, EntriesByRow, entries_by_row
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.settings import PGVB
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import negbinomial
from tensorcep.likelihoods.gaussian import of_power
from tensorcep.likelihoods.parameters import base

SHAPES = {2: (50, 40), 3: (40, 30, 20), 4: (9, 8, 7, 6)}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many pieces of few entries as many entries would have."""
    monkeypatch.setattr(memmap, "PIECE", 4 * LANES)
    monkeypatch.setattr(memmap, "READ", 100)
    monkeypatch.setattr(memmap, "BLOCKS", 7)
    monkeypatch.setattr(engine, "BLOCKS", 7)


def both(K: int, folder: Path, parts: dict[str, int] | None = None, fine: bool = False) -> tuple[Problem, Problem]:
    """The same problem in memory and on scratch; with `fine`, values that single precision does not hold."""
    rng, shape, n = np.random.default_rng(K), SHAPES[K], 801
    coords, raw = problems.cells(rng, shape, n), rng.integers(1, 6, n).astype(float)
    raw = raw + 0.1 * rng.standard_normal(n) if fine else raw
    level = float(raw.mean())
    free = None if parts is None else free_columns(parts, K)
    R = 3 if free is None else free.shape[1]
    start = rng.standard_normal((sum(shape), R))
    start = start if free is None else np.where(np.repeat(free, shape, axis=0), start, 1.0)
    problem = problems.build(coords, raw - level, shape, R, start=start)
    problem = problem._replace(likelihood=of_power(1.0, level), free=free)
    packed = memmap.pack_stored(*memmap.spill(coords, raw - level, Scratch(folder)), shape)
    return problem, problem._replace(entries=packed)


def same(mine: Any, other: Any) -> bool:
    if isinstance(mine, tuple):
        return all(same(a, b) for a, b in zip(mine, other, strict=True))
    return np.array_equal(mine, other, equal_nan=True) if isinstance(mine, np.ndarray) else mine == other


@pytest.mark.usefixtures("small_pieces")
@each("K", SHAPES)
def test_stored_entries_are_those_in_memory(K: int, tmp_path: Path) -> None:
    memory, scratch = both(K, tmp_path)
    for name in Entries._fields:
        assert same(getattr(memory.entries, name), getattr(scratch.entries, name)), name
    for late in (None, np.array([700, 3, 40])):
        for values in (False, True):
            one = entries_by_row(memory.entries, late, values)
            other = memmap.by_row_of(scratch, late, values)
            stored = memmap.StoredTargets(other.value, memmap.value_offset(scratch.likelihood))
            other = other._replace(value=stored.at(slice(None)))
            for name in EntriesByRow._fields:
                assert same(getattr(one, name), getattr(other, name)), name
    assert on_scratch(scratch.entries.y)


@pytest.mark.usefixtures("small_pieces")
@each("K", SHAPES)
@each("parts", [None, {"main": 1, "pair": 1, "cp": 2}])
def test_stored_sweeps_have_the_bits_of_memory(K: int, parts: dict[str, int] | None, tmp_path: Path) -> None:
    parts = parts if parts is None or K > 2 else parts | {"pair": 0}
    memory, scratch = both(K, tmp_path, parts)
    averaged = {"messages": "averaged", "anneal": 2, "damping": 0.2}
    for method, options in (("gibbs", {"burn_in": 3, "n_chains": 2}), ("vmp", {"anneal": 2}), ("cep", averaged)):
        expected = problems.fit(memory, 6, method=method, **options)
        for threads in (1, 2):
            run = problems.fit(scratch, 6, threads, method=method, **options)
            assert same(tuple(expected.posterior), tuple(run.posterior)), (method, threads)
            for name, values in expected.trace.items():
                assert name == "seconds" or same(values, run.trace[name]), name


def test_sums_and_counts_of_pieces_are_those_of_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, shape = np.random.default_rng(0), SHAPES[3]
    coords, y = problems.cells(rng, shape, 801), rng.poisson(2.0, 801).astype(float)
    problem = problems.build(coords, y, shape, 2, "negbinomial")
    values = rng.random(problem.entries.y.shape)
    for mode in (None, 1):
        learned: Any = parameters.parameters_of(problem, PGVB(dispersion_mode=mode))[0]
        groups, used = learned.groups, problem.entries.weight > 0
        pairs = np.stack([groups.of_entry[used], problem.entries.y[used]])
        expected, times = np.unique(pairs, axis=1, return_counts=True)
        sums = np.bincount(groups.of_entry.ravel(), values.ravel(), minlength=groups.size)
        with monkeypatch.context() as patch:
            patch.setattr(base, "LINES", 7)
            patch.setattr(negbinomial, "LINES", 7)
            assert same(groups.totals(lambda at: values[at]), sums)
            assert same(
                learned.with_observations(problem.entries.y, problem.entries.weight).counts,
                (expected[0].astype(int), expected[1], times.astype(float)),
            )


def test_stored_values_are_single_only_where_nothing_is_lost(tmp_path: Path) -> None:
    for fine, dtype in ((False, np.float32), (True, np.float64)):
        memory, scratch = both(3, tmp_path, fine=fine)
        by_row = memmap.by_row_of(scratch, values=True)
        assert by_row.value.dtype == dtype
        targets = memmap.StoredTargets(by_row.value, memmap.value_offset(scratch.likelihood))
        assert same(targets.at(slice(None)), entries_by_row(memory.entries, values=True).value)
        n, K = 801, 3
        read = (by_row.value.nbytes + by_row.others.nbytes) / n
        assert read == K * (4 * (K - 1) + np.dtype(dtype).itemsize)  # 36 bytes per entry and sweep


def test_stored_lists_are_made_once(tmp_path: Path) -> None:
    _, scratch = both(3, tmp_path)
    assert memmap.by_row_of(scratch) is memmap.by_row_of(scratch)
    assert memmap.by_row_of(scratch, np.array([5])) is not memmap.by_row_of(scratch)


def test_stored_row_pieces_cover_all_rows_in_whole_groups() -> None:
    start = np.cumsum(np.concatenate([[0], np.random.default_rng(0).integers(0, 3 * memmap.READ // 40, 100)]))
    cuts = list(memmap.row_pieces(start, 16, 99, (), align=16))
    assert cuts[0][0] == 16
    assert cuts[-1][1] == 99
    assert all(b == a for (_, b, _), (a, *_) in itertools.pairwise(cuts))
    assert all(a % 16 == 0 for a, *_ in cuts)
    assert all(start[b] - start[a] <= memmap.READ or b - a <= 16 for a, b, _ in cuts)
    assert all(at == slice(start[a], start[b]) for a, b, at in cuts)


@pytest.mark.usefixtures("small_pieces")
def test_stored_sample_is_chosen_by_the_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, scratch = both(3, tmp_path)
    loaded = subsets.problem_in_memory(scratch).entries
    assert same(loaded[:4], memory.entries[:4])
    assert not on_scratch(loaded.y)
    assert subsets.problem_in_memory(memory) is memory
    monkeypatch.setattr(subsets, "MOST_SAMPLED", 200)
    some = subsets.problem_in_memory(scratch, np.arange(100)).entries
    assert 60 < len(some.permutation) < 300
    cells = {tuple(row) for row in problems_rows(memory.entries)[100:].tolist()}
    assert {tuple(row) for row in problems_rows(some).tolist()} <= cells


def problems_rows(entries: Entries) -> np.ndarray:
    """Packed rows (N, K) of all entries."""
    return entries.rows.transpose(0, 2, 1).reshape(-1, entries.rows.shape[1])[: len(entries.permutation)]


def test_sampled_share_does_not_depend_on_the_order_or_on_the_others() -> None:
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 1000, 20_000) for _ in range(3)]
    chosen = subsets.chosen_by_hash(columns, 0.1, 5)
    assert abs(chosen.mean() - 0.1) < 6 * np.sqrt(0.09 / 20_000)
    order = rng.permutation(20_000)[:500]
    assert same(subsets.chosen_by_hash([column[order] for column in columns], 0.1, 5), chosen[order])
    assert (subsets.chosen_by_hash(columns, 0.1, 6) != chosen).any()
    assert chosen[subsets.chosen_by_hash(columns, 0.05, 5)].all()


def test_stored_repeated_cells_are_refused_where_they_must_be_distinct(tmp_path: Path) -> None:
    coords = np.array([[0, 1, 0], [2, 1, 1], [0, 1, 0]])
    columns, y = memmap.spill(coords, np.arange(3.0), Scratch(tmp_path))
    assert len(memmap.pack_stored(columns, y, (3, 2, 2)).permutation) == 3
    with pytest.raises(ValueError, match=r"the cell of rows \(0, 1, 0\), counted from 0, occurs more than once"):
        memmap.pack_stored(columns._replace(distinct=True), y, (3, 2, 2))
