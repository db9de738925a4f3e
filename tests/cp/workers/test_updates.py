"""Rows that workers make from sums: the bits of one process, however they are cut; and what of it they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import problem, settings_of

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets
from tensorcep.cp.meanfield import row_update as updating
from tensorcep.cp.meanfield.method import VMP
from tensorcep.cp.meanfield.row_update import Update, update_chunks, update_mode, update_natural
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers import row_pass
from tensorcep.cp.workers.partitions import RowPartition, close_part, open_part
from tensorcep.cp.workers.row_pass import Made, update_ranges
from tensorcep.cp.workers.row_store import Block, Piece, Source, Store
from tensorcep.cp.workers.tasks import RowInputs, ranges_of_mode
from tensorcep.kernels.rows import row_divergences


class AtOnce(ThreadExecutor):
    """Threads that take sums and what follows from them at once."""

    updates_rows = True


def state_of(rng: np.random.Generator) -> tuple[Any, Any]:
    p = problem(rng, shape=(90, 20, 10), n=2000)[2]
    return p, VMP.init(p, settings_of("vmp"), ThreadExecutor(1))


@each("n_threads", [1, 2])
def test_sums_and_rows_at_once_have_the_bits_of_one_after_the_other(rng: np.random.Generator, n_threads: int) -> None:
    p, here = state_of(rng)
    there = VMP.init(p, settings_of("vmp"), ThreadExecutor(1))
    for k in range(3):
        here = update_mode(k, here, 1.0, p, ThreadExecutor(1))
        there = update_mode(k, there, 1.0, p, AtOnce(n_threads))
    for a, b in zip(*((*one.rows, one.own.numbers, one.own.square) for one in (here, there)), strict=True):
        np.testing.assert_array_equal(a, b)


@each("at_a_time", [16, 1024])
@each("left", [False, True])
def test_ranges_of_rows_have_the_bits_of_one_process(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int, left: bool
) -> None:
    monkeypatch.setattr(row_pass, "ROWS_AT_A_TIME", at_a_time)
    monkeypatch.setattr("tensorcep.core.shared_memory.SMALLEST", 0)
    p, state = state_of(rng)
    rows, by_row, own, y = state.rows, state.setup.by_row, state.own, p.entries.y.ravel()
    chunks = by_row.chunks[0]
    first, numbers, means = tuple(offsets(p.shape).tolist()), own.numbers.copy(), rows.mean.copy()
    P, Q = rows.Lam.shape[1], rows.eta.shape[1]
    update = Update(2.5, rng.normal(size=(1, P)), rng.normal(size=(90, Q)), rng.normal(size=(90, Q)))
    update.Lam[0, np.arange(Q) * (np.arange(Q) + 3) // 2] += 9.0
    sums = (p.entries.weight.ravel(), numbers, own.sum_Z2), (y, means, own.sum_yz)
    update_chunks(0, len(chunks) - 1, chunks, by_row, sums, update, rows, np.empty(P))
    divergence = np.empty(90)
    row_divergences(0, 90, rows, update.Lam, update.mean, divergence)

    ranges = ranges_of_mode(tmp_path, 0, 3, (0, 90), (by_row.start, by_row.others, y[by_row.entry]))
    assert len(ranges) > 1
    kinds = {"seconds": numbers, "means": means}
    given = RowInputs(
        tuple(Source("", kind, (None, "b", "c")) for kind in kinds),
        first,
        tuple(Block(kind, k, name) for kind in kinds for k, name in ((1, "b"), (2, "c"))),
    )
    blocks = [[Piece(0, array[first[k] : first[k + 1]])] for array in kinds.values() for k in (1, 2)]
    paths = (str(tmp_path / "rows"), str(tmp_path / "told")) if left else (None, None)
    lines, store = [update.Lam, update.eta, update.mean], Store()
    record = (ranges, given, blocks, store, [None] * len(ranges), (2.5, 0), lines, (P, Q), paths)
    made = update_ranges(*record)
    assert (tmp_path / "rows").exists() is left
    assert (made.first, made.n) == (0, 90)
    known = (rows.mean[:90], rows.cov[:90], own.sum_Z2[:90], own.sum_yz[:90], rows.good[:90], divergence)
    for one, array in zip(made[1:], known, strict=True):
        found = np.zeros_like(array)
        row_pass.put(one, found)
        np.testing.assert_array_equal(found, array)
    check_kinds(made, rows)


def check_kinds(made: Made, rows: RowState) -> None:
    """What workers make of rows that others leave."""
    P, Q = rows.Lam.shape[1], rows.eta.shape[1]
    numbers = np.zeros((90, P + Q + 1))
    row_pass.second_moments(0, 90, rows.mean, rows.cov, numbers)
    numbers[:, P:-1], numbers[:, -1] = rows.mean[:90], 1.0
    for kind, whole in (("means", rows.mean[:90]), ("seconds", numbers[:, :P]), ("numbers", numbers)):
        found = np.zeros((90, *made.width(kind)))
        made.fill(kind, found)
        np.testing.assert_array_equal(found, whole)


@each("n_clamped", [0, 2])
def test_natural_parameters_do_not_depend_on_how_rows_are_cut(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_clamped: int
) -> None:
    P, Q = 6, 3
    update = Update(1.7, rng.normal(size=(50, P)), rng.normal(size=(1, Q)), np.zeros((1, Q)), n_clamped)
    Z2, yz = rng.normal(size=(50, P + n_clamped * Q)), rng.normal(size=(50, Q + n_clamped))
    offset = Z2[:, P:].reshape(50, n_clamped, Q).sum(axis=1)
    for at_a_time in (16, 1024):
        monkeypatch.setattr(updating, "ROWS_AT_A_TIME", at_a_time)
        Lam, eta = np.empty((50, P)), np.empty((50, Q))
        update_natural(update, Z2, yz, Lam, eta)
        np.testing.assert_array_equal(Lam, update.Lam + 1.7 * Z2[:, :P])
        np.testing.assert_array_equal(eta, update.eta + 1.7 * (yz[:, :Q] - offset if n_clamped else yz[:, :Q]))


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="the system does not tell what a file takes")
def test_entries_that_have_been_read_take_no_memory(tmp_path: Path) -> None:
    start, others = np.arange(3) * 50_000, np.ones((100_000, 2), dtype=np.int32)
    (where,) = ranges_of_mode(tmp_path, 0, 1, (0, 2), (start, others, np.ones(100_000)))

    def held() -> int:
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        return sum(int(next(x for x in lines if x.startswith("Rss")).split()[1]) for one in lines if where.path in one)

    part = open_part(where.path, RowPartition)
    assert part.value.sum() == 100_000
    assert held() > 1000
    close_part(where.path)
    assert held() == 0
    np.testing.assert_array_equal(part.others, others)
