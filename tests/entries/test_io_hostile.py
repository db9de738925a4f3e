"""Files that mean harm, or were meant for something else: the right entries, or one sentence."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

from tensorcep import CPRegressor
from tensorcep.cli.main import main
from tensorcep.entries.io import lines as _lines
from tensorcep.entries.io import read_batches, read_tensor, write_tensor
from tensorcep.entries.labels import Labels, spelled_as, why_not_stored
from tensorcep.entries.sparse_tensor import SparseTensor


def put(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def stream(path: Path | str, **options: Any) -> list[Any]:
    return list(read_batches(path, **options))


def both_refuse(path: Path, message: str, **options: Any) -> None:
    for read in (read_tensor, stream):
        with pytest.raises(ValueError, match=message):
            read(path, **options)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
@pytest.mark.parametrize(("kind", "options"), [("csv", {"labels": False}), ("csv", {}), ("tns", {})])
def test_io_pipe_is_read_once_and_whole(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).permutation(300_000)
    frame = pd.DataFrame({"a": rows // 600 + 1, "b": rows % 600 + 1, "y": 0.5})
    text = frame.to_csv(index=False, header=kind == "csv", sep="," if kind == "csv" else " ").encode()
    os.mkfifo(tmp_path / "pipe")
    for packed in (False, True):
        data = gzip.compress(text, 1) if packed else text
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,), daemon=True)
        writer.start()
        assert read_tensor(tmp_path / "pipe", format=kind, **options).nnz == len(rows)
        writer.join(10)
        assert not writer.is_alive()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_io_pipe_of_npz_and_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for kind in ("npz", "parquet"):
        with pytest.raises(ValueError, match=f"is a pipe, from which {kind} cannot be read"):
            read_tensor(tmp_path / "pipe", format=kind)
    both_refuse(Path("/dev/zero"), "'/dev/zero' is a device; give the path of a file or a pipe", format="tns")


def test_io_names_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", b"a,b,y\ncafe,1,1\ncaf\xe9,1,2\ncaf\xe8,2,3\n")
    both_refuse(path, r"line 3 of '.*' has the label 'caf\\udce9', which is not UTF-8 text; convert the file")
    both_refuse(put(tmp_path / "y.csv", b"\xe9,b,y\nc,1,2\n"), "line 1 of '.*' is not UTF-8 text")
    ignored = put(tmp_path / "z.csv", b"a,b,note,y\nc,1,caf\xe8,2\nd,2,x,3\n")
    tensor = read_tensor(ignored, modes=["a", "b"])
    assert [list(found) for found in tensor.labels if found] == [["c", "d"], [1, 2]]


COLUMNS = [
    (["7", "8"], [7, 8]),
    (["007", "7"], ["007", "7"]),
    (["007", "008"], ["007", "008"]),
    (["+7", "7"], ["7", "+7"]),
    (["1e3", "1000"], ["1e3", "1000"]),
    (["9007199254740993", "9007199254740992", "0.5"], ["0.5", "9007199254740992", "9007199254740993"]),
    (["18446744073709551617", "1"], ["1", "18446744073709551617"]),
    (["0.5", "1", "2.25"], [0.5, 1.0, 2.25]),
    (["1", "1.0"], ["1", "1.0"]),
    (["True", "False"], [False, True]),
    (["TRUE", "True"], ["TRUE", "True"]),
    (["-3", "0"], [-3, 0]),
    (["b", "7"], ["7", "b"]),
]


@each("header", [True, False])
@each(("texts", "expected"), COLUMNS)
def test_io_csv_labels_are_numbers_only_where_nothing_is_lost(
    tmp_path: Path, texts: list[str], expected: list[Any], header: bool
) -> None:
    lines = ["id,other,y"] * header + [f"{text},x,{n}" for n, text in enumerate(texts)]
    path = put(tmp_path / "x.csv", "\n".join(lines) + "\n")
    tensor = read_tensor(path, header=header, labels=True)
    labels = tensor.labels[0]
    assert labels is not None
    assert labels.index.tolist() == expected
    assert [type(label) for label in labels.index.tolist()] == [type(label) for label in expected]
    # A stream reads text; both are the same labels to whoever looks them up.
    (batch,) = stream(path, header=header, labels=True)
    np.testing.assert_array_equal(labels.rows(batch.keys[0]), tensor.coords[:, 0])
    text_first = Labels(batch.keys[0])
    np.testing.assert_array_equal(
        text_first.rows(labels.index), [batch.keys[0].index(t) for t in map_back(texts, expected)]
    )


def map_back(texts: list[str], labels: list[Any]) -> list[str]:
    return [str(label) if str(label) in texts else str(label).removesuffix(".0") for label in labels]


def test_labels_of_two_spellings_are_one() -> None:
    assert spelled_as({"7": 0, 8: 1, "0.5": 2}, [7, "8", 0.5, "007", 9, "x"]) == ["7", 8, "0.5", "007", 9, "x"]
    assert spelled_as({"inf": 0, "-inf": 1, "nan": 2}, [float("inf"), -float("inf")]) == [float("inf"), -float("inf")]
    assert spelled_as({float("inf"): 0, "nan": 1}, ["inf", "x"]) == ["inf", "x"]
    assert list(Labels([1, 2]).extended(["2", "3", "02"])) == [1, 2, "3", "02"]


def test_io_empty_label_is_refused(tmp_path: Path) -> None:
    both_refuse(put(tmp_path / "x.csv", "a,b,y\n1,1,1\n,1,1\n"), "line 3 of '.*' has an empty label; mend it")
    tensor = SparseTensor([[0, 1]], [1.0], None, [Labels([""]), None])  # type: ignore[arg-type, list-item]
    with pytest.raises(ValueError, match="mode 0 has the empty label '', which a csv file cannot hold"):
        write_tensor(tensor, tmp_path / "y.csv")


def test_io_promises_of_an_extended_header_hold_in_streams(tmp_path: Path) -> None:
    good = put(tmp_path / "g.tns", "# c\n2 3\n2 2\n1 1 1\n# c\n1 2 1\n\n2 1 1\n")
    assert [len(batch.values) for batch in stream(good, batch_size=2)] == [2, 1]
    position = stream(good, batch_size=2)[0].position
    assert [len(batch.values) for batch in stream(good, batch_size=2, start=position)] == [1]
    for n in (2, 4):
        path = put(tmp_path / "x.tns", f"2 {n}\n2 2\n1 1 1\n1 2 1\n2 1 1\n")
        both_refuse(path, f"holds 3 entries where its header promises {n}")
    lines = "".join(f"{i} {j} 1\n" for i in range(1, 21) for j in range(1, 21))
    both_refuse(put(tmp_path / "x.tns", f"2 400\n20 19\n{lines}"), r"line 22 of .* beyond the shape \(20, 19\)")


def test_io_line_without_end_and_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_refuse(put(tmp_path / "x.tns", " " * 5_000_000 + "1 1 1\n"), "has a line of more than 1,048,576 bytes")
    both_refuse(put(tmp_path / "x.tns.gz", gzip.compress(bytes(9_000_000))), "has a line of more than 1,048,576 bytes")
    both_refuse(put(tmp_path / "x.csv", "a,b,y\n" + "x" * 3_000_000), "has a line of more than 1,048,576 bytes")
    monkeypatch.setattr(_lines, "GROWTH_FROM", 1 << 16)
    bomb = put(tmp_path / "b.tns.gz", gzip.compress(b"1 1 1\n" * 1_000_000))
    both_refuse(bomb, "'.*b.tns.gz' unpacks to more than 300 times its size; if that is right, unpack it first")
    assert len(stream(put(tmp_path / "cr.tns", "1 1 1\r" * 300_000), batch_size=10**6)[0].values) == 300_000


@each("end", ["\n", "\r", "\r\n"])
@each("labels", [True, False])
def test_io_lines_end_as_they_may_and_blank_ones_come_first(tmp_path: Path, end: str, labels: bool) -> None:
    for begin in ("", "\ufeff", "\ufeff" + end, 2 * end):
        path = put(tmp_path / "x.csv", begin + end.join(["a,b,y", "1,2,0.5", "2,1,1.5", "3,3,2.5"]) + end)
        assert read_tensor(path, labels=labels).values.tolist() == [0.5, 1.5, 2.5]
        assert np.concatenate([batch.values for batch in stream(path, labels=labels)]).tolist() == [0.5, 1.5, 2.5]


def test_io_number_of_hundreds_of_digits_is_one_short_sentence(tmp_path: Path) -> None:
    many = "9" * 400
    both_refuse(
        put(tmp_path / "x.csv", f"a,b,y\nu,1,{many}\n"), f"line 2 of '.*' has the value '{'9' * 60}'...; values"
    )
    both_refuse(put(tmp_path / "x.tns", f"1 2 {many}\n"), f"line 1 of '.*' has the value '{'9' * 60}'...; values")
    both_refuse(put(tmp_path / "y.tns", f"{many} 2 1\n"), f"has index '{'9' * 60}'... in field 1, which is larger")


def rewritten(path: Path, change: Any) -> Path:
    """An archive whose header and arrays were changed, without the checksum that would tell."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop("header").tobytes())
    del header["checksum"]
    change(header, arrays)
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return path


@each(
    "change",
    [
        lambda header, arrays: header["labels"][0].update(dtype="period[x]"),
        lambda header, arrays: header["labels"][1].update(closed="nowhere"),
        lambda header, arrays: arrays.update(labels_1_left=np.zeros(1)),
        lambda header, arrays: arrays.update(coords=arrays["coords"].astype(complex)),
        lambda header, arrays: header.update(labels=7),
        lambda header, arrays: header.update(shape=[10**30, 2]),
        lambda header, arrays: header.update(kind="9" * 3000),
        lambda header, arrays: header.update(zero_rate="x"),
    ],
)
def test_io_npz_that_makes_no_sense_is_one_sentence(tmp_path: Path, change: Any) -> None:
    names = [Labels(pd.period_range("2025-01", periods=2, freq="M")), Labels(pd.interval_range(0, 2))]
    write_tensor(SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], None, names), tmp_path / "x.npz")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'.*x.npz' is (damaged|not a tensorcep.tensor file)") as told:
        read_tensor(rewritten(tmp_path / "x.npz", change))
    assert len(str(told.value)) < 1000


def test_io_npz_bombs_are_refused(tmp_path: Path) -> None:
    write_tensor(SparseTensor([[0, 1], [1, 0]], [1.0, 2.0]), tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz") as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(tmp_path / "deflated.npz", "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            new.writestr(name, content if name != "values.npy" else content + bytes(10**6))
    with pytest.raises(ValueError, match="member '.*' is compressed"):
        read_tensor(tmp_path / "deflated.npz")
    with zipfile.ZipFile(tmp_path / "lies.npz", "w") as new:
        for name, content in members.items():
            new.writestr(name, content.replace(b"(2,)", b"(9999999999999,)") if name == "values.npy" else content)
    with pytest.raises(ValueError, match="promises .* bytes and holds"):
        read_tensor(tmp_path / "lies.npz")


def test_io_field_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    long = "x" * 140_000
    sentence = "of '.*' has a field of more than 131,072 characters; close its quote or mend it"
    both_refuse(put(tmp_path / "x.csv", f'"{long}",b,y\n1,2,3\n'), f"line 1 {sentence}")
    both_refuse(put(tmp_path / "x.csv", f'a,b,y\n"{long}",1,2\n1,2,bad\n'), f"line 2 {sentence}")


def test_io_digits_of_other_scripts_are_refused_by_both(tmp_path: Path) -> None:
    both_refuse(put(tmp_path / "x.tns", "\u0661 2 3\n"), "has index '\u0661' in field 1, which is not an integer")
    both_refuse(put(tmp_path / "x.csv", "a,b,y\nx,1,\u0661\n"), "has '\u0661' in field 3, which is not a number")


def test_io_index_that_no_model_can_have_is_refused(tmp_path: Path) -> None:
    both_refuse(put(tmp_path / "x.tns", f"{2**63 - 1} 1 2\n"), "larger than 64 bits hold", index_base=0)
    with pytest.raises(ValueError, match="at most 2.*31 rows in a mode; .* ids the labels of rows, by .*from_pandas"):
        read_tensor(put(tmp_path / "x.tns", f"{10**12} 1 2\n"))
    with pytest.raises(ValueError, match="fewer rows for 1 entries, unless shape= says otherwise; .* 2000000000 in"):
        SparseTensor.from_coo([[2 * 10**9, 0]], [1.0])
    assert SparseTensor.from_coo([[2 * 10**9, 0]], [1.0], (2 * 10**9 + 1, 1)).nnz == 1


def test_read_batches_refuses_what_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="paths must name at least one file; got none"):
        stream([])  # type: ignore[arg-type]
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": ["x"], "b": [1], "y": [1.0]})[:0].to_parquet(tmp_path / "x.parquet")
    for path in (put(tmp_path / "x.csv", "a,b,y\n"), tmp_path / "x.parquet"):
        with pytest.raises(ValueError, match="no entries; at least one is needed"):
            stream(path)
    full = put(tmp_path / "y.csv", "a,b,y\n1,2,3\n")
    assert len(stream([tmp_path / "x.csv", full])) == 1
    assert stream(full, start=(0, 2)) == []


def test_io_parquet_with_an_index_or_damaged_is_read_alike_by_both(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1, 2], "y": [1.0, 2.0]})
    frame.set_index("a").to_parquet(tmp_path / "x.parquet")
    (batch,) = stream(tmp_path / "x.parquet")
    assert batch.names == ("a", "b")
    assert batch.keys == (["x", "y"], [1, 2])
    assert read_tensor(tmp_path / "x.parquet").to_pandas().to_numpy().tolist() == frame.to_numpy().tolist()
    table = importlib.import_module("pyarrow").Table.from_pandas(frame).replace_schema_metadata({"pandas": "{damaged"})
    damaged = tmp_path / "d.parquet"
    importlib.import_module("pyarrow.parquet").write_table(table, damaged)
    both_refuse(damaged, r"'.*d.parquet' is not a parquet file or is damaged \([^\n]*\); write it again")
    plain = {"compression": None, "use_dictionary": False, "write_statistics": False, "write_page_index": False}
    importlib.import_module("pyarrow.parquet").write_table(table.replace_schema_metadata(None), damaged, **plain)
    text = damaged.read_bytes()
    damaged.write_bytes(text.replace(b"\x01\x00\x00\x00x", b"\x01\x00\x00\x00\xff"))
    assert damaged.read_bytes() != text
    both_refuse(damaged, r"'.*d.parquet' is not a parquet file or is damaged \([^\n]*UTF8[^\n]*\); write it again")
    frame.assign(b=np.array([1, 2**64 - 1], dtype=np.uint64), a=1).to_parquet(tmp_path / "u.parquet")
    with pytest.raises(ValueError, match="line 2 of '.*' has the index 18446744073709551615, which is larger than 64"):
        stream(tmp_path / "u.parquet", labels=False)


def test_io_log_without_a_value_is_counted_and_not_added_up(tmp_path: Path) -> None:
    path = put(tmp_path / "log.csv", "user,host,hour\na,h,23\na,h,23\nb,h,5\n")
    with pytest.raises(ValueError, match="duplicates='sum' would add up the last column, 'hour'; pass value='hour' if"):
        read_tensor(path, duplicates="sum")
    counted = read_tensor(path, value=None).to_pandas()
    assert sorted(counted.itertuples(index=False, name=None)) == [("a", "h", 23, 2.0), ("b", "h", 5, 1.0)]
    frame = pd.read_csv(path)
    assert SparseTensor.from_pandas(frame, ["user", "host"], None).values.tolist() == [2.0, 1.0]
    assert read_tensor(path, value="hour", duplicates="sum").values.tolist() == [46.0, 5.0]
    plain = read_tensor(put(tmp_path / "p.csv", "1,2\n1,2\n2,1\n"), header=False, value=None)
    assert plain.values.tolist() == [2.0, 1.0]
    with pytest.raises(ValueError, match="duplicates must be left out with value=None"):
        read_tensor(path, value=None, duplicates="last")
    with pytest.raises(ValueError, match="value=None is for csv and parquet"):
        read_tensor(put(tmp_path / "x.tns", "1 1 1\n"), value=None)


FRAME = pd.DataFrame({"a": [1, 2], "b": [3, 4], "y": [1.0, 2.0]})


@each(
    ("frame", "modes", "message"),
    [
        (FRAME.assign(a=[[1], [2]]), ["a", "b"], "column 'a' must hold labels, such as numbers, text or dates"),
        (FRAME.set_axis(["a", "a", "y"], axis=1), ["a", "y"], "the DataFrame has more than one column 'a'; rename one"),
        (FRAME[:0], ["a", "b"], "the DataFrame holds no entries"),
        (FRAME, ["a", "y"], r"modes and value must be different columns; got \['a', 'y'\] and 'y'"),
        (FRAME, ["a", "a"], r"modes and value must be different columns; got \['a', 'a'\] and 'y'"),
    ],
)
def test_tensor_from_pandas_names_what_is_wrong(frame: pd.DataFrame, modes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseTensor.from_pandas(frame, modes)


@each("name", [None, np.nan, pd.NA, pd.NaT])
def test_columns_without_a_name_or_with_the_same_are_refused(name: Any) -> None:
    frame = FRAME.set_axis(pd.Index(["a", name, "y"], dtype=object), axis=1)
    twice = FRAME.set_axis(["a", "a", "y"], axis=1)
    model = CPRegressor(1, method="cep")
    for call in (lambda X: model.fit(X, value="y"), lambda X: model.partial_fit(X.iloc[:, :2], [1.0, 2.0])):
        with pytest.raises(ValueError, match="the columns of X must have names; got none for the column at position 1"):
            call(frame)
        with pytest.raises(ValueError, match="X has more than one column 'a'; rename one"):
            call(twice)


def test_whole_numbers_beyond_floats_are_no_values_and_no_known_labels() -> None:
    with pytest.raises(TypeError, match="y must hold real numbers; got dtype object"):
        CPRegressor(1).fit([[0, 0], [1, 1]], [10**400, 1.0])
    with pytest.raises(ValueError, match="is not among the 2 labels"):
        Labels([1.5, 2.5]).rows([10**400])


def test_tensor_masked_numbers_are_refused_and_masked_cells_unobserved() -> None:
    cells = np.ma.array([[1, 2], [3, 4]], mask=[[0, 0], [1, 1]])
    with pytest.raises(ValueError, match="coords must have no masked numbers; got some, the first at entry 1"):
        SparseTensor.from_coo(cells, [1.0, 2.0])
    with pytest.raises(ValueError, match="values must have no masked numbers"):
        SparseTensor.from_coo([[1, 2], [3, 4]], np.ma.array([1.0, 2.0], mask=[0, 1]))
    assert SparseTensor.from_dense(cells).values.tolist() == [1.0, 2.0]


@each(
    "labels",
    [
        pd.period_range("2025-01", periods=3, freq="M"),
        pd.interval_range(0, 3),
        pd.cut([1.0, 5.0, 9.0], 3).categories,
        pd.date_range("2024", periods=3, tz="Europe/Paris"),
        pd.timedelta_range("1h", periods=3),
        pd.Index([1, "a", (2, "b"), 0.5, pd.Timestamp("2024").date()], dtype=object, tupleize_cols=False),
    ],
)
def test_io_npz_keeps_labels_of_any_dtype(tmp_path: Path, labels: pd.Index) -> None:
    tensor = SparseTensor([[1, 0]], [1.0], None, [Labels(labels, name="t"), None])  # type: ignore[arg-type, list-item]
    assert why_not_stored(tensor.labels[0], 0) is None
    write_tensor(tensor, tmp_path / "x.npz")
    (again, _) = read_tensor(tmp_path / "x.npz").labels
    assert again is not None
    assert again.index.equals(labels)
    assert (again.index.dtype, again.name) == (labels.dtype, "t")


def test_labels_that_cannot_be_stored_are_known_beforehand(tmp_path: Path) -> None:
    assert "label frozenset() of mode 2 cannot be stored" in str(why_not_stored(Labels([frozenset()]), 2))
    odd = [Labels([frozenset(), frozenset({1})]), None]
    tensor = SparseTensor([[0, 0], [1, 1], [0, 1]], [1.0, 2.0, 3.0], None, odd)  # type: ignore[arg-type]
    model = CPRegressor(1, method="vmp", max_iter=2, tol=1e9, random_state=0)
    with pytest.warns(UserWarning, match="of mode 0 cannot be stored .* its model cannot be saved"):
        model.fit(tensor)
    with pytest.raises(ValueError, match="of mode 0 cannot be stored"):
        model.save(tmp_path / "model.npz")


def test_tensor_with_zeros_keeps_the_entries() -> None:
    ones = SparseTensor.from_coo([[0, 0], [1, 1]], [1.0, 1.0], (4, 5))
    both = ones.with_zeros(6, exclude=[[3, 4]], random_state=0)
    zeros = ones.sample_zeros(6, exclude=[[3, 4]], random_state=0)
    np.testing.assert_array_equal(both.coords, np.concatenate([ones.coords, zeros.coords]))
    assert both.values.tolist() == [1.0, 1.0] + [0.0] * 6
    assert both.zero_rate == zeros.zero_rate == 6 / 17


def test_stream_of_text_knows_the_numbers_of_a_whole_file(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", "a,b,y\n" + "".join(f"{i},{j},{i * j}\n" for i in range(1, 8) for j in range(1, 9)))
    tensor = read_tensor(path)
    for first in (path, [tensor]):
        model = CPRegressor(1, method="vmp", max_iter=5, tol=0.0, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.stream(first).partial_fit(tensor).stream(path)
            frame = tensor.to_pandas().drop(columns="y")
            np.testing.assert_allclose(model.predict(tensor), model.predict(frame), rtol=1e-12)
        assert model.shape_ == (7, 8)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_cli_info_of_a_pipe_describes_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    text = b"a,b\n" + b"x,1\n" * 100_000 + b"y,2\n"
    threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,), daemon=True).start()
    assert main(["info", "--format", "csv", "--count", str(tmp_path / "pipe")]) == 0
    assert "entries  2 (density 50 %)" in capsys.readouterr().out
