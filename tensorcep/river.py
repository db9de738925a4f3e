"""CP models in the manner of river: one entry at a time, as a dict. Needs the extra ``tensorcep[river]``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import check_columns, check_int, check_mode_count, check_range, optional_module
from tensorcep.cp.fit.outcome import STOPPED
from tensorcep.cp.fitted.predict import observed


class _OneByOne:
    """What both adapters share: entries wait until a batch is full, then the model learns it."""

    def __init__(self, model: Any, modes: Any, batch_size: int = 32):
        self.model, self.modes, self.batch_size = model, modes, batch_size
        self._waiting: list[tuple[list[Any], Any]] = []

    def _labels(self, x: dict[Any, Any]) -> list[Any]:
        check_columns(x, self.modes, "the entry")
        return [x[mode] for mode in self.modes]

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Take one entry: x holds a label for every mode, other keys are ignored; y is its value.

        Raises
        ------
        ValueError
            If y is no finite number, or the model refuses the batch that the entry completes; the entry is then not
            taken, and the model stays as it was.
        """
        waiting = [*self._waiting, (self._labels(x), check_range("y", float(y)))]
        if len(waiting) >= self.batch_size:
            labels, values = zip(*waiting, strict=True)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=f".*{STOPPED}", category=ConvergenceWarning)
                self.model.partial_fit(pd.DataFrame(labels, columns=self.modes), np.asarray(values))
            waiting = []
        self._waiting = waiting

    def _predicted(self, x: dict[Any, Any]) -> float | None:
        """The predictive mean, or None before the first batch."""
        frame = pd.DataFrame([self._labels(x)], columns=self.modes)
        if not hasattr(self.model, "n_batches_"):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # labels that are new
            mean, _ = observed(self.model._fitted, frame)
        return float(mean[0])


def to_river(model: Any, modes: Any, batch_size: int = 32) -> Any:
    """Return a river regressor or classifier that learns with a CP estimator.

    Parameters
    ----------
    model : CPRegressor, CPClassifier or CPCountRegressor
        Learned in place, by `partial_fit`. What is "auto" in it is decided by the first batch alone: set `rank`.
    modes : list
        The keys of the entries' dicts that hold the labels of the modes, in order.
    batch_size : int, default=32
        Entries are learned this many at a time: a batch costs little more than one entry, and the first prediction
        after it as much as the tensor has rows.

    Returns
    -------
    river.base.Regressor or river.base.Classifier
        With learn_one(x, y), predict_one(x), and predict_proba_one(x) for labels, which are False and True.

    Raises
    ------
    ImportError
        If river is not installed.

    Examples
    --------
    >>> from tensorcep import CPRegressor
    >>> from tensorcep.river import to_river
    >>> online = to_river(CPRegressor(2, prior="fixed", random_state=0), ["user", "item"])  # doctest: +SKIP
    >>> online.learn_one({"user": "u1", "item": "i1"}, 4.0)  # doctest: +SKIP
    """
    base = optional_module("river.base", "a model for river", "'tensorcep[river]'")
    modes = list(modes)
    check_mode_count(modes)
    check_int("batch_size", batch_size)

    class Regressor(_OneByOne, base.Regressor):  # type: ignore[misc, name-defined]
        """A CP model of real values or counts."""

        def predict_one(self, x: dict[Any, Any]) -> float:
            """The predictive mean; 0 before the first batch is learned."""
            return self._predicted(x) or 0.0

    class Classifier(_OneByOne, base.Classifier):  # type: ignore[misc, name-defined]
        """A CP model of labels."""

        def predict_proba_one(self, x: dict[Any, Any]) -> dict[bool, float]:
            """The probabilities of False and True; empty before the first batch is learned."""
            p = self._predicted(x)
            return {} if p is None else {False: 1.0 - p, True: p}

        def predict_one(self, x: dict[Any, Any]) -> bool | None:
            """The more probable label; None before the first batch is learned."""
            p = self._predicted(x)
            return None if p is None else p > 0.5

    chosen = Classifier if hasattr(model, "predict_proba") else Regressor
    return chosen(model, modes, batch_size)
