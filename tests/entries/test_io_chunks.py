"""Chunks of files and what is collected of them: extras in the same pass, tables, positions to go on from."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

from tensorcep.entries.io import Schema
from tensorcep.entries.io.chunks import read_batches, read_chunks
from tensorcep.entries.io.files import read_entries, read_table, read_tables, read_tensor

N = 1000
FRAME = pd.DataFrame(
    {
        "user": [f"u{n % 7}" for n in range(N)],
        "hours": np.arange(N) / 8 + 0.5,
        "item": np.arange(N) // 7,
        "count": np.arange(N) % 5 * 1.0,
    }
)


def put(folder: Path, kind: str) -> str:
    path = folder / f"x.{kind}"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        FRAME.to_parquet(path)
    else:
        text = FRAME.to_csv(index=False).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    return str(path)


@each("kind", ["csv", "csv.gz", "parquet"])
@each("lines", [7, 300, 5000])
def test_chunks_hold_extras_of_the_same_lines(tmp_path: Path, kind: str, lines: int) -> None:
    path, schema = put(tmp_path, kind), Schema(extras=("hours",))
    chunks = [chunk for chunk, *_ in read_chunks([path], schema, lambda: lines)]
    assert [len(chunk.values) for chunk in chunks][:-1] == [lines] * ((N - 1) // lines)
    np.testing.assert_array_equal(np.concatenate([chunk.extras["hours"] for chunk in chunks]), FRAME["hours"])
    np.testing.assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), FRAME["count"])
    assert np.concatenate([chunk.columns[0] for chunk in chunks]).tolist() == FRAME["user"].tolist()
    rest = [chunk for chunk, *_ in read_chunks([path], schema, lambda: lines, chunks[0].position)]
    assert [chunk.position for chunk in rest] == [chunk.position for chunk in chunks[1:]]


@each("kind", ["csv", "parquet"])
def test_tensor_with_extras_merges_them_as_its_values(tmp_path: Path, kind: str) -> None:
    path, schema = put(tmp_path, kind), Schema(extras=("hours",))
    tensor, extras = read_entries(path, schema)
    np.testing.assert_array_equal(extras["hours"], FRAME["hours"])
    np.testing.assert_array_equal(tensor.values, read_tensor(path, modes=["user", "item"], value="count").values)
    summed, of_user = read_entries(path, schema._replace(modes=["user", "count"], value="item"), "sum")
    groups = FRAME.groupby(["user", "count"], sort=False)
    np.testing.assert_allclose(of_user["hours"], groups["hours"].sum())
    np.testing.assert_allclose(summed.values, groups["item"].sum())


@each(
    ("how", "message"),
    [
        ({"extras": ("hour",)}, "'hour'"),
        ({"extras": ("count",), "value": "count"}, "the column 'count' is a mode or the value already"),
        (
            {"extras": ("user",)},
            r"line 2 of '.*' has 'u0' in field 1, which is not a number \(column 'user'\); mend it",
        ),
    ],
)
def test_extras_that_are_none_are_refused(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    path = put(tmp_path, "csv")
    with pytest.raises(ValueError, match=message):
        read_entries(path, Schema(**how))
    with pytest.raises(ValueError, match=message):
        list(read_chunks([path], Schema(**how), lambda: 5000))


def test_batches_with_an_extent_set_malformed_lines_aside(tmp_path: Path) -> None:
    path = Path(put(tmp_path, "csv"))
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*text[:10], "u1,,3,1\n", *text[10:]]))
    taken: list[Any] = []
    batches = list(read_batches(path, 300, extent="hours", bad_line=lambda *bad: taken.append(bad[1:3])))
    assert taken == [(11, "has '' in field 2, which is not a number (column 'hours'); mend it")]
    np.testing.assert_array_equal(np.concatenate([batch.extents for batch in batches]), FRAME["hours"])
    assert {batch.column for batch in batches} == {"hours"}


@each("lines", [1, 400, None])
def test_tables_hold_all_columns_as_they_stand(tmp_path: Path, lines: int | None) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b,c\n007,,1\n"x, y",2,\n\n007,,1\n')
    found = pd.concat(list(read_tables(str(path), Schema(), lines=lines)))
    expected = [["007", "", "1"], ["x, y", "2", ""], ["007", "", "1"]]
    assert found.to_numpy().tolist() == expected == read_table(str(path), Schema()).to_numpy().tolist()
    path.write_text("a,b,c\n1,2,3\n1,2\n")
    with pytest.raises(ValueError, match="line 3 of '.*' has 2 fields where 3 are expected"):
        list(read_tables(str(path), Schema(), lines=lines))
