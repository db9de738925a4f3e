"""The promise that a refused call changes nothing, as a check for any estimator that predicts and saves.

    check_refused(model, lambda: model.fit(X, bad_y), answers=[lambda m: m.predict(X)], folder=tmp_path)

The call must raise; what the model answers, its labels and the bytes of its file are then what they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Answer = Callable[[Any], Any]


def picture(model: Any, answers: Sequence[Answer], folder: Path) -> dict[str, Any]:
    """All that must stay: answers bit by bit, labels, the file, and the names of the attributes."""
    path = folder / "picture.npz"
    model.save(path)
    seen: dict[str, Any] = {"file": path.read_bytes()}
    for number, answer in enumerate(answers):
        given = answer(model)
        parts = given if isinstance(given, (tuple, list)) else [given]
        seen[f"answer {number}"] = [bits(part) for part in parts]
    labels = getattr(model, "labels_", None)
    if labels is not None:
        seen["labels"] = [None if found is None else list(found) for found in labels]
    seen["attributes"] = sorted(vars(model))
    return seen


def bits(values: Any) -> tuple[str, tuple[int, ...], bytes]:
    """An array as dtype, shape and bytes, so that nan equals nan and 0 is not -0."""
    array = np.ascontiguousarray(values)
    return array.dtype.str, array.shape, array.tobytes()


def check_refused(
    model: Any,
    call: Callable[[], Any],
    *,
    answers: Sequence[Answer],
    folder: Path,
    error: type[BaseException] | tuple[type[BaseException], ...] = (ValueError, TypeError),
    params: dict[str, Any] | None = None,
    what: str = "",
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Make a call that must raise, with these parameters for its time, and compare the fitted model before and after.

    Parameters
    ----------
    model : fitted estimator
    call : callable
    answers : list of callables
        What is asked of the model; arrays, or lists of them.
    folder : Path
        For the model's file.
    error : type or tuple of types
    params : dict, optional
        Parameters that are not allowed; they are set before the call and set back after it.
    what : str
        Named in the failure.
    before : dict, optional
        What the call of this function before handed back, where nothing has happened since.

    Returns
    -------
    dict
        The picture of the model, which is that of before.
    """
    before = picture(model, answers, folder) if before is None else before
    with with_params(model, params or {}), pytest.raises(error):
        call()
    after = picture(model, answers, folder)
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"{type(model).__name__} after {what or 'the refused call'}: other {', '.join(changed)}"
    return after


def check_refused_unfitted(
    model: Any, call: Callable[[], Any], error: type[BaseException] | tuple[type[BaseException], ...] = Exception
) -> None:
    """The same for a model that was never fitted: it has no attribute more, and its parameters are as they were."""
    before = {name: repr(value) for name, value in vars(model).items()}
    with pytest.raises(error):
        call()
    assert {name: repr(value) for name, value in vars(model).items()} == before


@contextlib.contextmanager
def with_params(model: Any, params: dict[str, Any]) -> Iterator[None]:
    """Parameters that an estimator has for a time."""
    given = {name: model.get_params(deep=False)[name] for name in params}
    model.set_params(**params)
    try:
        yield
    finally:
        model.set_params(**given)


class Raising:
    """A callback that raises in its n-th call."""

    def __init__(self, error: type[BaseException], n: int = 1):
        self.error, self.left = error, n

    def __call__(self, *_: Any) -> bool:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return False
