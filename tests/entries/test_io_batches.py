"""Entries of files in batches: what is read, where the next batch begins, and lines that are no entries."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

from tensorcep.entries.io import read_batches, read_tensor, schema, text

LINES = [f"{i} {j} {k} {0.5 * i - j + k:g}" for i, j, k in itertools.product((1, 2, 3), (1, 2), (1, 4))]


def write(path: Path, lines: list[str], head: str = "") -> Path:
    text = head + "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def joined(batches):
    return np.concatenate([b.coords for b in batches]), np.concatenate([b.values for b in batches])


@each("head", ["", "# a comment\n\n", "3 12\n3 2 4\n"])
@each("name", ["a.tns", "a.tns.gz"])
def test_read_batches_of_tns_equals_read_tensor(tmp_path, name, head):
    path = write(tmp_path / name, LINES, head)
    tensor = read_tensor(path)
    batches = list(read_batches(path, 5))
    assert [len(b.values) for b in batches] == [5, 5, 2]
    coords, values = joined(batches)
    np.testing.assert_array_equal(coords, tensor.coords)
    np.testing.assert_array_equal(values, tensor.values)
    assert batches[0].keys == (None, None, None)


@each("size", [1, 5, 12, 100])
def test_read_batches_goes_on_from_every_position(tmp_path, size):
    paths = [write(tmp_path / f"{n}.tns", LINES[a:b], "# head\n") for n, (a, b) in enumerate(((0, 3), (3, 4), (4, 12)))]
    whole = list(read_batches(paths, size))
    for n, batch in enumerate(whole):
        rest = list(read_batches(paths, size, start=batch.position))
        assert len(rest) == len(whole) - n - 1
        for a, b in zip(rest, whole[n + 1 :], strict=True):
            np.testing.assert_array_equal(a.coords, b.coords)
            np.testing.assert_array_equal(a.values, b.values)
            assert a.position == b.position


def test_read_batches_of_csv_has_labels_as_text_and_chosen_columns(tmp_path):
    lines = ['7,"b, c",2.5,x', "8,d,-1,y"]
    path = write(tmp_path / "a.csv", lines, "user,item,value,note\n")
    (batch,) = read_batches(path, modes=["item", "user"], value="value")
    assert batch.keys == (["b, c", "d"], ["7", "8"])
    assert batch.names == ("item", "user")
    np.testing.assert_array_equal(batch.values, [2.5, -1.0])
    (indices,) = read_batches(write(tmp_path / "b.csv", ["0,3,1.5"]), header=False, index_base=0)
    np.testing.assert_array_equal(indices.coords, [[0, 3]])


def test_read_batches_of_parquet_equals_csv(tmp_path):
    frame = pd.DataFrame({"user": list("abcab"), "item": list("xxyyz"), "y": [1.0, 2.0, 0.5, -1.0, 3.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    pairs = zip(read_batches(tmp_path / "a.parquet", 2), read_batches(tmp_path / "a.csv", 2), strict=True)
    for parquet, csv in pairs:
        assert parquet.keys == csv.keys
        assert parquet.names == csv.names
        assert parquet.position.line + 1 == csv.position.line  # csv counts its header
        np.testing.assert_array_equal(parquet.values, csv.values)
    rest = list(read_batches(tmp_path / "a.parquet", 2, start=(0, 4)))
    assert [b.keys for b in rest] == [(["b"], ["z"])]


def test_read_batches_first_batch_has_a_size_of_its_own_at_the_beginning_only(tmp_path):
    path = write(tmp_path / "a.tns", LINES)
    batches = list(read_batches(path, 3, first_batch=7))
    assert [len(b.values) for b in batches] == [7, 3, 2]
    rest = read_batches(path, 3, first_batch=7, start=batches[0].position)
    assert [len(b.values) for b in rest] == [3, 2]


BAD = {
    "1 2 3": "has 3 fields where 4 are expected",
    "1 x 3 0.5": "has index 'x' in field 2, which is not an integer",
    "1 0 3 0.5": "has index '0' in field 2, but indices count from 1",
    "1 2 3 0_5": "has '0_5' in field 4, which is not a number",
    "1 2 3 nan": "has the value 'nan'; values must be finite",
}


@each("line", BAD)
def test_read_batches_refuses_a_malformed_line_with_its_number(tmp_path, line):
    path = write(tmp_path / "a.tns", [*LINES[:6], line, *LINES[6:]])
    batches = read_batches(path, 4)
    next(batches)
    with pytest.raises(ValueError, match=f"line 7 of '.*' {BAD[line][:20]}"):
        next(batches)


def test_read_batches_hands_over_malformed_lines_and_keeps_the_others(tmp_path):
    lines = list(LINES)
    for n, line in enumerate(BAD):
        lines.insert(2 * n + 1, line)
    taken = []
    path = write(tmp_path / "a.tns", lines)
    coords, values = joined(list(read_batches(path, 5, bad_line=lambda *parts: taken.append(parts))))
    assert [number for _, number, _, _ in taken] == [2, 4, 6, 8, 10]
    assert [text.strip() for _, _, _, text in taken] == list(BAD)
    tensor = read_tensor(write(tmp_path / "good.tns", LINES))
    np.testing.assert_array_equal(coords, tensor.coords)
    np.testing.assert_array_equal(values, tensor.values)


def test_read_batches_hands_over_bad_rows_of_parquet(tmp_path):
    frame = pd.DataFrame({"user": ["a", None, "c"], "item": list("xyz"), "y": [1.0, 2.0, np.nan]})
    frame.to_parquet(tmp_path / "a.parquet")
    taken = []
    (batch,) = read_batches(tmp_path / "a.parquet", bad_line=lambda *parts: taken.append(parts[1:3]))
    assert batch.keys == (["a"], ["x"])
    assert [number for number, _ in taken] == [2, 3]
    with pytest.raises(ValueError, match="line 2 of '.*' has a missing label"):
        list(read_batches(tmp_path / "a.parquet"))


def test_read_batches_refuses_files_that_it_cannot_read_in_pieces(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        next(read_batches(tmp_path / "none.csv"))
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="npz file, which cannot be read in pieces"):
        next(read_batches(tmp_path / "a.npz"))
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match="not a parquet file or is damaged"):
        next(read_batches(tmp_path / "a.parquet"))
    (tmp_path / "empty.tns").write_text("# nothing\n")
    with pytest.raises(ValueError, match="holds no entries"):
        next(read_batches(tmp_path / "empty.tns"))
    two = [write(tmp_path / "2.tns", ["1 1 0.5"]), write(tmp_path / "3.tns", ["1 1 1 0.5"])]
    with pytest.raises(ValueError, match="the files must have the same columns"):
        list(read_batches(two, 10))


NASTY = [
    "u1,7,1.5",
    '"a, b",8,-2',
    'a "q" b, 9,1e-300',
    "",
    "   ",
    "u2,7",
    "u3,7,0.5,9",
    'u4,"open,3',
    ",7,1.0",
    "u_5,x_y,1_0",
    "u6,7,inf",
    "u_7,8,2.25",
]


@each("size", [1, 4, 9, 100])
def test_read_batches_in_pieces_and_line_by_line_agree(tmp_path, monkeypatch, size):
    good = [f"u{n},{n % 5},{0.1 * n!r}" for n in range(40)]
    files = {
        "a.csv": ["user,item,y", *good, *NASTY, *good, *NASTY[:5]],
        "b.tns": [
            *LINES,
            "# said",
            "  # later",
            "",
            "1 2 3 4 # of the fourth",
            "1.0 2 3 4e0",
            "0 1 1 1",
            "1 2 3 1_0",
            *LINES,
        ],
    }
    for name, lines in files.items():
        path = write(tmp_path / name, lines)
        results = []
        for few in (0, 10**9):  # pandas for every piece, or for none
            monkeypatch.setattr(schema, "FEW_LINES", few)
            if few:
                monkeypatch.setattr(text, "entries_in", lambda *block: None)
            taken = []
            found = list(read_batches(path, size, bad_line=lambda *parts, taken=taken: taken.append(parts)))
            results.append((taken, found))
        (taken, found), (taken_one, found_one) = results
        assert taken == taken_one
        assert len(taken) in (2, 6)
        for batch, one in zip(found, found_one, strict=True):
            assert (batch.keys, batch.names, batch.position) == (one.keys, one.names, one.position)
            np.testing.assert_array_equal(batch.coords, one.coords)
            np.testing.assert_array_equal(batch.values, one.values)


def test_read_batches_takes_no_line_before_it_is_needed(tmp_path):
    path = write(tmp_path / "a.tns", [*LINES[:4], "no entry", *LINES[4:]])
    taken = []
    batches = read_batches(path, 4, bad_line=lambda *parts: taken.append(parts))
    assert next(batches).position == (0, 4)
    assert taken == []
    assert next(batches).position == (0, 9)
    assert len(taken) == 1
