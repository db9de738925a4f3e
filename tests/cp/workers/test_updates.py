"""Rows that workers make from sums: the bits of one process, however they are cut; and what of it they hold."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import problem, settings_of

from tensorcep.core.executor import ThreadExecutor, parameters_of
from tensorcep.core.packing import offsets
from tensorcep.core.shared_memory import put
from tensorcep.cp.meanfield import method as updating
from tensorcep.cp.meanfield.method import ROW_UPDATES, VMP, Update, update_mode, update_natural, update_parts
from tensorcep.cp.model.entries import room_for_products
from tensorcep.cp.workers import executor
from tensorcep.cp.workers.executor import pass_over_rows
from tensorcep.cp.workers.files import RowPartition, close_part, open_part, write_part
from tensorcep.cp.workers.row_cache import Block, Piece, RowInputs, Source, Store


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


@each("at_a_time", [1 << 10, 1 << 20])
@each("left", [False, True])
def test_ranges_of_rows_have_the_bits_of_one_process(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int, left: bool
) -> None:
    monkeypatch.setattr(executor, "BYTES_AT_A_TIME", at_a_time)
    monkeypatch.setattr("tensorcep.core.shared_memory.SMALLEST", 0)
    p, state = state_of(rng)
    sums, by_row, y = state.own, state.own.setup.by_row, p.entries.y.ravel()
    mean, cov, good = state.rows.mean.copy(), state.rows.cov, state.rows.good
    cuts, numbers, means = by_row.chunks[0], sums.numbers.copy(), mean.copy()
    P, Q = cov.shape[1], mean.shape[1]
    update = Update(2.5, rng.normal(size=(1, P)), rng.normal(size=(90, Q)), rng.normal(size=(90, Q)))
    update.Lam[0, np.arange(Q) * (np.arange(Q) + 3) // 2] += 9.0
    given = (p.entries.weight.ravel(), numbers, sums.sum_Z2, y, means, sums.sum_yz, update, mean, cov, good)
    divergence = np.empty(len(mean))
    update_parts(0, len(cuts) - 1, cuts, 0, by_row, *given, divergence, np.empty(P))
    work = ROW_UPDATES.of_mode(0, ("weight", "target"), True)
    record = (cuts, 0, by_row, *given, divergence)
    named = dict(zip(parameters_of(work.kernel), record, strict=False))
    task = executor._work_of(work, named, partial(room_for_products, P), {"mean", "cov"})

    ranges = executor.ranges_of_mode(tmp_path, slice(0, 90), 3, work.entries, named)
    assert len(ranges) > 1
    kinds, first = {"seconds": numbers, "means": means}, tuple(offsets(p.shape).tolist())
    inputs = RowInputs(
        tuple(Source(kind, (None, "b", "c")) for kind in kinds),
        first,
        tuple(Block(kind, k, name, rows.shape[1:]) for kind, rows in kinds.items() for k, name in ((1, "b"), (2, "c"))),
    )
    blocks = [[Piece(0, {"": array[first[k] : first[k + 1]]}, {})] for array in kinds.values() for k in (1, 2)]
    paths = (str(tmp_path / "rows"), str(tmp_path / "told")) if left else (None, None)
    lines = [update.Lam, update.eta, update.mean]
    made = pass_over_rows(ranges, task, inputs, blocks, Store(), [None] * len(ranges), lines, None, paths)
    assert (tmp_path / "rows").exists() is left
    assert (made.first, made.n) == (0, 90)
    known = {"mean": mean, "cov": cov, "sum_Z2": sums.sum_Z2, "sum_yz": sums.sum_yz, "good": good}
    assert set(made.arrays) == {"mean", "cov"}
    for name, one in (made.arrays | made.told).items():
        found = np.zeros(one.shape)
        put(one, found)
        np.testing.assert_array_equal(found, {**known, "divergence": divergence}[name][:90])


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
    where = write_part(tmp_path, RowPartition(start, others, np.ones(100_000)))

    def held() -> int:
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        return sum(int(next(x for x in lines if x.startswith("Rss")).split()[1]) for one in lines if where in one)

    part = open_part(where, RowPartition)
    assert part.value.sum() == 100_000
    assert held() > 1000
    close_part(where)
    assert held() == 0
    np.testing.assert_array_equal(part.others, others)
