"""Every notebook runs from top to bottom, and is stored without outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.source_graph import PACKAGE, ROOT

nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_notebooks_exist_and_are_numbered() -> None:
    assert [path.name for path in NOTEBOOKS][:1] == ["01_quickstart.ipynb"]
    assert len(NOTEBOOKS) >= 8
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{n:02d}" for n in range(1, len(NOTEBOOKS) + 1)]


def test_notebooks_are_valid_and_stripped() -> None:
    for path in NOTEBOOKS:
        notebook = read(path)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert code, path.stem
        assert all(cell.outputs == [] and cell.execution_count is None for cell in code), path.stem
        assert set(notebook.metadata) <= {"kernelspec", "language_info"}, path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # of the machinery that talks to the kernel; the notebook's own are seen below
def test_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "load_alog(" in path.read_text(encoding="utf-8"):
        request.getfixturevalue("real_data")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = read(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    told = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
    warned = re.findall(r"^(.*?):\d+: \w*Warning", told, re.MULTILINE)  # of the libraries below, others may warn
    assert not [file for file in warned if "ipykernel_" in file or file.startswith(str(PACKAGE))], told
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3


def test_notebook_quickstart_says_what_its_numbers_say(tmp_path: Path) -> None:
    """The text names the trend of coverage, of uncertainty and of accuracy by rank: these must be what comes out."""
    import numpy as np

    from tensorcep import CPRegressor, SparseTensor, datasets, metrics

    tensor = datasets.load_il2()
    train, test = tensor.train_test_split(0.2, random_state=0)
    plain = {"method": "cep", "prior": "fixed", "interactions": "cp"}
    plain |= {"lower_limit": None, "random_state": 0}
    error = {}
    for rank in (1, 3, 8):
        model = CPRegressor(rank, **plain).fit(train)
        error[rank] = metrics.rmse(test.values, model.predict(test))
    assert error[1] - error[3] > error[3] - error[8] > 0
    model = CPRegressor(3, **plain).fit(train)
    covered = [metrics.coverage(test.values, *model.predict_interval(test, level).T) for level in (0.5, 0.95)]
    assert covered[0] > 0.55
    assert 0.9 < covered[1] < 0.96
    gaps = np.argwhere(np.isnan(tensor.to_dense()))
    missing = SparseTensor.from_coo(gaps, np.zeros(len(gaps)), tensor.shape, labels=tensor.labels)
    assert np.sqrt(model.predict_latent(missing)[1]).mean() > np.sqrt(model.predict_latent(test)[1]).mean()
    residual = np.abs(test.values - model.predict(test))
    small = model.predict(test) < 0.05
    assert residual[small].mean() < 0.5 * residual[~small].mean()
