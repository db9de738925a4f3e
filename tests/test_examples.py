"""The examples that users copy run on little data, are short, and use public names alone."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers.source_graph import ROOT

import tensorcep
from tensorcep import datasets

FOLDER = ROOT / "scripts" / "examples"
PATHS = sorted(FOLDER.glob("*.py"))


@pytest.fixture(autouse=True)
def little_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tenth of the entries, and temporary files in the test's folder."""
    _, few = datasets.load_il2().train_test_split(test_size=0.1, random_state=0)
    monkeypatch.setattr(datasets, "load_il2", lambda: few)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def printed(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_examples_are_short_and_use_public_names_alone() -> None:
    listed = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    assert len(PATHS) >= 16
    for path in PATHS:
        source = path.read_text(encoding="utf-8")
        assert len(source.split('"""', 2)[2].strip().splitlines()) <= 36, path.name
        assert f"`{path.name}`" in listed
        imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        ours = [n for n in imports if isinstance(n, ast.ImportFrom) and str(n.module).startswith("tensorcep")]
        assert {node.module for node in ours} == {"tensorcep"}, path.name
        assert {alias.name for node in ours for alias in node.names} <= set(dir(tensorcep)), path.name
        assert not any("scripts" in ast.unparse(node) for node in imports), path.name


# 480 entries: draws of the components that the default rank has need not agree
@pytest.mark.filterwarnings("ignore:the draws of 'gibbs' do not agree:UserWarning")
@pytest.mark.slow
def test_fit_csv_predicts_cells_and_keeps_the_model(capsys, monkeypatch, tmp_path):
    text = printed("fit_csv", capsys, monkeypatch)
    assert "480 entries" in text
    assert "lower" in text
    (model,) = tmp_path.glob("*/model.npz")
    assert tensorcep.load(model).rank_ > 0


# one true component: draws of the further ones that the default rank has do not agree
@pytest.mark.filterwarnings("ignore:the draws of 'gibbs' do not agree:UserWarning")
@pytest.mark.slow
def test_fit_csv_takes_a_file_of_its_user(capsys, monkeypatch, tmp_path):
    file = tmp_path / "mine.csv"
    tensor = tensorcep.simulate_cp((30, 20), 1, 300, random_state=0).tensor
    frame = pd.DataFrame({"film": tensor.coords[:, 0], "viewer": tensor.coords[:, 1], "stars": tensor.values})
    frame.to_csv(file, index=False)
    text = printed("fit_csv", capsys, monkeypatch, str(file))
    assert "300 entries" in text
    assert "film" in text


def test_stream_csv_scores_every_batch_before_it_learns_it(capsys, monkeypatch, tmp_path):
    lines = [line for line in printed("stream_csv", capsys, monkeypatch).splitlines() if "rmse" in line]
    scores = [float(line.split()[3]) for line in lines[1:]]
    assert len(scores) == 15
    assert min(scores[-3:]) < scores[0]
    assert (next(tmp_path.glob("*/ratings.csv"))).stat().st_size > 100_000


@pytest.mark.slow
def test_evaluate_scores_values_and_labels(capsys, monkeypatch):
    text = printed("evaluate", capsys, monkeypatch)
    assert "90% interval" in text
    assert "AUC 0." in text


@pytest.mark.slow
def test_pick_method_compares_and_chooses(capsys, monkeypatch):
    text = printed("pick_method", capsys, monkeypatch)
    assert all(word in text for word in ("gibbs", "cep", "vmp", "rank by held-out log score"))


def test_factor_model_is_better_than_each_pixels_share(capsys, monkeypatch):
    text = printed("factor_model", capsys, monkeypatch)
    filled, share = (float(part.split()[-1]) for part in text.splitlines()[0].split(";"))
    assert share < filled < 1.0


# What each of the jobs says at least, and whether it takes too long for every run of the tests.
JOBS = {
    "ratings": ("user item month  rank", "component 4", "cosine"),
    "response": ("cumulative", "True figures in report.html"),
    "security": ("surprise", "374     4    18   92.0"),
    "stream": ("log scores of the batches", "upper_tail", "messages divided out"),
    "methods": ("log_score", "R-hat at most", "score"),
    "side_information": ("RMSE of the new items 0.",),
    "stars": ("'auc': 0.9",),
    "views": ("Variance explained by view", "atac"),
    "scikit_learn": ("{'rank': 2}",),
    "rank": ("cumulative", "loss"),
}
LONG = {"methods", "rank", "response", "scikit_learn", "stream"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
@pytest.mark.parametrize("job", [pytest.param(job, marks=pytest.mark.slow if job in LONG else ()) for job in JOBS])
def test_job_says_what_it_should(job, capsys, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    text = printed(f"job_{job}", capsys, monkeypatch)
    assert [said for said in JOBS[job] if said not in text] == []


def test_jobs_have_at_most_twelve_lines():
    for job in JOBS:
        tree = ast.parse((FOLDER / f"job_{job}.py").read_text(encoding="utf-8"))
        work = [node for node in tree.body[1:] if not isinstance(node, (ast.Import, ast.ImportFrom))]
        assert work[-1].end_lineno - work[0].lineno + 1 <= 12, job
