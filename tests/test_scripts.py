"""Each measurement script at a tiny size: the rows that it hands back, the figures that it draws, what it refuses."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.source_graph import ROOT
from helpers.tiny_scripts import NEEDS_DATA, TINY

SCRIPTS = ROOT / "scripts"
FOLDERS = ("papers", "speed", "studies")
Rows = list[dict[str, Any]]
Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a script's main with options of its own, in this process; returns what it prints to stdout."""
    monkeypatch.setattr(sys, "argv", ["a script that reads these", "--no-such-option"])

    def printed(name: str, *options: str) -> str:
        capsys.readouterr()
        importlib.import_module(f"scripts.{name}").main(list(options))
        return capsys.readouterr().out

    return printed


def rows_of(run: Run, name: str, *options: str) -> Rows:
    return json.loads(run(name, *options, "--json", "-"))


def named(path: Path) -> str:
    return ".".join(path.relative_to(SCRIPTS).with_suffix("").parts)


def scripts() -> dict[str, Path]:
    """The modules that are run."""
    found = [path for folder in FOLDERS for path in SCRIPTS.joinpath(folder).rglob("*.py")]
    return {named(path): path for path in found if "__main__" in path.read_text(encoding="utf-8")}


def imported(path: Path) -> set[str]:
    """Modules of the scripts' folders that a file imports, in whatever form."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("scripts.") for name in found if name.startswith("scripts.")}


def test_scripts_all_have_a_smoke_test_and_a_question_that_they_answer():
    text = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    assert set(scripts()) == set(TINY)
    assert [name for name in scripts() if f"`{name.split('.')[1]}`" not in text] == []


def test_scripts_import_no_script_and_no_other_folder():
    runnable = set(scripts())
    for path in SCRIPTS.rglob("*.py"):
        folder = path.relative_to(SCRIPTS).parts[0]
        others = imported(path)
        assert not others & runnable, path
        assert all(name.split(".")[0] in ({"lib"} if folder == "lib" else {"lib", folder}) for name in others), path
        assert folder != "examples" or not others, path


def test_scripts_explain_themselves(run, capsys):
    for name in TINY:
        with pytest.raises(SystemExit) as told:
            run(name, "--help")
        assert told.value.code == 0, name
        text = capsys.readouterr().out
        assert text.startswith("usage: "), name
        assert "--json" in text, name


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_script_hands_back_flat_rows(name, run, request):
    if name in NEEDS_DATA:
        request.getfixturevalue("real_data")
    rows = rows_of(run, name, *TINY[name].split())
    assert rows
    for row in rows:
        assert {"data", "metric", "value"} <= row.keys()
        assert all(value is None or isinstance(value, (str, int, float)) for value in row.values())
        assert "skipped" in row or np.isfinite(row["value"])
        assert row["metric"] != "fault of case", row


def test_scripts_write_the_same_rows_to_a_file_beside_a_table(tmp_path):
    file = tmp_path / "rows.json"
    words = ["-m", "scripts.speed.bench_read_tns", *TINY["speed.bench_read_tns"].split(), "--json", str(file)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    methods = {row["method"] for row in json.loads(file.read_text(encoding="utf-8"))}
    assert {"read_tensor", "pandas.read_csv"} <= methods
    assert all(name in done.stdout for name in methods)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.slow
def test_bench_sweep_times_kernel_and_twin_and_skips_what_does_not_fit(run):
    tiny = [*TINY["speed.bench_sweep"].split(), "--likelihoods", "gaussian", "--dtypes", "float64,float32"]
    rows = rows_of(run, "speed.bench_sweep", *tiny)
    by_metric: dict[object, list[dict[str, object]]] = {}
    for row in rows:
        by_metric.setdefault(row["metric"], []).append(row)
    assert {row["method"] for row in by_metric["us_per_entry"]} == {"cep", "plain"}
    assert {row["threads"] for row in by_metric["us_per_entry_kernel"]} == {1, 2}
    # 3 modes, 3 numbers of the precision and 2 of the natural mean, and two numbers for the noise
    messages = {row["dtype"]: row["value"] for row in by_metric["bytes_per_entry_messages"]}
    assert messages == {"float64": 3 * 5 * 8 + 16, "float32": 3 * 5 * 4 + 16}
    refused = rows_of(run, "speed.bench_sweep", "--ranks", "1000", "--entries", "1e8", "--likelihoods", "gaussian")
    assert [row["value"] for row in refused] == [None]
    assert "GB available" in str(refused[0]["skipped"])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("papers.reproduce_bpm", "toy", marks=pytest.mark.slow),
        ("papers.reproduce_clutter", "typical"),
    ],
)
def test_scripts_draw_figures(name, data, run, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "figure.png"
    run(name, "--data", data, "--figure", str(file), *(["--draws", "100"] if "clutter" in name else []))
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_reproduce_glm_draws_both_figures(run, real_data, tmp_path):
    pytest.importorskip("matplotlib")
    figures = [tmp_path / "kl.png", tmp_path / "seconds.png"]
    asked = ["--simulations", "--figure", str(figures[0]), "--tables", "--seconds-figure", str(figures[1])]
    small = ["--data", "crabs", "--folds", "1", "--methods", "vb,ep,kjit,is", "--sweeps", "3", "--draws", "100"]
    rows = rows_of(run, "papers.reproduce_glm", *asked, *small)
    assert {row["data"] for row in rows} == {"probit-1", "probit-2", "logistic-1", "logistic-2", "crabs"}
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)


@pytest.mark.slow
def test_bench_stream_draws_resident_size_and_latency(run, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    file = tmp_path / "figure.png"
    small = ["--studies", "memory", "--stream-entries", "400", "--batch-sizes", "100", "--ranks", "2", "--points", "2"]
    run("speed.bench_stream", *small, "--figure", str(file))
    assert file.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit) as refused:
        run("speed.bench_stream", "--studies", "order", "--figure", str(file))
    assert refused.value.code == 2
    assert "--figure draws the study 'memory'" in capsys.readouterr().err


def test_reproduce_cep_tensor_gives_the_published_scores_and_draws_them(run, real_data, tmp_path):
    figure = tmp_path / "curves.png"
    chosen = ["--methods", "cep,vmp", "--folds", "1,2", "--ranks", "3", "--sweeps", "5", "--figure", str(figure)]
    rows = rows_of(run, "papers.reproduce_cep_tensor", *chosen)
    found = {
        (r["data"], r["method"], r["fold"], r["sweep"]): round(r["value"], 4)
        for r in rows
        if r["metric"] in ("rmse", "auc")
    }
    assert found["alog", "cep", 1, 5] == 1.3902
    assert found["alog", "vmp", 1, 5] == 0.9387
    assert found["alog", "vmp", 2, 5] == 0.9625
    assert found["enron", "cep", 1, 5] == 0.8716
    assert found["enron", "vmp", 1, 5] == 0.7349
    assert found["enron", "vmp", 2, 5] == 0.7051
    assert found["enron", "vmp", "mean", 5] == pytest.approx((0.7349 + 0.7051) / 2, abs=1e-4)
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_measure_accuracy_draws_curves_and_says_what_it_cannot_fit(run, real_data, tmp_path):
    pytest.importorskip("matplotlib")
    figure, others = tmp_path / "curves.png", tmp_path / "others.json"
    others.write_text(
        json.dumps([{"data": "alog", "metric": "rmse", "value": 0.5, "fold": 1, "seed": 0, "method": "x"}])
    )
    small = ["--folds", "1", "--entries", "300", "--ranks", "1", "--sweeps", "3", "--data", "alog,enron", "--inner"]
    chosen = ["--methods", "vmp,pg-gibbs", "--figure", str(figure), "--with", str(others)]
    printed = run("studies.measure_accuracy", *small, *chosen, "--json", str(tmp_path / "rows.json"))
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["data"], row["method"]) for row in rows if "skipped" in row] == [("alog", "pg-gibbs")]
    assert {row["link"] for row in rows if row.get("method") == "pg-gibbs" and "skipped" not in row} == {"logit"}
    assert "0.5000" in printed
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_scripts_refuse_wrong_options_in_one_sentence(run, capsys):
    with pytest.raises(SystemExit) as refused:
        run("speed.bench_sweep", "--likelihoods", "cauchy")
    assert refused.value.code == 2
    err = capsys.readouterr().err
    assert "'cauchy'" in err
    assert "gaussian, probit" in err


@pytest.mark.slow
def test_measure_distributed_fits_parquet_files_from_end_to_end(run, tmp_path):
    small = "--entries 3000 --ranks 2 --sweeps 3 --workers 1 --engines vmp"
    rows = rows_of(run, "studies.measure_distributed", *small.split(), "--parquet", str(tmp_path))
    found = {row["metric"]: row["value"] for row in rows}
    assert 0 < found["CPU seconds to first sweep"] < found["CPU seconds of all"]
    assert found["MB of a worker"] > 10
    assert len(list(tmp_path.glob("*.parquet"))) == 1
