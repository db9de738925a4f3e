"""The README: its snippets run, its commands exist, its links lead somewhere, its numbers are those of the demo."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers.source_graph import ROOT

from tensorcep import demo, load
from tensorcep.cli.main import COMMANDS

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    every = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [block for name, block in every if name == language]


def commands() -> list[list[str]]:
    """Commands in tables and text."""
    return [shlex.split(text) for text in re.findall(r"`((?:python -m scripts\.|tensorcep )[^`]*)`", TEXT)]


@pytest.mark.slow
def test_readme_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "README.md", "exec"), {})
    rmse, inside = re.match(r"RMSE (\S+) inside (\S+)", capsys.readouterr().out).groups()  # type: ignore[union-attr]
    assert 0.0 < float(rmse) < 0.1
    assert 0.8 < float(inside) < 1.0
    assert load("il2.npz").method_ == "gibbs"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_readme_shell_runs(tmp_path: Path) -> None:
    (source,) = (block for block in blocks("bash") if block.startswith("tensorcep "))
    program = tmp_path / "bin" / "tensorcep"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tensorcep "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", source],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    made = {path.name for path in work.iterdir()}
    assert made >= {"il2.csv", "train.csv", "test.csv", "model.npz", "predictions.csv"}
    if "scores.json" in made:
        assert 0.0 < json.loads((work / "scores.json").read_text())["rmse"] < 0.1
    assert len(pd.read_csv(work / "predictions.csv")) == 960


def test_readme_names_commands_and_options_that_exist() -> None:
    shared = (ROOT / "scripts" / "benchmarks" / "common.py").read_text()
    assert len(commands()) >= 8
    for words in commands():
        if words[0] == "tensorcep":
            assert words[1] in {command.name for command in COMMANDS}
            continue
        path = ROOT.joinpath(*words[2].split("."))
        source = (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        for option in (word for word in words if word.startswith("--")):
            known = f'"{option}"' in source or (f'"{option[2:]}"' in shared and re.search(rf"\b{option[2:]}=", source))
            assert known, f"{words[2]} has no option {option}"


def test_readme_links_and_paths_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?://)([^)]+)\)", TEXT)
    guide = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    layout = re.findall(r"^```\n(tensorcep/.*?)^```$", guide, re.MULTILINE | re.DOTALL)[0]
    named = [f"tensorcep/{name}" for name in re.findall(r"(?<= )[\w/]+(?:\.py|/)(?= )", layout)]
    inline = re.findall(r"`((?:tensorcep|tests|scripts)/[\w./]+)`", TEXT)
    assert len(named) > 8
    missing = [path for path in [*links, *named, *inline] if not (ROOT / path).exists()]
    assert not missing


def test_readme_two_commands_exist() -> None:
    first = blocks("bash")[0]
    scripts = re.findall(r"^bash (\S+)", first, re.MULTILINE)
    assert scripts == ["scripts/demo.sh", "scripts/test.sh"]
    assert all((ROOT / script).is_file() for script in scripts)


def test_readme_snippets_are_short() -> None:
    python = [line for line in blocks("python")[0].splitlines() if line]
    shell = blocks("bash")[1].splitlines()
    assert len(python) <= 10
    assert len(shell) <= 10


def test_readme_figure_is_small() -> None:
    assert 10_000 < (ROOT / "data" / "figures" / "demo.png").stat().st_size < 150_000


@pytest.mark.slow
def test_readme_numbers_are_those_of_the_demo(tmp_path: Path) -> None:
    found = demo.run_demo(tmp_path, progress=False)
    row = next(line for line in TEXT.splitlines() if line.startswith("| COVID-19 serology"))
    told = [float(text) for text in re.findall(r"\d\.\d{3}", row)]
    parafac = found.rmse_parafac
    # other processors and libraries round differently, and a fit stops a sweep earlier or later
    expected = [found.rmse_mean, parafac.mean(), parafac.min(), parafac.max(), found.rmse]
    assert sorted(told) == pytest.approx(sorted(expected), abs=0.01)
    row = next(line for line in TEXT.splitlines() if "inside their 90 % interval" in line)
    (share,) = re.findall(r"(\d\d\.\d) %", row)
    assert float(share) == pytest.approx(100 * found.coverage, abs=1.0)
