"""Files of factor models that are not right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each

import tensorcep as tc

X = np.random.default_rng(0).normal(size=(12, 4))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz"
    tc.BayesianPCA(2, max_iter=3, tol=1e9, random_state=0).fit(X).save(path)
    return path


def header_of(path: Path) -> dict[str, Any]:
    with np.load(path) as archive:
        header: dict[str, Any] = json.loads(archive["header"].tobytes())
    return header


def rewritten(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any] | None = None) -> None:
    """Write a file again, without its checksum."""
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    header = header or header_of(path)
    header.pop("checksum", None)
    content["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **{**content, **arrays})


WRONG = {
    "posterior.moments.0.cov": (lambda a: -a, "a variance is negative"),
    "posterior.moments.1.mean": (lambda a: a[:-1], "do not fit"),
    "posterior.precisions.1.mean": (lambda a: -a, "a precision or dispersion is not positive"),
    "posterior.sites.0.noise.mean": (lambda a: 0.0 * a, "a precision or dispersion is not positive"),
    "posterior.moments.0.mean": (lambda a: a * np.nan, "not finite"),
    "posterior.precisions.0.mean": (lambda a: a * np.inf, "not finite"),
    "posterior.moments.1.cov": (
        lambda a: a + 1e300 * np.eye(1, a.shape[1]),
        "so large that predictions would overflow",
    ),
    "links.0.units.scale": (lambda a: 0.0 * a, "the units of its columns are not positive"),
    "links.0.units.centre": (lambda a: a + 1e300, "so large that predictions would overflow"),
}


@each("name", WRONG)
def test_load_refuses_arrays_that_make_no_sense(saved: Path, tmp_path: Path, name: str) -> None:
    change, words = WRONG[name]
    with np.load(saved) as archive:
        array = archive[name]
    path = Path(shutil.copy(saved, tmp_path / "copy.npz"))
    rewritten(path, {name: array})
    tc.load(path)
    rewritten(path, {name: change(array)})
    with pytest.raises(ValueError, match=words):
        tc.load(path)


def test_load_refuses_a_layout_that_is_not_that_of_the_matrices(saved: Path) -> None:
    header = header_of(saved)
    header["fitted"]["where"][0]["one"] += 1
    rewritten(saved, {}, header)
    with pytest.raises(ValueError, match="the layout of the coordinates does not fit the matrices"):
        tc.load(saved)
