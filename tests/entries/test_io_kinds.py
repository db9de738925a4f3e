"""Files that people have: every kind is read as the same entries, whole and in batches."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse
from scipy.io import mmwrite

from tensorcep.entries.io import Schema, read_batches, text
from tensorcep.entries.io import lines as _lines
from tensorcep.entries.io.files import read_table, read_tensor, value_name_of
from tensorcep.entries.io.schema import separator_in

ROWS = [("zoë", "7", "a, b", "1.5"), ("bob", "007", "c;d", "-2"), ("bob", "12", "e\nf", "1e-300")]
HEADER = ("user", "item", "tag", "score")
ENTRIES = {(user, item, tag): float(score) for user, item, tag, score in ROWS}


def text_of(sep: str, decimal: str = ".") -> str:
    """The entries as a csv file, fields quoted where they must be."""
    lines = []
    for row in (HEADER, *ROWS):
        fields = [*row[:3], row[3].replace(".", decimal)]
        quoted = [f'"{field}"' if any(mark in field for mark in (sep, "\n", " ", ",")) else field for field in fields]
        lines.append(sep.join(quoted))
    return "\n".join(lines) + "\n"


def zipped(data: bytes, *names: str) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return whole.getvalue()


def put(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def entries_of(path: Path, **options: Any) -> dict[tuple[str, ...], float]:
    frame = read_tensor(path, **options).to_pandas(value="y")
    return {tuple(map(str, key)): y for *key, y in frame.itertuples(index=False, name=None)}


def entries_in_batches(path: Path, **options: Any) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for batch in read_batches(path, 2, **options):
        columns = [batch.coords[:, k] if keys is None else keys for k, keys in enumerate(batch.keys)]
        found |= dict(zip(zip(*(map(str, column) for column in columns), strict=True), batch.values, strict=True))
    return found


PLAIN = text_of(",")
FILES: dict[str, tuple[str, str | bytes, dict[str, Any]]] = {
    "csv": ("x.csv", PLAIN, {}),
    "tab": ("x.tsv", text_of("\t"), {}),
    "tab in txt": ("x.txt", text_of("\t"), {}),
    "semicolon": ("x.csv", text_of(";"), {}),
    "decimal comma": ("x.csv", text_of(";", ","), {"decimal": ","}),
    "bar": ("x.dat", text_of("|"), {}),
    "blanks": ("x.data", text_of(" "), {}),
    "runs of blanks": ("x.txt", text_of("  "), {}),
    "said": ("x.csv", text_of("^"), {"sep": "^"}),
    "gzip": ("x.csv.gz", gzip.compress(PLAIN.encode()), {}),
    "bzip2": ("x.tsv.bz2", bz2.compress(text_of("\t").encode()), {}),
    "xz": ("x.csv.xz", lzma.compress(PLAIN.encode()), {}),
    "zip": ("x.zip", zipped(PLAIN.encode(), "folder/", "folder/x.csv", "__MACOSX/x.csv"), {}),
    "zip by name": ("x.csv.zip", zipped(PLAIN.encode(), "data"), {}),
    "gzip without its name": ("x.csv", gzip.compress(PLAIN.encode()), {}),
    "utf-8 with a mark": ("x.csv", b"\xef\xbb\xbf" + PLAIN.encode(), {}),
    "utf-16": ("x.txt", text_of("\t").encode("utf-16"), {}),
    "utf-16-be": ("x.csv", b"\xfe\xff" + PLAIN.encode("utf-16-be"), {}),
    "utf-16 without a mark": ("x.csv", PLAIN.encode("utf-16-le"), {}),
    "excel's first line": ("x.csv", "sep=;\n" + text_of(";"), {}),
    "excel's first line with a mark": ("x.csv", b"\xef\xbb\xbf\"sep=;\"\r\n" + text_of(";").encode(), {}),
    "utf-32 in gzip": ("x.csv.gz", gzip.compress(PLAIN.encode("utf-32")), {}),
    "blank lines first": ("x.csv", "\n \n" + PLAIN, {}),
    "comments first": ("x.csv", "# of a day, ours\n#\n\n# to be read\n" + PLAIN, {}),
    "comments before tabs": ("x.tsv", "# a, b, c, d, e\n" + text_of("\t"), {}),
    "latin1": ("x.csv", PLAIN.encode("latin1"), {"encoding": "latin1"}),
    "windows ends": ("x.csv", PLAIN.replace("e\nf", "e f").replace("\n", "\r\n").replace("e f", "e\nf"), {}),
}  # fmt: skip


@each("name", FILES)
def test_io_reads_every_kind_of_text_alike(tmp_path: Path, name: str) -> None:
    file, data, options = FILES[name]
    path = put(tmp_path / file, data)
    tensor = read_tensor(path, **options)
    assert [found.name for found in tensor.labels if found] == list(HEADER[:3])
    assert entries_of(path, **options) == ENTRIES
    assert entries_in_batches(path, **options) == ENTRIES


@each("head", ["#user,item,y\n", "# a comment\n#user,item,y\n", "# a, b\n\n# c\n#user,item,y\n"])
@each("last", ["#c,2,3\n", "c,2,3\n", "#c,2,3\n\n"])
def test_io_names_and_labels_begin_with_the_mark_of_comments(tmp_path: Path, head: str, last: str) -> None:
    path = put(tmp_path / "x.csv", head + "#a,1,0.5\n#b,2,1\n" + last)
    expected = {("#a", "1"): 0.5, ("#b", "2"): 1.0, (last.split(",")[0], "2"): 3.0}
    assert entries_of(path) == expected == entries_in_batches(path)
    assert [found.name for found in read_tensor(path).labels if found] == ["#user", "item"]
    path.write_text("#a,1,0.5\n#b,2,1\n" + last)
    assert entries_of(path, header=False, labels=True) == expected


@each(("sep", "options"), [("::", {}), ("<>", {"sep": "<>"}), (" - ", {"sep": " - "})])
@each("chunk", [1, 3, 1 << 16])
def test_io_reads_separators_of_several_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sep: str, options: dict[str, Any], chunk: int
) -> None:
    monkeypatch.setattr(_lines, "AT_ONCE", chunk)
    monkeypatch.setattr(text, "BLOCK", chunk)
    lines = [["user", "item", "y"], ["a:b", "1", "0.5"], ["c", "2", "x"], ["d<", "3", "2"]]
    good = "\n".join(sep.join(line) for line in lines if "x" not in line) + "\n"
    path = put(tmp_path / "x.dat", "# a comment\n" * (chunk > 1) + good)
    assert entries_of(path, **options) == {("a:b", "1"): 0.5, ("d<", "3"): 2.0}
    assert entries_in_batches(path, **options) == {("a:b", "1"): 0.5, ("d<", "3"): 2.0}
    taken: list[Any] = []
    path = put(tmp_path / "y.dat", "\n".join(sep.join(line) for line in lines) + "\n")
    list(read_batches(path, bad_line=lambda *bad: taken.append(bad[1:]), **options))
    assert taken == [(3, "has 'x' in field 3, which is not a number (column 'y', the last one; value= names another); "
                      "mend it", f"c{sep}2{sep}x\n")]  # fmt: skip
    with pytest.raises(ValueError, match="line 3 of '.*' has 'x' in field 3"):
        read_tensor(path, **options)


@each(
    ("line", "expected"),
    [
        ("a,b,y", ","),
        ("a\tb\ty", "\t"),
        ("a;b;y", ";"),
        ("a|b|y", "|"),
        ("a::b::y", "::"),
        ("a b y", " "),
        ("user, name;city;y", ";"),
        ("1;2;3,5", ";"),
        ("1,5;2,5;3", ";"),
        ("1,5\t2,5\t3,5", "\t"),
        ("1,5,3", ","),
        ("id\tname, first\tcity, now\ty", "\t"),
        ("movie,title,genres|all|of|them", ","),
        ("user id,item id", ","),
        ('"a;b",c,y', ","),
        ("one", ","),
    ],
)
def test_io_separator_is_found_in_the_first_line(line: str, expected: str) -> None:
    assert separator_in(line + "\n") == expected


@each("sep", ["\t", ";", "|", " ", ","])
def test_io_labels_that_look_like_numbers_are_text_whatever_separates_them(tmp_path: Path, sep: str) -> None:
    rows = [("a", "b", "y"), ("007", "1", "1"), ("7", "+2", "2"), ("-0", "3", "3")]
    path = put(tmp_path / "x.csv", "".join(sep.join(row) + "\n" for row in rows))
    assert entries_of(path) == {("007", "1"): 1.0, ("7", "+2"): 2.0, ("-0", "3"): 3.0}
    assert entries_in_batches(path) == entries_of(path)


TOOLBOX = "sptensor\n3\n3 2 4\n2\n{a} {a} {a} 1.5\n{b} {b} {b} -2\n"


@each("base", [0, 1])
@each("packer", [bytes, gzip.compress, bz2.compress])
def test_io_reads_the_header_of_tensor_toolbox(tmp_path: Path, base: int, packer: Any) -> None:
    path = put(tmp_path / "x.tns", packer(TOOLBOX.format(a=base, b=base + 1).encode()))
    tensor = read_tensor(path, index_base=base)
    assert tensor.shape == (3, 2, 4)
    assert entries_of(path, index_base=base) == {("0", "0", "0"): 1.5, ("1", "1", "1"): -2.0}
    assert entries_in_batches(path, index_base=base) == entries_of(path, index_base=base)
    assert read_table(str(path), Schema(index_base=base), n_modes=3).shape == (2, 4)


@each(
    ("text", "message"),
    [
        ("sptensor\n3\n3 2\n2\n1 1 1 1\n", "line 1 of '.*' begins a file of Tensor Toolbox, but the lines after it"),
        ("sptensor\n3\n", "begins a file of Tensor Toolbox"),
        (TOOLBOX.format(a=1, b=1).replace("\n2\n", "\n3\n"), "'.*' holds 2 entries where its header promises 3"),
    ],
)
def test_io_refuses_headers_of_tensor_toolbox_that_are_not_kept(tmp_path: Path, text: str, message: str) -> None:
    for read in (read_tensor, lambda path: list(read_batches(path))):
        with pytest.raises(ValueError, match=message):
            read(put(tmp_path / "x.tns", text))


MATRIX = np.array([[1.0, 0, 2], [0, 3, 0], [2, 0, 0]])


@each(
    ("matrix", "how"),
    [
        (sparse.coo_array(MATRIX), {}),
        (sparse.coo_array(MATRIX), {"symmetry": "symmetric"}),
        (sparse.coo_array(MATRIX.astype(int)), {"field": "integer"}),
        (sparse.coo_array(MATRIX), {"field": "pattern"}),
        (MATRIX, {"symmetry": "general"}),
    ],
)
@each("packer", [bytes, gzip.compress])
def test_io_reads_matrix_market(tmp_path: Path, matrix: Any, how: dict[str, Any], packer: Any) -> None:
    whole = io.BytesIO()
    mmwrite(whole, matrix, **how)
    path = put(tmp_path / ("x.mtx" if packer is bytes else "x.mtx.gz"), packer(whole.getvalue()))
    dense = matrix.toarray() if sparse.issparse(matrix) else matrix
    dense = dense != 0 if how.get("field") == "pattern" else dense
    stored = np.argwhere(dense != 0) if sparse.issparse(matrix) else np.argwhere(dense > -1)
    expected = {(str(i), str(j)): float(dense[i, j]) for i, j in stored}
    assert entries_of(path) == expected
    assert entries_in_batches(path) == expected
    assert read_tensor(path).shape == (3, 3)
    first = next(read_batches(path, 2))
    rest = [batch.values for batch in read_batches(path, 2, start=first.position)]
    assert len(np.concatenate(rest)) == len(expected) - 2
    assert len(read_table(str(path), Schema(), n_modes=2)) == len(expected)


@each(
    ("text", "message"),
    [
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2 3\n", "holds complex numbers, which no"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 2\n", "is not a MatrixMarket file or is damaged"),
        ("1 2 3\n", "is not a MatrixMarket file or is damaged"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 0\n", "holds no entries"),
    ],
)
def test_io_refuses_matrices_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    for read in (read_tensor, lambda path: list(read_batches(path))):
        with pytest.raises(ValueError, match=message):
            read(put(tmp_path / "x.mtx", text))


@each(
    ("name", "data", "options", "message"),
    [
        (
            "x.zip",
            zipped(b"", "a.csv", "b.csv"),
            {},
            "must hold one file to be read; it holds 'a.csv', 'b.csv'; unpack",
        ),
        ("x.csv.zip", zipped(b"", "a.csv", "b.csv"), {}, "must hold one file to be read; it holds 'a.csv', 'b.csv'"),
        ("x.zip", zipped(b"", "a.xyz"), {}, "has the unknown extension '.zip'; known are"),
        ("x.csv.zip", zipped(PLAIN.encode() * 9, "a.csv")[:-30], {}, "is a truncated or damaged zip file"),
        ("x.csv.bz2", bz2.compress(PLAIN.encode() * 99)[:-40], {}, "is a truncated or damaged bzip2 file"),
        ("x.csv.xz", lzma.compress(PLAIN.encode() * 99)[:-40], {}, "is a truncated or damaged xz file"),
        ("x.csv", "a b y\n1 1 2 3\n", {}, "line 2 .* 4 fields where 3 are expected; mend .*, or give row names, as R"),
        ("x.feather", b"", {}, r"which pandas reads and tensorcep does not; write what pandas.read_feather\(path\)"),
        ("x.csv", PLAIN.encode("gb18030"), {}, "is not UTF-8 text; convert the file, or say encoding= what it is"),
        ("x.csv", PLAIN.encode(), {"encoding": "utf-16"}, "is not utf-16 text|one field"),
        ("x.csv", PLAIN.encode(), {"encoding": "utf-99"}, "encoding must be one that Python knows, such as latin1"),
        ("x.csv", "name\nzoë\n", {}, "line 1 of '.*' has one field: none of the comma, tab, ;, | and :: separates"),
        ("x.csv", PLAIN, {"sep": ""}, "sep must be what stands between the fields of a line, such as ';'"),
        ("x.csv", PLAIN, {"decimal": ","}, "line 1 of|has one field"),
        ("x.csv", PLAIN, {"decimal": ",", "sep": ","}, "sep and decimal must differ; got ',' for both"),
        ("x.csv", text_of(";", ","), {}, 'mend it, or pass decimal="," if that is its decimal point'),
    ],
)
def test_io_says_what_a_file_is_that_it_cannot_read(
    tmp_path: Path, name: str, data: str | bytes, options: dict[str, Any], message: str
) -> None:
    for read in (read_tensor, lambda path, **options: list(read_batches(path, **options))):
        with pytest.raises(ValueError, match=message):
            read(put(tmp_path / name, data), **options)


# Values that are missing, and columns that nobody named

GAPS = "user,item,units,note\na,x,1,\nb,x,,good\na,y,NA,\nb,y,2,\n"


@each("gap", ["", "NA", "nan", "null"])
def test_io_lines_without_a_value_are_left_out_when_asked(tmp_path: Path, gap: str) -> None:
    path = put(tmp_path / "x.csv", GAPS.replace("NA", gap))
    how: dict[str, Any] = {"modes": ["user", "item"], "value": "units"}
    for read in (read_tensor, lambda path, **options: list(read_batches(path, **options))):
        with pytest.raises(
            ValueError, match="line 3 of '.*' has '' in field 3, which is not a number; drop_missing=True"
        ):
            read(path, **how)
    expected = {("a", "x"): 1.0, ("b", "y"): 2.0}
    assert entries_of(path, drop_missing=True, **how) == expected
    assert entries_in_batches(path, drop_missing=True, **how) == expected
    pytest.importorskip("pyarrow")
    pd.read_csv(path).to_parquet(tmp_path / "x.parquet")
    assert entries_of(tmp_path / "x.parquet", drop_missing=True, **how) == expected
    assert entries_in_batches(tmp_path / "x.parquet", drop_missing=True, **how) == expected


@each("n", [10, 700])
@each("ending", ["csv", "parquet"])
def test_io_batches_hold_words_where_these_are_asked_for(tmp_path: Path, n: int, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    words = [("yes", "no", "on, then off")[k % 3] for k in range(n)]
    frame = pd.DataFrame({"user": [f"u{k}" for k in range(n)], "item": "i", "answer": words})
    for missing in (False, True):
        if missing:
            frame.loc[n // 2, "answer"] = None
        path = tmp_path / f"x.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        found = list(read_batches(path, 400, words=True, drop_missing=missing))
        assert np.concatenate([batch.values for batch in found]).tolist() == frame["answer"].dropna().tolist()
        assert [len(batch.values) for batch in found][1:] == [n - missing - 400] * (n > 400)
    with pytest.raises(ValueError, match=f"line {n // 2 + 1 + (ending == 'csv')} of '.*' has"):
        list(read_batches(path, 400, words=True))


def test_io_indices_without_a_value_are_left_out_when_asked(tmp_path: Path) -> None:
    path = put(tmp_path / "x.tns", "1 1 2.5\n2 1 NA\n2 2 nan\n")
    assert entries_of(path, drop_missing=True) == {("0", "0"): 2.5} == entries_in_batches(path, drop_missing=True)
    for read in (read_tensor, lambda path, **options: list(read_batches(path, **options))):
        with pytest.raises(ValueError, match="no entries"):
            read(put(tmp_path / "y.tns", "1 1 NA\n"), drop_missing=True)


@each(
    ("options", "message"),
    [
        ({}, r"line 2 .* '' in field 4, which is not a number \(column 'note', the last one; value= names"),
        (
            {"value": "units"},
            "line 2 .* has an empty label; mend it, or leave column 'note' out of modes=",
        ),
    ],
)
def test_io_names_the_column_that_nobody_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    for read in (read_tensor, lambda path, **options: list(read_batches(path, **options))):
        with pytest.raises(ValueError, match=message):
            read(put(tmp_path / "x.csv", GAPS), **options)


@each("name", ["x.csv", "x.parquet"])
def test_io_warns_of_a_value_that_looks_like_a_time(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"user": [1, 2, 1], "item": [1, 1, 2], "stars": [4.0, 5.0, 3.5], "when": 0})
    for column, times, said in (
        ("timestamp", [1, 2, 3], "'timestamp', is taken for the value and is called like a time; name the one that"),
        ("when", [964982703, 847434962, 1094785740], "'when', is taken for the value and has values like times since"),
        ("when", [964982703000, 847434962000, 1094785740123], "has values like times since 1970"),
    ):
        made = frame.rename(columns={"when": column}).assign(**{column: times})
        made.to_csv(tmp_path / name, index=False) if name == "x.csv" else made.to_parquet(tmp_path / name)
        for read in (read_tensor, lambda path, **how: list(read_batches(path, **how))):
            with pytest.warns(UserWarning, match=said):
                read(tmp_path / name)
        read_tensor(tmp_path / name, value="stars", modes=["user", "item"])  # without a warning
        list(read_batches(tmp_path / name, value=column))
    assert value_name_of(str(tmp_path / name), Schema()) == "when"


def test_io_warns_of_a_mode_in_which_every_entry_has_a_row_of_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.arange(30) % 5, "b": np.arange(30) // 5, "price": rng.normal(size=30), "y": 1.0})
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.warns(UserWarning, match="the mode 'price' of '.*' has a row of its own for each of the 30 entries"):
        read_tensor(tmp_path / "x.csv")
    assert read_tensor(tmp_path / "x.csv", modes=["a", "b"]).order == 2


# Whole and in batches


@each("end", ["\n", "\r\n"])
@each("block", [20, 1 << 20])
def test_io_quoted_fields_may_span_lines_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, block: int
) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    lines = [f'"a{n}{end}b",c{n},{n}' if n % 3 else f'd"{n},c,{n}' for n in range(12)]
    path = put(tmp_path / "x.csv", end.join(["a,b,y", *lines]) + end)
    expected = {(f"a{n}{end}b", f"c{n}") if n % 3 else (f'd"{n}', "c"): float(n) for n in range(12)}
    assert entries_in_batches(path) == expected == entries_of(path)
    batches = list(read_batches(path, 2))
    for n, batch in enumerate(batches):
        rest = list(read_batches(path, 2, start=batch.position))
        assert [found.values.tolist() for found in rest] == [found.values.tolist() for found in batches[n + 1 :]]


@each("text", ["1e18 1 2\n", f"{2**63 - 1} 1 2\n", f"1 {2**31 + 1} 2\n"])
def test_io_index_of_no_row_is_refused_by_both(tmp_path: Path, text: str) -> None:
    for read in (read_tensor, lambda path: list(read_batches(path))):
        with pytest.raises(ValueError, match="line 1 .* in field .*; there must be at most 2.*31 rows in a mode; make"):
            read(put(tmp_path / "x.tns", text))


@each("blank", ["\u2028", "\x1c", "\x1f", "\xa0", "\x85", "\u3000"])
@each("text", ["1 {}2 3\n", "1 2 {}3\n", "1 2 3{}\n"])
def test_io_blanks_of_python_alone_are_refused_by_both(tmp_path: Path, blank: str, text: str) -> None:
    for read in (read_tensor, lambda path, **how: list(read_batches(path, **how))):
        with pytest.raises(ValueError, match="line 1 .* which is not a"):
            read(put(tmp_path / "x.tns", text.format(blank)))
        with pytest.raises(ValueError, match="line 1 .* which is not a"):
            read(put(tmp_path / "x.csv", text.format(blank).replace(" ", ",")), header=False)


@each(
    ("column", "cells"),
    [
        ("a", [Decimal("1.5"), Decimal("2")]),
        ("a", [1.5, 2.5]),
        ("a", [True, False]),
        ("y", [Decimal("1.5"), Decimal("2")]),
        ("y", [True, False]),
        ("y", ["1", "2.5"]),
        ("y", pd.array([1, 2], dtype="Int64")),
        ("a", [[1], [2]]),
        ("a", [{"k": 1}, {"k": 2}]),
        ("a", pd.array([1, None], dtype="Int64")),
        ("y", pd.array([1, None], dtype="Int64")),
        ("y", [[1], [2]]),
        ("y", [1.0, np.inf]),
    ],
)
def test_io_parquet_columns_of_any_type_are_read_or_refused_alike(tmp_path: Path, column: str, cells: Any) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": ["x", "y"], "b": [1, 2], "y": [1.0, 2.0]}).assign(**{column: cells}).to_parquet(path)
    try:
        found = entries_of(path)
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError), match="line . of '.*' has"):
            entries_in_batches(path)
    else:
        assert entries_in_batches(path) == found
    indices = pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2], "y": [1.0, 2.0]})
    indices.to_parquet(path)
    assert entries_in_batches(path, labels=False) == entries_of(path, labels=False)
