"""Warnings point at the line of who called, whatever stands between, and what is said commands no terminal."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each
from scipy import sparse
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import tensorcep as tc
from tensorcep.core.checks import fail_value, warn_user

CELLS = np.argwhere(np.ones((6, 5)))
Y = np.prod(CELLS + 1.0, axis=1) / 30.0 + CELLS[:, 0] % 2
LABELLED = tc.SparseTensor.from_coo(CELLS, Y, labels=[tc.Labels(list("abcdef")), None])
POINTS, SIDES = CELLS.astype(float), CELLS[:, 0] % 2
SHORT: dict[str, Any] = {"max_iter": 1, "tol": 1e-12}

WARNING: dict[str, Callable[[Path], Any]] = {
    "a fit": lambda _: tc.CPRegressor(1, method="vmp", **SHORT).fit(CELLS, Y),
    "a batch": lambda _: tc.CPRegressor(1, method="cep", **SHORT).partial_fit(CELLS, Y),
    "a search": lambda _: cross_val_score(tc.CPRegressor(1, method="vmp", **SHORT), CELLS, Y, cv=2),
    "a pipeline": lambda _: make_pipeline(tc.BayesianPCA(1, **SHORT)).fit(POINTS),
    "matrices": lambda _: tc.BayesianPCA(1, **SHORT).fit(POINTS),
    "views": lambda _: tc.GroupFactorAnalysis(1, **SHORT).fit([POINTS, POINTS**2]),
    "a regression": lambda _: tc.BayesianLogisticRegression("vb", **SHORT).fit(POINTS, SIDES),
    "a machine": lambda _: tc.BayesPointMachine(**SHORT).fit(POINTS, SIDES),
    "a process": lambda _: tc.GaussianProcessClassifier(optimizer=None, **SHORT).fit(POINTS, SIDES),
    "folds": lambda _: tc.SparseTensor.from_coo(CELLS, Y).kfold(3, shuffle=False),
    "a matrix of zeros": lambda _: tc.SparseTensor.from_scipy(sparse.coo_array(([0.0, 1.0], ([0, 1], [1, 0])))),
    "a file": lambda folder: tc.write_tensor(LABELLED, folder / "x.tns"),
}


@each("case", WARNING)
def test_warnings_point_at_the_line_of_who_called(case: str, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        WARNING[case](tmp_path)
    assert found
    assert {item.filename for item in found} == {__file__}


def test_nothing_else_in_the_package_warns_by_itself() -> None:
    package = Path(str(tc.__file__)).parent
    own = [path.name for path in package.rglob("*.py") if "warnings.warn(" in path.read_text(encoding="utf-8")]
    assert own == ["checks.py"]


def test_sentences_with_a_very_long_label_leave_its_middle_out() -> None:
    with pytest.raises(ValueError, match=r"^got xxx.*xxx \.\.\. xxx.*; mend it\.$") as caught:
        fail_value(f"got {'x' * 5000}; mend it.")
    assert len(str(caught.value)) < 2000


def test_warnings_and_errors_escape_what_commands_a_terminal() -> None:
    with pytest.warns(UserWarning, match=r"^a\\x1b\[2J b$"):
        warn_user("a\x1b[2J b", UserWarning)
    with pytest.raises(ValueError, match=r"^a\\u202e\nb$"):
        fail_value("a\u202e\nb")


LOSES = {"quick_score": 1.0, "score": 0.5, "constant_score": 0.0, "gain_error": 0.1}


@each(
    ("method", "advised"), [("vmp", "take another rank"), ("pg-vb", "take another rank"), ("cep", "'vmp' or 'pg-vb'")]
)
def test_nobody_is_advised_to_take_what_was_taken(method: str, advised: str) -> None:
    found = tc.cp.fitted.diagnostics.Diagnostics(method, 9, True, {}, **LOSES)
    (sentence,) = found.complaints(9)
    assert advised in sentence


@each(("make", "says", "not_says"), [
    (lambda: tc.CPRegressor(1, method="vmp", **SHORT).fit(CELLS, Y), "increase max_iter or raise tol", "damping"),
    (lambda: tc.CPRegressor(1, method="cep", **SHORT).fit(CELLS, Y), "or add damping", "unless"),
    (lambda: tc.BayesPointMachine(**SHORT).fit(POINTS, SIDES), "or add damping", "probit"),
    (lambda: tc.GaussianProcessClassifier(method="vb", optimizer=None, **SHORT).fit(POINTS, SIDES), "raise", "damp"),
])  # fmt: skip
def test_advice_is_of_settings_that_there_are(make: Callable[[], Any], says: str, not_says: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make()
    told = [str(item.message) for item in found if "after max_iter" in str(item.message)]
    assert told
    assert all(says in text and not_says not in text for text in told)
