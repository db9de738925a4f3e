"""Each measurement script at a tiny size: the rows that it hands back, the figures that they draw, what it refuses."""

from __future__ import annotations

import ast
import importlib
import inspect
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
SPEED = sorted(path.stem for path in (SCRIPTS / "benchmarks" / "speed").glob("*.py") if path.stem != "__init__")
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


def scripts() -> dict[str, Path]:
    """The modules that are run and write rows."""
    paths = [path for folder in ("papers", "benchmarks") for path in SCRIPTS.joinpath(folder).rglob("*.py")]
    named = {".".join(path.relative_to(SCRIPTS).with_suffix("").parts): path for path in paths}
    return {
        name: path for name, path in named.items() if "report(" in path.read_text() and "def main(" in path.read_text()
    }


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
    shown = [".".join(name.removesuffix(".__main__").split(".")[1:]) for name in scripts()] + SPEED
    assert [name for name in shown if f"`{name}`" not in text] == []


def test_scripts_import_benchmarks_and_their_own_folder_alone():
    for path in SCRIPTS.rglob("*.py"):
        folder, others = path.relative_to(SCRIPTS).parts[0], imported(path)
        allowed = set() if folder == "examples" else {folder, "benchmarks"} if folder != "docs" else {folder}
        assert {name.split(".")[0] for name in others} <= allowed, path


def test_scripts_explain_themselves(run, capsys):
    for name in TINY:
        with pytest.raises(SystemExit) as ended:
            run(name, "--help")
        assert ended.value.code == 0, name
        text = capsys.readouterr().out
        assert text.startswith("usage: "), name
        assert "--json" in text, name


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_script_hands_back_flat_rows(name, run, request, tmp_path):
    if name in NEEDS_DATA:
        request.getfixturevalue("real_data")
    rows = rows_of(run, name, *TINY[name].split())
    assert rows
    for row in rows:
        assert {"data", "metric", "value"} <= row.keys()
        assert all(value is None or isinstance(value, (str, int, float)) for value in row.values())
        assert "skipped" in row or np.isfinite(row["value"])


def test_scripts_write_the_same_rows_to_a_file_and_draw_them(tmp_path):
    pytest.importorskip("matplotlib")
    file, figure = tmp_path / "rows.json", tmp_path / "figure.png"
    name = "papers.reproduce_clutter"
    words = [sys.executable, "-m", f"scripts.{name}", *TINY[name].split(), "--json", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    methods = {row["method"] for row in json.loads(file.read_text(encoding="utf-8"))}
    assert {"ep", "laplace", "exact"} <= methods
    assert all(method in done.stdout for method in methods)
    draw = importlib.import_module("scripts.papers.draw").main
    draw([str(file), "--metric", "path_mean", "--x", "flops", "--log", "-o", str(figure)])
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "rows.json"]


def test_reproduce_cep_tensor_gives_the_published_scores(run, real_data):
    chosen = ["--methods", "cep,vmp", "--folds", "1,2", "--ranks", "3", "--sweeps", "5"]
    found = {
        (r["data"], r["method"], r["fold"], r["sweep"]): round(r["value"], 4)
        for r in rows_of(run, "papers.reproduce_cep_tensor", *chosen)
        if r["metric"] in ("rmse", "auc")
    }
    assert found["alog", "cep", 1, 5] == 1.3902
    assert found["alog", "vmp", 1, 5] == 0.9387
    assert found["alog", "vmp", 2, 5] == 0.9625
    assert found["enron", "cep", 1, 5] == 0.8716
    assert found["enron", "vmp", 1, 5] == 0.7349
    assert found["enron", "vmp", 2, 5] == 0.7051
    assert found["enron", "vmp", "mean", 5] == pytest.approx((0.7349 + 0.7051) / 2, abs=1e-4)


def test_scripts_refuse_wrong_options_in_one_sentence(run, capsys):
    with pytest.raises(SystemExit) as refused:
        run("benchmarks.quality.calibration", "--likelihoods", "cauchy")
    assert refused.value.code == 2
    err = capsys.readouterr().err
    assert "'cauchy'" in err
    assert "gaussian, probit" in err


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The modules of asv's benchmarks, imported as asv does."""
    monkeypatch.syspath_prepend(str(SCRIPTS / "benchmarks"))
    return {name: importlib.import_module(f"speed.{name}") for name in SPEED}


def test_speed_benchmarks_are_what_asv_looks_for_and_read_nothing_but_public_names(speed):
    settings = json.loads((SCRIPTS / "benchmarks" / "asv.conf.json").read_text())
    assert settings["benchmark_dir"] == "speed"
    for name, module in speed.items():
        kinds = [item for item in vars(module).values() if inspect.isclass(item) and item.__module__ == module.__name__]
        functions = [
            f for kind in [*kinds, module] for f in vars(kind) if f.split("_")[0] in ("time", "track", "timeraw")
        ]
        assert functions, name
        for kind in kinds:
            n = len(getattr(kind, "param_names", ()))
            assert n == len(getattr(kind, "params", ())), kind
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        ours = [
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and "tensorcep" in str(node.module)
        ]
        assert set(ours) <= {"tensorcep", "tensorcep.entries.io"}, name


@pytest.mark.slow
def test_speed_benchmarks_measure(speed, monkeypatch):
    sweep, fit, read = speed["sweeps"].Sweep(), speed["models"].Fit(), speed["reading"]
    for method in speed["sweeps"].FITS:
        given = method, "labels" if method.startswith("pg") else "values", 2, 500, 1
        sweep.setup(*given)
        assert 0.0 < sweep.track_us_per_entry(*given) < 1000.0
    with pytest.raises(NotImplementedError, match="pg-gibbs"):
        sweep.setup("pg-gibbs", "values", 2, 500, 1)
    fit.setup("few labels", "vmp", 1)
    assert 0.0 < fit.track_cpu_seconds() < 60.0
    assert 0.0 < fit.track_loss() < 0.5
    assert speed["memory"].grown(lambda: np.ones(20_000_000).sum()) > 100_000_000
    coords, y = next(speed["streams"].batches(300, 300, 2))
    assert set(y) == {0.0, 1.0}
    assert speed["streams"].model(2).partial_fit(coords, y).rank_ == 2
    assert set(read.FILES) == set(read.Read.params[0])
