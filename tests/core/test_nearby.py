"""Arrays that processes of one machine leave for each other: whole, to the bit, and gone when nobody needs them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core import shared_memory
from tensorcep.core.shared_memory import (
    BYTES_READ,
    SharedArray,
    SharedFolder,
    Sheet,
    put,
    remove,
    remove_after,
    rows_of,
    share,
)

ROWS, SQUARES = np.random.default_rng(0).normal(size=(3000, 5)), np.arange(3000.0)


class Client:
    """Workers that see the folder, or do not."""

    def __init__(self, *sees: bool):
        self.sees = sees

    def run(self, function: Any, *args: Any) -> dict[int, bool]:
        return {n: sees and function(*args) for n, sees in enumerate(self.sees)}


def test_arrays_that_are_left_have_the_same_bits(tmp_path: Path) -> None:
    rows, squares = share(str(tmp_path / "a"), (ROWS[::2], SQUARES))
    assert isinstance(rows, SharedArray)
    assert (rows.shape, rows.nbytes) == ((1500, 5), 60_000)
    found, other = np.zeros((1500, 5)), np.zeros((5, 3000)).T
    put(rows, found)
    put(squares, other[:, 0])  # not contiguous
    np.testing.assert_array_equal(found, ROWS[::2])
    np.testing.assert_array_equal(other[:, 0], SQUARES)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    remove([rows.path, rows.path])
    with pytest.raises(FileNotFoundError, match="is gone; run the same call again"):
        put(rows, found)


@each(("path", "array"), [(None, ROWS), ("a", ROWS[:10]), ("a", ROWS.astype(np.float32)), ("no/folder/a", ROWS)])
def test_what_cannot_or_need_not_be_left_is_given_as_it_is(tmp_path: Path, path: str | None, array: np.ndarray) -> None:
    (given,) = share(None if path is None else str(tmp_path / path), (array,))
    assert given is array
    assert not list(tmp_path.iterdir())
    out = np.empty_like(array)
    put(given, out)
    np.testing.assert_array_equal(out, array)


def filled(sheet: Sheet) -> None:
    """Rows and squares, some at a time."""
    for a in range(0, 3000, 700):
        sheet.put(0, a, ROWS[a : a + 700])
        sheet.put(1, a, SQUARES[a : a + 700])


def check_filled(given: list[shared_memory.Payload]) -> None:
    for one, array in zip(given, (ROWS, SQUARES), strict=True):
        found = np.zeros_like(array)
        put(one, found)
        np.testing.assert_array_equal(found, array)
        part = np.zeros_like(array[100:1200])
        put(rows_of(one, 100, 1200), part)
        np.testing.assert_array_equal(part, array[100:1200])


@each("path", ["a", None, "no/folder/a"])
def test_arrays_that_are_made_some_rows_at_a_time_have_the_same_bits(tmp_path: Path, path: str | None) -> None:
    sheet = Sheet(None if path is None else str(tmp_path / path), [ROWS.shape, SQUARES.shape])
    filled(sheet)
    assert not (tmp_path / "a").exists()  # nobody sees a part of it
    given = sheet.done()
    sheet.drop()
    assert all(isinstance(one, SharedArray) is (path == "a") for one in given)
    check_filled(given)


def test_arrays_for_which_there_is_no_more_room_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.pwrite, list[int]()

    def full(handle: int, bits: Any, at: int) -> int:
        calls.append(at)
        if len(calls) > 5:
            raise OSError("no room")
        return real(handle, bits[:5000], at)  # a part of what is asked for

    monkeypatch.setattr(shared_memory.os, "pwrite", full)
    sheet = Sheet(str(tmp_path / "a"), [ROWS.shape, SQUARES.shape])
    filled(sheet)
    check_filled(sheet.done())
    assert not list(tmp_path.iterdir())


def test_arrays_that_nobody_has_finished_leave_no_file(tmp_path: Path) -> None:
    sheet = Sheet(str(tmp_path / "a"), [ROWS.shape])
    sheet.put(0, 0, ROWS[:10])
    assert len(list(tmp_path.iterdir())) == 1
    sheet.drop()
    assert not list(tmp_path.iterdir())


def test_file_that_ends_early_is_a_file_that_is_gone(tmp_path: Path) -> None:
    (rows,) = share(str(tmp_path / "a"), (ROWS,))
    os.truncate(tmp_path / "a", 80_000)
    with pytest.raises(FileNotFoundError, match="is gone"):
        put(rows, np.empty_like(ROWS))


def test_bytes_of_others_alone_are_counted(tmp_path: Path) -> None:
    (own,) = share(str(tmp_path / "a"), (ROWS,))
    assert isinstance(own, SharedArray)
    before = BYTES_READ[0]
    put(own, np.empty_like(ROWS))
    assert BYTES_READ[0] == before
    put(own._replace(writer=-1), np.empty_like(ROWS))
    assert BYTES_READ[0] - before == ROWS.nbytes


@pytest.mark.skipif(not os.path.isdir(shared_memory.MEMORY), reason="the system has no folder in memory")
def test_desk_is_open_where_all_workers_see_it_and_leaves_nothing() -> None:
    desk = SharedFolder(Client(True, False))
    desk.open()
    assert desk.new_path() is desk.folder is None
    desk.close()
    desk = SharedFolder(Client(True, True))
    desk.open()
    folder, path = desk.folder, desk.new_path()
    assert folder is not None
    assert path is not None
    assert isinstance(share(path, (ROWS,))[0], SharedArray)
    desk.give_up()
    assert desk.new_path() is None
    assert os.path.exists(path)  # tasks that were told of it may still come
    desk.close()
    assert not os.path.exists(folder)


def test_without_a_folder_in_memory_arrays_are_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_memory, "MEMORY", str(tmp_path / "none"))
    desk = SharedFolder(Client(True))
    desk.open()
    assert desk.new_path() is None


def test_folder_of_a_killed_process_is_removed_with_its_last_keeper(tmp_path: Path) -> None:
    gone = int(subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"]))
    for owner, stays in ((os.getpid(), True), (gone, False)):
        folder = tmp_path / str(owner)
        folder.mkdir()
        keeper = type("Keeper", (), {})()
        remove_after(keeper, str(folder), owner)
        del keeper
        gc.collect()
        assert folder.is_dir() is stays
