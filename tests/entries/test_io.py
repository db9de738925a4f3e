"""Files of entries: round trips, dialects, and the sentence for every kind of bad file."""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorcep.core.persist import archive as _files
from tensorcep.entries.io import read_tensor, write_tensor
from tensorcep.entries.io import text as _text
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor

QUICK = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
ENTRIES = {(0, 1, 2): 1.5, (3, 0, 0): -2.0, (1, 1, 1): 1e-300}


def as_dict(tensor: SparseTensor) -> dict[tuple[int, ...], float]:
    return dict(zip(map(tuple, tensor.coords.tolist()), tensor.values.tolist(), strict=True))


def make(labels: Any = None) -> SparseTensor:
    return SparseTensor.from_coo(list(ENTRIES), list(ENTRIES.values()), (4, 2, 5), labels=labels)


def labelled(second: str = "") -> SparseTensor:
    days = pd.date_range("2024-01-01", periods=2, tz="Europe/Paris")
    names = Labels(["zoë", second, 'a "b", c', "NA"], name="user")
    return make([names, Labels(days, name="day"), Labels([10, 7, 3, 900, -1], name="item")])


def named_entries(tensor: SparseTensor) -> set[tuple[Any, ...]]:
    return set(tensor.to_pandas().itertuples(index=False, name=None))


def read(tmp_path: Path, text: str | bytes, name: str = "x.tns", **options: Any) -> SparseTensor:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_tensor(path, **options)


@st.composite
def tensors(draw: Any) -> SparseTensor:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
    ids = draw(st.lists(st.integers(0, math.prod(shape) - 1), unique=True, min_size=1, max_size=30))
    values = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=len(ids), max_size=len(ids)))
    coords = np.stack(np.unravel_index(np.array(ids, dtype=np.int64), shape), axis=1)
    return SparseTensor(coords, np.array(values), shape)  # type: ignore[arg-type]


# Round trips


@QUICK
@given(tensors(), st.sampled_from([".tns", ".tns.gz", ".csv", ".csv.gz", ".parquet", ".npz"]), st.sampled_from([0, 1]))
def test_io_round_trip_keeps_entries_bit_for_bit(
    tmp_path: Path, tensor: SparseTensor, extension: str, index_base: int
) -> None:
    if extension == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"x{extension}"
    write_tensor(tensor, path, index_base=index_base)
    again = read_tensor(path, index_base=index_base, shape=tensor.shape, labels=False)
    np.testing.assert_array_equal(again.coords, tensor.coords)
    np.testing.assert_array_equal(again.values, tensor.values)
    assert again.shape == tensor.shape


@QUICK
@given(
    st.lists(st.text(), unique=True, min_size=2, max_size=6),
    st.sampled_from(
        [
            np.array([3.5, -1.0]),
            np.array([True, False]),
            np.array(["2024-01-01", "1999-12-31"], dtype="datetime64[s]"),
            np.array([7, -9], dtype=np.int64),
            np.array([1, 2], dtype="timedelta64[ms]"),
            pd.date_range("2024-03-30", periods=2, tz="Europe/Paris"),
        ]
    ),
)
def test_io_npz_keeps_labels_of_any_dtype(tmp_path: Path, text: list[str], other: Any) -> None:
    labels = [Labels(text, name="t"), Labels(other)]
    tensor = SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], None, labels)  # type: ignore[arg-type]
    write_tensor(tensor, tmp_path / "x.npz")
    again = read_tensor(tmp_path / "x.npz")
    assert again.labels == tensor.labels
    assert [found.index.dtype for found in again.labels if found] == [labels[0].index.dtype, labels[1].index.dtype]
    assert [found.name for found in again.labels if found] == ["t", None]


def test_io_npz_holds_no_pickle(tmp_path: Path) -> None:
    write_tensor(labelled(), tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as archive:
        assert not any(archive[name].dtype.hasobject for name in archive.files)
        header = json.loads(archive["header"].tobytes())
    assert (header["kind"], header["version"], header["shape"]) == ("tensorcep.tensor", 1, [4, 2, 5])


def test_io_npz_refuses_labels_that_are_objects(tmp_path: Path) -> None:
    labels = Labels([frozenset([1])])
    tensor = SparseTensor([[0, 1]], [1.0], None, [labels, None])  # type: ignore[arg-type, list-item]
    with pytest.raises(ValueError, match=r"label frozenset\(\{1\}\) of mode 0 cannot be stored in a file; convert"):
        write_tensor(tensor, tmp_path / "x.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_io_csv_keeps_names_and_labels_as_text(tmp_path: Path, name: str) -> None:
    write_tensor(labelled("x"), tmp_path / name)
    again = read_tensor(tmp_path / name)
    expected = {(user, str(day), item, y) for user, day, item, y in named_entries(labelled("x"))}
    assert named_entries(again) == expected
    assert [found.name for found in again.labels if found] == ["user", "day", "item"]


def test_io_parquet_keeps_names_and_dtypes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_tensor(labelled(), tmp_path / "x.parquet")
    assert named_entries(read_tensor(tmp_path / "x.parquet")) == named_entries(labelled())


def test_io_tns_warns_that_labels_are_dropped(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"a \.tns file holds no labels"):
        write_tensor(labelled(), tmp_path / "x.tns")
    assert as_dict(read_tensor(tmp_path / "x.tns")) == ENTRIES


def test_io_extended_tns_keeps_the_shape(tmp_path: Path) -> None:
    write_tensor(make(), tmp_path / "x.tns.gz", extended=True)
    assert gzip.decompress((tmp_path / "x.tns.gz").read_bytes()).startswith(
        b"# extended FROSTT format\n3 3\n4 2 5\n1 2 3 "
    )
    assert read_tensor(tmp_path / "x.tns.gz").shape == (4, 2, 5)


def test_io_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    for name in ("a.tns.gz", "b.tns.gz"):
        write_tensor(make(), tmp_path / name)
    assert (tmp_path / "a.tns.gz").read_bytes() == (tmp_path / "b.tns.gz").read_bytes()


# Dialects

PLAIN = "1 2 3 1.5\n4 1 1 -2\n2 2 2 1e-300\n"


@each(
    "text",
    [
        PLAIN,
        PLAIN.replace(" ", "\t"),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.rstrip("\n"),
        "\ufeff" + PLAIN,
        "# about\n\n#more\n" + PLAIN,
        PLAIN.replace("\n", "  # said later\n"),
        PLAIN + "# at the end\n\n",
        PLAIN.replace("4 1", "# between # two\n  4\t 1"),
        PLAIN.replace(" ", "   "),
        PLAIN.replace("\n", " \n"),
        PLAIN.replace("4 1 1", "4.0 1 1e0"),
        "# extended\n3 3\n# sizes\n4 2 3\n" + PLAIN,
        b"# caf\xe9 in latin-1\n" + PLAIN.encode(),
    ],
)
@each("packed", [False, True])
def test_io_tns_dialects_read_the_same(tmp_path: Path, text: str | bytes, packed: bool) -> None:
    data = text.encode() if isinstance(text, str) else text
    tensor = read(tmp_path, gzip.compress(data) if packed else data, "x.tns.gz" if packed else "x.tns")
    assert as_dict(tensor) == ENTRIES
    assert tensor.shape == (4, 2, 3)


@each("block", [1, 7, 16, 64])
def test_io_tns_blocks_do_not_change_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(_text, "BLOCK", block)
    lines = [f"{n % 7 + 1} {n + 1} {n}.25" for n in range(100)]
    lines[50:50] = ["# one", "", "# two"]
    tensor = read(tmp_path, "\n".join(lines))
    np.testing.assert_array_equal(tensor.coords[:, 1], np.arange(100))
    np.testing.assert_array_equal(tensor.values, np.arange(100) + 0.25)
    lines[80] = "1 1"
    with pytest.raises(ValueError, match=r"line 81 of '.*x\.tns' has 2 fields where 3 are expected"):
        read(tmp_path, "\n".join(lines))
    lines[80] = "1 1 1 1 1"
    with pytest.raises(ValueError, match=r"line 81 of '.*x\.tns' has 5 fields where 3 are expected"):
        read(tmp_path, "\n".join(lines))


def test_io_tns_shape_overrides_the_largest_index(tmp_path: Path) -> None:
    assert read(tmp_path, PLAIN, shape=(9, 9, 9)).shape == (9, 9, 9)
    with pytest.raises(ValueError, match="shape must have 3 modes"):
        read(tmp_path, PLAIN, shape=(9, 9))


def test_io_tns_index_base_zero(tmp_path: Path) -> None:
    assert as_dict(read(tmp_path, "0 0 5\n1 2 6\n", index_base=0)) == {(0, 0): 5.0, (1, 2): 6.0}


def test_io_tns_duplicates_policy(tmp_path: Path) -> None:
    text = "1 1 5\n2 2 1\n1 1 7\n"
    with pytest.raises(ValueError, match=r"the cell \(0, 0\) .* first at entries 0 and 2"):
        read(tmp_path, text)
    assert as_dict(read(tmp_path, text, duplicates="mean")) == {(0, 0): 6.0, (1, 1): 1.0}


def test_io_csv_columns_by_name_in_any_place(tmp_path: Path) -> None:
    text = "score,user,note,item\n1.5,b,x,7\n2.5,a,y,7\n"
    tensor = read(tmp_path, text, "x.csv", modes=["item", "user"], value="score")
    assert named_entries(tensor) == {(7, "b", 1.5), (7, "a", 2.5)}
    assert tensor.shape == (1, 2)


def test_io_csv_last_column_is_the_value(tmp_path: Path) -> None:
    tensor = read(tmp_path, 'user,item,y\n"x, y",i,1\nz,i,2\n', "x.csv")
    assert named_entries(tensor) == {("x, y", "i", 1.0), ("z", "i", 2.0)}


@pytest.mark.parametrize(
    "text", ["1,2,3,1.5\n4,1,1,-2\n2,2,2,1e-300\n", '# a\n"1","2",3,1.5\n4, 1, 1, -2\n2,2,2,1e-300\n']
)
def test_io_csv_without_header_holds_indices(tmp_path: Path, text: str) -> None:
    assert as_dict(read(tmp_path, text, "x.csv", header=False)) == ENTRIES
    swapped = read(tmp_path, text, "x.csv", header=False, modes=[2, 0], value=3)
    assert as_dict(swapped) == {(c, a): y for (a, _, c), y in ENTRIES.items()}


def test_io_csv_without_header_may_hold_labels(tmp_path: Path) -> None:
    tensor = read(tmp_path, "b,2,1.5\na,2,2.5\n", "x.csv", header=False, labels=True)
    assert list(tensor.to_pandas().columns) == ["mode_0", "mode_1", "y"]
    assert named_entries(tensor) == {("b", 2, 1.5), ("a", 2, 2.5)}


def test_io_csv_with_header_may_hold_indices(tmp_path: Path) -> None:
    tensor = read(tmp_path, "i,j,y\n1,2,5\n3,1,6\n", "x.csv", labels=False, shape=(3, 4))
    assert as_dict(tensor) == {(0, 1): 5.0, (2, 0): 6.0}
    assert tensor.labels == (None, None)


def test_io_reads_the_published_folds(real_data: Path) -> None:
    path = real_data / "alog" / "train-fold-1.txt"
    tensor = read_tensor(path, format="csv", header=False, shape=(200, 100, 200))
    expected = np.loadtxt(path, delimiter=",")
    assert len(tensor) == 21_076
    np.testing.assert_array_equal(tensor.coords, expected[:, :3] - 1)
    np.testing.assert_array_equal(tensor.values, expected[:, 3])


def test_io_progress_bar_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(tmp_path, PLAIN)
    assert capsys.readouterr().err == ""
    read(tmp_path, PLAIN, verbose=1)
    assert "x.tns: 100%" in capsys.readouterr().err
    write_tensor(make(), tmp_path / "y.tns", verbose=1)
    assert "write: 100%" in capsys.readouterr().err


# Bad files

BAD_TNS = [
    ("1 2 3 1\n1 2 4\n", "line 2 of '.*' has 3 fields where 4 are expected; mend or remove it"),
    ("# c\n\n1 2 3 1\n1 2 4 4 4\n", "line 4 of '.*' has 5 fields where 4 are expected"),
    ("1 2 3\n1 x 3\n", "line 2 of '.*' has index 'x' in field 2, which is not an integer"),
    ("1 2 3\n# c\n1 2.5 3\n", "line 3 of '.*' has index '2.5' in field 2, which is not an integer"),
    ("1 2 3\n1 nan 3\n", "line 2 of '.*' has index 'nan' in field 2, which is not an integer"),
    ("1 2 3\n1 inf 3\n", "line 2 of '.*' has index 'inf' in field 2, which is not an integer"),
    ("1 2 3\n1 99999999999999999999 3\n", "line 2 of '.*' in field 2, which is larger than 64 bits hold"),
    ("1 2 3\n1 0 3\n", "line 2 of '.*' has index '0' in field 2, but indices count from 1; pass index_base=0 if"),
    ("1 2 3\n-4 1 3\n", "line 2 of '.*' has index '-4' in field 1, but indices count from 1; mend it"),
    ("1 2 3\n1 1 nan\n", "line 2 of '.*' has the value 'nan'; values must be finite"),
    ("1 2 3\n1 1 -inf\n", "line 2 of '.*' has the value '-inf'; values must be finite"),
    ("1 2 3\n1 1 1e999\n", "line 2 of '.*' has the value '1e999'; values must be finite"),
    ("1 2 3\n1 1 abc\n", "line 2 of '.*' has 'abc' in field 3, which is not a number"),
    ("1 2 3\n1 1 1_0\n", "line 2 of '.*' has '1_0' in field 3, which is not a number"),
    ('1 2 3\n1 "1 3\n', "line 2 of '.*' has index '\"1' in field 2, which is not an integer"),
    ("", "'.*' holds no entries"),
    ("# only\n\n# comments\n", "'.*' holds no entries"),
    ("5\n1 2 3\n", "line 1 of '.*' has one field"),
    ("1 2\n3 4\n", "line 1 of '.*' has two fields, and is neither an entry .* nor an extended header"),
    ("2 2\n4 5\n1 1 3\n", "'.*' holds 1 entries where its header promises 2; it may be truncated"),
    ("2 0\n4 5\n", "'.*' holds no entries after its header"),
    ("2 1\n4 5\n1 6 3\n", r"line 3 of '.*' has index '6' in field 2, beyond the shape \(4, 5\)"),
]


@each(("text", "message"), BAD_TNS)
def test_io_tns_names_the_bad_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


@each(
    ("text", "options", "message"),
    [
        ("a,b,y\n1,2,3\n1,2\n", {}, "line 3 of '.*' has 2 fields where 3 are expected"),
        ("a,b,y\n1,2,3\n1,2,3,4\n", {}, "line 3 of '.*' has 4 fields where 3 are expected"),
        ("y,a,b\n1,2,3\n1,2\n", {"value": "y"}, "line 3 of '.*' has 2 fields where 3 are expected"),
        ("a,b,y\n1,2,x\n", {}, "line 2 of '.*' has 'x' in field 3, which is not a number"),
        ("a,b,y\n1,2,\n", {}, "line 2 of '.*' has '' in field 3, which is not a number"),
        ("a,b,y\n1,2,3\n4,5,nan\n", {}, "line 3 of '.*' has the value 'nan'; values must be finite"),
        ("a,b,y\n", {}, "'.*' holds no entries"),
        ("", {}, "'.*' is empty"),
        ("1,2,3\n4,5,6\n", {}, "line 1 of '.*' holds numbers where column names are expected; pass header=False"),
        ("a,a,y\n1,2,3\n", {}, "line 1 of '.*' names a column twice"),
        ("a,y\n1,2\n", {}, "'.*' must have at least two modes"),
        ("a,b,y\n1,2,3\n", {"modes": ["a", "c"]}, "'.*' has no column 'c'; it has 'a', 'b', 'y'"),
        ("a,b,y\n1,2,3\n", {"modes": ["a", "y"]}, "modes and value must be different columns"),
        ("a,b,y\n1,2,3\n", {"shape": (5, 5)}, "shape is only for columns of indices"),
        (
            "a,b,y\n1,2,3\n0,1,1\n",
            {"labels": False},
            "line 3 of '.*' has index '0' in field 1, but indices count from 1",
        ),
        ("1,2,3\n4,5\n", {"header": False}, "line 2 of '.*' has 2 fields where 3 are expected"),
    ],
)
def test_io_csv_names_the_bad_line(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, "x.csv", **options)


@each("name", ["x.tns.gz", "x.csv.gz"])
@each("damage", ["cut", "flipped", "junk"])
def test_io_damaged_gzip_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    write_tensor(SparseTensor.from_dense(np.random.default_rng(0).normal(size=(60, 60))), tmp_path / name)
    data = bytearray((tmp_path / name).read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[-6] ^= 1
    else:
        data += b"junk"
    with pytest.raises(ValueError, match=r"'.*' is a truncated or damaged gzip file \(.*\); fetch or write it again"):
        read(tmp_path, bytes(data), name)


@pytest.mark.parametrize("name", ["x.xyz", "x", "x.gz", "x.parquet.gz"])
def test_io_unknown_extension_lists_the_known(tmp_path: Path, name: str) -> None:
    known = r"known are \.tns, \.csv, \.tsv, \.txt, \.dat, \.data, \.mtx, \.parquet, \.npz \(.*\), or pass format="
    with pytest.raises(ValueError, match=known):
        read(tmp_path, PLAIN, name)
    with pytest.raises(ValueError, match=r"known are \.tns, \.tns\.gz, \.csv, \.csv\.gz, \.parquet, \.npz, or pass"):
        write_tensor(make(), tmp_path / name)
    assert as_dict(read(tmp_path, PLAIN, name, format="tns")) == ENTRIES


def test_io_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file '.*none.tns'; check the path"):
        read_tensor(tmp_path / "none.tns")
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file"):
        read_tensor(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder '.*none'; create it first"):
        write_tensor(make(), tmp_path / "none" / "x.tns")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        write_tensor(make(), tmp_path, format="tns")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index_base": 2}, "index_base must be one of '0', '1'; got '2'"),
        ({"format": "hdf"}, "format must be one of 'tns', 'csv', 'parquet', 'npz', 'mtx'; got 'hdf'"),
        ({"duplicates": "max"}, "duplicates must be one of"),
    ],
)
def test_io_refuses_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, PLAIN, **options)


def test_io_parquet_columns_of_indices(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"i": np.array([0, 2], dtype=np.uint8), "j": [1, 0], "y": [5.0, 6.0]})
    frame.to_parquet(tmp_path / "x.parquet")
    tensor = read_tensor(tmp_path / "x.parquet", labels=False, index_base=0)
    assert as_dict(tensor) == {(0, 1): 5.0, (2, 0): 6.0}
    with pytest.raises(ValueError, match="line 1 .* has the index 0, but indices count from 1; pass index_base=0"):
        read_tensor(tmp_path / "x.parquet", labels=False)


def test_io_parquet_without_pyarrow_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="is not a parquet file or is damaged"):
        read(tmp_path, "nothing", "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="reading parquet files needs pyarrow, which is not installed; pip install"):
        read(tmp_path, "nothing", "x.parquet")
    with pytest.raises(ImportError, match="writing parquet files needs pyarrow"):
        write_tensor(make(), tmp_path / "y.parquet")
    assert not (tmp_path / "y.parquet").exists()


def test_io_npz_truncated_foreign_or_newer(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_tensor(make(), path)
    data = path.read_bytes()
    for cut in (3, 40, len(data) // 2, len(data) - 5):
        with pytest.raises(ValueError, match=r"'.*x\.npz' is truncated or damaged"):
            read(tmp_path, data[:cut], "x.npz")
    with pytest.raises(ValueError, match=r"is not a tensorcep\.tensor file"):
        read(tmp_path, PLAIN, "x.npz")
    with pytest.raises(ValueError, match=r"is not a tensorcep\.tensor file"):
        read(tmp_path, b"", "x.npz")
    np.savez(path, coords=np.zeros((1, 2)))
    with pytest.raises(ValueError, match="it has no tensorcep header"):
        read_tensor(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"is not a tensorcep\.tensor file"):
        read_tensor(tmp_path / "array.npy", format="npz")
    _files.write_archive(path, "tensorcep.model", 1, {}, {})
    with pytest.raises(ValueError, match=r"is a tensorcep\.model file, not a tensorcep\.tensor file"):
        read_tensor(path)
    _files.write_archive(path, "tensorcep.tensor", 2, {}, {})
    with pytest.raises(ValueError, match="has format version 2, newer than the 1 that this tensorcep reads; update"):
        read_tensor(path)
    _files.write_archive(path, "tensorcep.tensor", 1, {"shape": [2, 2], "labels": [None, None]}, {})
    with pytest.raises(ValueError, match=r"is damaged \('coords'\); write it again"):
        read_tensor(path)


def test_io_npz_shape_must_agree(tmp_path: Path) -> None:
    write_tensor(make(), tmp_path / "x.npz")
    with pytest.raises(ValueError, match="shape must be left out or be that of"):
        read_tensor(tmp_path / "x.npz", shape=(9, 9, 9))


# Atomic writing


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_files_atomic_write_leaves_the_old_file_after_any_exception(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with _files.atomic_write(path) as handle:
            handle.write(b"half")
            assert path.read_bytes() == b"old"
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.bin"]


def test_files_atomic_write_replaces_and_follows_links(tmp_path: Path) -> None:
    target, link = tmp_path / "target.bin", tmp_path / "link.bin"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with _files.atomic_write(link) as handle:
        handle.write(b"new")
    assert target.read_bytes() == b"new"
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.bin", "target.bin"]


def test_files_atomic_write_obeys_the_umask(tmp_path: Path) -> None:
    with _files.atomic_write(tmp_path / "atomic") as handle:
        handle.write(b"x")
    (tmp_path / "plain").write_bytes(b"x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs a device file")
def test_files_atomic_write_does_not_replace_a_device() -> None:
    with _files.atomic_write(os.devnull) as handle:
        handle.write(b"x")
    assert not os.path.isfile(os.devnull)


@each("name", ["x.tns", "x.tns.gz", "x.csv", "x.npz"])
def test_io_interrupted_write_leaves_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupt)
    monkeypatch.setattr(pd.DataFrame, "to_csv", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_tensor(make(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_files_archive_refuses_objects(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="array 'a' holds Python objects"):
        _files.write_archive(tmp_path / "x.npz", "k", 1, {}, {"a": np.array([None])})
    assert list(tmp_path.iterdir()) == []
