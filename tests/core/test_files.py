"""Archives that nobody vouches for, and temporary files that killed processes leave."""

from __future__ import annotations

import errno
import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.persist import archive as archives
from tensorcep.core.persist.archive import archive_kind, atomic_write, read_archive, read_members, write_archive

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 3)), "day": np.array(["2020-01-01"], "M8[ns]")}
ARRAYS |= {
    "one": np.array(1.5),
    "text": np.array(["ä", "bc"]),
    "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def stored(array: np.ndarray) -> bytes:
    """An array as an .npy file has it."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def described(text: str, version: bytes = b"\x01\x00") -> bytes:
    """An .npy file of no data whose header says this."""
    data = text.encode()
    size = len(data).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + size + data


def archive(path: Path, *members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """An archive with these members behind a header of ours."""
    header = np.frombuffer(json.dumps({"kind": "k", "version": 1}).encode(), dtype=np.uint8)
    with zipfile.ZipFile(path, "w", compression) as zipped:
        for name, content in (("header.npy", stored(header)), *members):
            zipped.writestr(name, content)
    return path


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ValueError, match=r"x\.npz' ") as caught:
        read_archive(path, "k", 1)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.__cause__ is None
    for word in words:
        assert word in text, text


def test_files_archive_comes_back_with_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_archive(path, "k", 1, {"pair": (1, 2), "share": 0.1, "by": {3: "ü"}}, ARRAYS)
    header, arrays = read_archive(path, "k", 1)
    assert header.pop("checksum")
    assert header == {"kind": "k", "version": 1, "pair": [1, 2], "share": 0.1, "by": {"3": "ü"}}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert archive_kind(path) == "k"


@pytest.mark.parametrize("n", [0, 501, 60_000])
def test_files_archive_goes_to_a_device_whatever_its_size(n: int) -> None:
    write_archive(os.devnull, "k", 1, {}, {"bytes": np.zeros(n, dtype=np.uint8)})


@each("name", sorted(ARRAYS))
def test_files_archive_refuses_arrays_and_headers_that_were_changed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npz"
    write_archive(path, "k", 1, {"share": 0.1}, ARRAYS)
    with np.load(path) as opened:
        content = {key: opened[key] for key in opened.files}
    other = np.zeros((0, 4)) if name == "none" else np.concatenate([content[name].ravel()] * 2)
    np.savez(path, **{**content, name: other})
    refused(path, "was changed after it was written")
    header = json.loads(content["header"].tobytes())
    text = json.dumps({**header, "share": 0.2}).encode()
    np.savez(path, **{**content, "header": np.frombuffer(text, dtype=np.uint8)})
    refused(path, "was changed after it was written")
    write_archive(path, "k", 1, {"share": 0.1}, ARRAYS)
    read_archive(path, "k", 1)


def promising(shape: str, kind: str = "<f8") -> bytes:
    """An .npy file of no data whose header promises an array of this shape."""
    return described(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}\n")


LYING = {
    "a promise of 8 TB": (promising("1000000000000,"), "promises"),
    "a promise beyond all integers": (promising(f"{10**30},"), "promises"),
    "a negative size": (promising("-1, 0"), "promises"),
    "an open bracket": (described("{'descr': '<f8', 'fortran_order': False, 'shape': (37,\n"), "damaged"),
    "brackets without end": (described("(" * 9000 + "\n"), "damaged"),
    "brackets without end and version 2": (described("[" * 9000 + "\n", b"\x02\x00"), "damaged"),
    "a version of its own": (described("{}", b"\x09\x00"), "damaged"),
    "no array at all": (b"hello", "damaged"),
    "objects": (promising("1,", "|O"), "holds Python objects"),
    "too little": (stored(np.zeros(9))[:-8], "promises 72 bytes and holds 64"),
    "too much": (stored(np.zeros(9)) + b"more", "promises 72 bytes and holds 76"),
}


@each("case", LYING)
def test_files_archive_refuses_members_that_lie(tmp_path: Path, case: str) -> None:
    content, word = LYING[case]
    refused(archive(tmp_path / "x.npz", ("a.npy", content)), "truncated or damaged", word)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_files_archive_refuses_members_that_are_compressed_or_overlap(tmp_path: Path) -> None:
    bomb = ("a.npy", stored(np.zeros(10**6)))
    refused(archive(tmp_path / "x.npz", bomb, compression=zipfile.ZIP_DEFLATED), "is compressed")
    refused(archive(tmp_path / "x.npz", ("a.npy", b""), ("a.npy", b"")), "overlap")
    data = bytearray(archive(tmp_path / "x.npz", ("a.npy", stored(np.zeros(9)))).read_bytes())
    at = data.rindex(b"PK\x01\x02")  # the member's line of the directory
    for first in (20, 24):  # what it takes, and what it holds
        data[at + first : at + first + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "x.npz").write_bytes(bytes(data))
    refused(tmp_path / "x.npz", "overlap")


@each("field", [(6, 1), (6, 0x20), (6, 0x40), (8, 99), (4, 200)])
def test_files_archive_refuses_flags_that_python_does_not_know(tmp_path: Path, field: tuple[int, int]) -> None:
    """Encryption, patched data, strong encryption, an unknown compression, a version to come."""
    path = archive(tmp_path / "x.npz", ("a.npy", stored(np.zeros(9))))
    where, value = field
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        data = bytearray(path.read_bytes())
        data[data.rindex(mark) + where + shift] ^= value
        path.write_bytes(bytes(data))
    refused(path, "truncated or damaged")
    assert archive_kind(path) in (None, "k")


def test_files_archive_refuses_headers_nested_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, header=np.frombuffer(b"[" * 100_000, dtype=np.uint8))
    refused(path, "has no tensorcep header")
    assert archive_kind(path) is None


def test_files_archive_reads_only_the_members_that_are_wanted(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", ("a.npy", b"no array"))
    with path.open("rb") as handle:
        assert set(read_members(handle, ("header",))) == {"header"}


def test_files_atomic_write_sweeps_what_killed_writes_left(tmp_path: Path) -> None:
    path, old = tmp_path / "x.bin", time.time() - 60.0
    names = [".x.bin.0123456789ab.tmp", ".x.bin.0123456789cd.tmp", ".y.bin.0123456789ab.tmp", ".x.bin.mine.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (old, old))
    with (tmp_path / names[1]).open("rb") as held:
        assert archives._is_free(held)  # as if another process were still writing
        with atomic_write(path) as handle:
            handle.write(b"new")
    assert sorted(os.listdir(tmp_path)) == sorted([*names[1:], "x.bin"])
    with atomic_write(path) as handle:
        handle.write(b"newer")
    assert sorted(os.listdir(tmp_path)) == sorted([*names[2:], "x.bin"])


def test_files_atomic_write_leaves_a_write_that_goes_on_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    with atomic_write(path) as first:
        first.write(b"first")
        first.flush()
        (begun,) = tmp_path.glob(".x.bin.*.tmp")
        os.utime(begun, (0, 0))
        with atomic_write(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"


def test_files_atomic_write_names_the_file_that_does_not_fit(tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        with atomic_write(tmp_path / "x.bin"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as caught:
        full()
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "x.bin")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="files have no such permissions there")
@each("mode", [0o600, 0o640, 0o666, 0o444])
def test_files_keep_the_permissions_of_those_that_they_replace(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"earlier")
    path.chmod(mode)
    with atomic_write(path) as handle:
        assert [name.stat().st_mode & 0o777 for name in tmp_path.glob(".x.npz.*")] == [mode]
        handle.write(b"new")
    assert path.stat().st_mode & 0o777 == mode
    write_archive(path, "k", 1, {}, ARRAYS)
    assert path.stat().st_mode & 0o777 == mode
    (tmp_path / "plain").touch()
    write_archive(tmp_path / "another.npz", "k", 1, {}, ARRAYS)
    assert (tmp_path / "another.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode
