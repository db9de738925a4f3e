"""The demonstration: what it claims is what can be computed from its own files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorcep import demo, metrics
from tensorcep.cli.main import main
from tensorcep.datasets import load_covid19_serology
from tensorcep.estimators import load

pytestmark = pytest.mark.slow  # one fit by default for all


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> demo.Demo:
    return demo.run_demo(tmp_path_factory.mktemp("demo") / "new", progress=False)


def test_demo_holds_out_a_fifth_of_the_tensor(result: demo.Demo) -> None:
    tensor = load_covid19_serology()
    assert result.test.nnz == -(-tensor.nnz // 5)
    cells = {tuple(cell) for part in (result.train, result.test) for cell in part.coords.tolist()}
    assert len(cells) == tensor.nnz == result.train.nnz + result.test.nnz


def test_demo_numbers_follow_from_the_saved_model(result: demo.Demo) -> None:
    model, y = load(result.model_file), result.test.values
    assert result.rmse == pytest.approx(metrics.rmse(y, model.predict(result.test)))
    assert result.coverage == pytest.approx(metrics.coverage(y, *model.predict_interval(result.test, 0.9).T))
    assert result.rmse_mean == pytest.approx(np.sqrt(np.mean((y - result.train.values.mean()) ** 2)))


def test_demo_beats_the_mean_and_parafac_and_covers(result: demo.Demo) -> None:
    assert result.rmse < 0.5 * result.rmse_mean
    assert result.rmse < result.rmse_parafac.mean()
    assert 0.88 < result.coverage < 0.96


def test_demo_parafac_does_not_see_the_held_out_values(result: demo.Demo) -> None:
    hidden = result.test.select(np.arange(5))
    changed = type(hidden).from_coo(hidden.coords, hidden.values + 100.0, hidden.shape, labels=hidden.labels)
    found = demo.parafac_errors(result.train, changed, 2, 0)
    assert found.shape == (demo.PARAFAC_STARTS,)
    np.testing.assert_allclose(found, 100.0, atol=5.0)


def test_demo_report_tells_the_numbers(result: demo.Demo) -> None:
    text = demo.report(result)
    parafac = result.rmse_parafac
    for number in (result.rmse, result.rmse_mean, parafac.mean(), parafac.min(), parafac.max()):
        assert f"{number:.4f}" in text
    assert f"{100 * result.coverage:.1f} % of the held-out values" in text
    assert str(result.model_file) in text
    assert str(result.figure_file) in text


def test_demo_figure_tells_the_numbers_of_the_text(
    result: demo.Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    texts: list[str] = []

    def read(figure: Any, *_: Any, **__: Any) -> None:
        texts.extend(text.get_text() for ax in figure.axes for text in ax.texts)

    monkeypatch.setattr(figures.Figure, "savefig", read)
    mean, intervals = result.model.predict(result.test), {0.9: result.model.predict_interval(result.test, 0.9)}
    demo._draw(tmp_path / "figure.png", result.test, mean, intervals)
    assert texts[0].startswith(f"{100 * result.coverage:.1f} % of all {result.test.nnz:,}")


def test_demo_figure_is_a_png_of_readable_size(result: demo.Demo) -> None:
    image = pytest.importorskip("matplotlib.image")
    assert result.figure_file is not None
    height, width = image.imread(result.figure_file).shape[:2]
    assert width >= 1000
    assert height >= 400
    assert result.figure_file.stat().st_size < 200_000


def test_demo_command_runs_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--output-dir", str(tmp_path), "--rank", "2", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "not drawn; pip install 'tensorcep[plots]'" in out
    assert ", rank 2, " in out
    assert [path.name for path in tmp_path.iterdir()] == [demo.MODEL_NAME]


def test_demo_command_shows_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["demo", "--output-dir", str(tmp_path), "--rank", "2"]) == 0
    assert "sweep" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {demo.MODEL_NAME, demo.FIGURE_NAME}


def test_demo_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--output-dir", str(tmp_path / "file"), "-q"]) == 1
    assert capsys.readouterr().err == f"error: File exists: '{tmp_path / 'file'}'\n"
