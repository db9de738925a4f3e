"""Files of models of feature vectors that are not right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

import tensorcep as tc

X = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 1.0, 0.0]})
Y = np.array(["no", "no", "yes", "yes"])
MODELS = {
    "ep": lambda: tc.BayesianLogisticRegression(max_iter=3, tol=1e9),
    "linear": lambda: tc.BayesPointMachine(max_iter=100),
    "kernel": lambda: tc.BayesPointMachine("rbf", max_iter=100),
}
WRONG = {
    "nan": lambda a: np.full(a.shape, np.nan),
    "complex": lambda a: a + 1j,
    "text": lambda a: np.full(a.shape, "x"),
    "another size": lambda a: np.concatenate([a, a], axis=-1),
}


def rewritten(path: Path, arrays: dict[str, np.ndarray], **fitted: object) -> None:
    """Write a file again, without its checksum."""
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    header = json.loads(content["header"].tobytes())
    header.pop("checksum")
    header["fitted"].update(fitted)
    content["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **{**content, **arrays})


# What predictions are made of, by model.
MEANS = (("ep", "_mean"), ("linear", "coef_"), ("kernel", "dual_coef_"))
USED = [*MEANS, *((name, "_cov") for name in MODELS)]


@each("wrong", WRONG)
@each(("name", "attribute"), USED)
def test_load_refuses_arrays_that_make_no_sense(name: str, attribute: str, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model = MODELS[name]().fit(X, Y)
    model.save(path)
    rewritten(path, {attribute: WRONG[wrong](getattr(model, attribute))})
    with pytest.raises(ValueError, match=r"model\.npz' is not a complete model"):
        tc.load(path)


def test_load_gives_no_names_of_a_file_to_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model = MODELS["ep"]().fit(X, Y)
    model.save(path)
    assert list(tc.load(path).predict(X)) == list(model.predict(X))
    rewritten(path, {}, predict="x")
    with pytest.raises(ValueError, match="it has no attribute 'predict'"):
        tc.load(path)


@pytest.mark.parametrize("name", MODELS)
def test_load_refuses_one_number_that_is_not_finite_and_what_is_missing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model = MODELS[name]().fit(X, Y)
    model.save(path)
    cov = model._cov.copy()
    cov[0, -1] = -np.inf
    rewritten(path, {"_cov": cov})
    with pytest.raises(ValueError, match="is not a complete model .its covariances are not finite"):
        tc.load(path)
    model.save(path)
    with np.load(path) as archive:
        content = {key: archive[key] for key in archive.files if key != "intercept_"}
    header = json.loads(content["header"].tobytes())
    header.pop("checksum")
    header["fitted"].pop("intercept_", None)
    np.savez(path, **{**content, "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)})
    with pytest.raises(ValueError, match="is not a complete model .it has no 'intercept_'"):
        tc.load(path)
