"""Arrays in files without names, and sums over long arrays a piece at a time."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.arrays import (
    MEMORY,
    RunningSum,
    Scratch,
    bytes_of,
    leaves,
    mean_square,
    on_scratch,
    read_ahead,
    room_of,
    total,
    variance,
)

NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"


def test_scratch_arrays_are_plain_writable_and_have_no_name(tmp_path: Path) -> None:
    room = Scratch(tmp_path)
    array = room.empty((100, 3), np.int32)
    array[:] = np.arange(300).reshape(100, 3)
    assert type(array) is np.ndarray
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.sum() == 300 * 299 // 2
    assert room_of(array[5:].ravel()) is room
    assert on_scratch(array)
    assert not on_scratch(array.copy())
    assert room_of(np.zeros(3)) is MEMORY
    read_ahead(array, 10, 50)
    read_ahead(np.zeros(4), 0, 4)
    assert os.listdir(tmp_path) == []
    assert room.empty((0, 3)).shape == (0, 3)


def test_scratch_growing_array_is_what_was_appended(tmp_path: Path) -> None:
    growing = Scratch(tmp_path).growing(np.float32)
    growing.append(np.arange(5))
    growing.append(np.arange(3))
    assert growing.finish().tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert len(Scratch(tmp_path).growing(np.float64).finish()) == 0


def test_scratch_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a folder that exists"):
        Scratch(tmp_path / "none")


def test_scratch_full_disk_is_one_sentence_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_500_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    Scratch(tmp_path).check_free(1_000_000_000)
    with pytest.raises(OSError, match=r"has 1.5 GB free, and 2 GB are needed; give another folder, or make room\.$"):
        Scratch(tmp_path).check_free(2_000_000_000)


def test_scratch_disk_that_fills_up_is_the_same_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    room, growing = Scratch(tmp_path), Scratch(tmp_path).growing(np.float64)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    monkeypatch.setattr(growing, "_file", type("Full", (), {"write": full})())
    for work in (lambda: room.empty(10), lambda: growing.append(np.ones(3))):
        with pytest.raises(OSError, match="GB free, and .* GB are needed"):
            work()
    assert os.listdir(tmp_path) == []


@each("n", [1, 7, 1000, 262_144, 262_145, 700_003])
def test_sums_have_the_bits_of_numpy(n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.standard_normal(n) ** 3 + 0.1
    running, first = RunningSum(n), 0
    while first < n:
        size = int(rng.integers(1, 100_000))
        running.add(values[first : first + size])
        first += size
    near = {"rel": 0.0 if NUMPY_2 else 1e-14, "abs": 0.0}  # NumPy 1 halved some arrays otherwise
    assert running.sum == total(n, lambda at: values[at]) == pytest.approx(values.sum(), **near)
    assert mean_square(values) == pytest.approx(np.mean(values**2), **near)
    assert variance(values) == pytest.approx(np.var(values), **near)
    assert [a for a, _ in leaves(n)][1:] == [b for _, b in leaves(n)][:-1]


@each(("given", "expected"), [("8GB", 8e9), ("500 MB", 5e8), ("1.5g", 1.5e9), (2e9, 2e9), ("7", 7.0), ("2GiB", 2e9)])
def test_memory_bytes_are_read(given: object, expected: float) -> None:
    assert bytes_of("memory", given) == expected


@each("given", ["", "GB", "-3GB", "8 apples", 0, -1.0, float("nan"), True, None])
def test_memory_bytes_that_are_none_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="memory must be a number of bytes, such as '8GB'"):
        bytes_of("memory", given)
