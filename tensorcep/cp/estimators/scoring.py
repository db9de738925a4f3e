"""The share of labels that an estimator predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score

from tensorcep.cp.targets.levels import check_none_missing


def share_predicted(model: Any, X: Any, y: np.ndarray, sample_weight: Any) -> float:
    """The share of labels y of the entries X that are predicted; labels may be fractions, unlike scikit-learn's."""
    check_none_missing(y)
    predicted = model.predict(X)
    if predicted.dtype.kind == "f" and y.dtype.kind in "biuf" and y.shape == predicted.shape:
        y, predicted = y == predicted, np.ones(len(y), dtype=bool)
    return float(accuracy_score(y, predicted, sample_weight=sample_weight))
