"""The shell, of data that lie in several files or outgrow memory."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tensorcep as tc
from tensorcep.cli import cells as query_cells
from tensorcep.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
NAMES = ["user", "item", "hour"]
SMALL = ["--rank", "2", "--method", "vmp", "--max-iter", "5", "--value", "y", "-q"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Entries in one csv file, and the same in three parquet files."""
    place, rng = tmp_path_factory.mktemp("places"), np.random.default_rng(0)
    cells = np.stack(np.unravel_index(rng.permutation(20 * 10 * 4)[:300], (20, 10, 4)), axis=1)
    table = pd.DataFrame({"user": [f"u{i}" for i in cells[:, 0]], "item": cells[:, 1], "hour": cells[:, 2]})
    table["y"] = rng.integers(1, 11, 300) / 2.0
    table.to_csv(place / "all.csv", index=False)
    (place / "parts").mkdir()
    for n, part in enumerate(np.array_split(np.arange(300), 3)):
        table.iloc[part].to_parquet(place / "parts" / f"{n}.parquet", index=False)
    assert cli("fit", place / "all.csv", "-o", place / "all.npz", *SMALL) == 0
    return place


def cli(*args: object) -> int:
    return main([str(arg) for arg in args])


@pytest.mark.parametrize("more", [[], ["--scratch", "."], ["--scratch", ".", "--memory", "2GB"]])
def test_cli_fit_of_several_files_is_that_of_one(
    more: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("fit", folder / "parts" / "*.parquet", "-o", "model.npz", *SMALL, *more) == 0
    cells = pd.read_csv(folder / "all.csv")[NAMES]
    models = [tc.load(path) for path in (folder / "all.npz", tmp_path / "model.npz")]
    np.testing.assert_array_equal(*(model.predict(cells) for model in models))


NOT_OF_SCRATCH = [
    (["--scratch", "nowhere"], "--scratch must be a folder that exists"),
    (["--memory", "much"], "--memory must be a number of bytes"),
    (["--scratch", ".", "--duplicates", "sum"], "--duplicates sum is for one file that is read whole"),
    (["--scratch", ".", "--shape", "9,9,9"], "--shape is for one file that is read whole"),
    (["--scratch", ".", "--noise", "entry"], "--scratch is for one noise"),
    (["--scratch", ".", "--model", "pca"], "are for one tensor"),
]


def test_cli_fit_refuses_what_scratch_cannot(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, sentence in NOT_OF_SCRATCH:
        small = SMALL if "--model" not in options else ["-q"]
        assert cli("fit", folder / "all.csv", "-o", tmp_path / "m.npz", *small, *options) == 1, options
        assert re.search(sentence, capsys.readouterr().err), options


def test_cli_fit_refuses_cells_that_occur_twice(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.read_csv(folder / "all.csv")
    pd.concat([table, table[:1]]).to_csv(tmp_path / "twice.csv", index=False)
    for more in (["--scratch", tmp_path], ["--memory", "2GB"], ["--scratch", tmp_path, "--memory", "2GB"]):
        assert cli("fit", tmp_path / "twice.csv", "-o", tmp_path / "m.npz", *SMALL, *more) == 1
        assert "more than once" in capsys.readouterr().err


@pytest.mark.parametrize("whole", [True, False])
def test_cli_predict_of_several_files_is_that_of_one(
    whole: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_cells, "WHOLE", 1 << 24 if whole else 0)
    monkeypatch.setattr(query_cells, "LINES", 70)
    fitted, cells = tc.load(folder / "all.npz"), pd.read_csv(folder / "all.csv")[NAMES]
    sources = (folder / "all.csv", folder / "parts", folder / "parts" / "*.parquet")
    for source in sources:
        for kind in ("csv", "parquet"):
            out = tmp_path / f"out.{kind}"
            assert cli("predict", folder / "all.npz", source, "-o", out) == 0
            found = pd.read_csv(out) if kind == "csv" else pd.read_parquet(out)
            np.testing.assert_allclose(found["mean"], fitted.predict(cells), rtol=1e-7)
            assert list(found.columns) == [*NAMES, "mean", "sd", "lower", "upper"]
            assert found["user"].tolist() == cells["user"].tolist()


def test_cli_predict_refuses_a_file_without_lines(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare.csv").write_text("user,item,hour\n")
    assert cli("predict", folder / "all.npz", tmp_path / "bare.csv", "-o", tmp_path / "o.csv") == 1
    assert "holds no entries" in capsys.readouterr().err


def test_cli_predict_names_the_row_of_the_file_that_is_no_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_cells, "WHOLE", 0)
    monkeypatch.setattr(query_cells, "LINES", 2)
    (tmp_path / "bad.csv").write_text("user,item,hour\n1,1,1\n1,1,2\n1,1,3\n1,x,4\n")
    assert cli("predict", folder / "all.npz", tmp_path / "bad.csv", "-o", tmp_path / "o.csv", "--no-labels") == 1
    assert "got 'x' in row 4" in capsys.readouterr().err


def test_cli_predict_names_a_line_that_cannot_be_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_cells, "WHOLE", 0)
    (tmp_path / "bad.csv").write_text("user,item,hour\nu1,1,2\nu1,1,2,3,4\n")
    assert cli("predict", folder / "all.npz", tmp_path / "bad.csv", "-o", tmp_path / "o.csv") == 1
    assert "line 3 of" in capsys.readouterr().err
    assert not (tmp_path / "o.csv").exists()
    assert cli("predict", folder / "all.npz", folder / "all.csv", "-o", tmp_path / "o.txt") == 1
    assert "written as csv or parquet" in capsys.readouterr().err
