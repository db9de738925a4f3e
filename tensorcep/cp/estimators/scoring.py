"""What `score` of the CP estimators takes, from a user or from scikit-learn's cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score

from tensorcep.core.checks import check_unmasked, fail_value, warn_user
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.inputs.coordinates import coords_to_predict, names_of, placed_rows
from tensorcep.cp.targets.levels import check_none_missing
from tensorcep.entries.tables import UNSAID, split_observed
from tensorcep.entries.tensor import SparseTensor

# The share of entries in unseen rows from which on a score says little of the seen ones.
MANY_UNSEEN = 0.5


def share_predicted(model: Any, X: Any, y: np.ndarray, sample_weight: Any) -> float:
    """The share of labels y of the entries X that are predicted; labels may be fractions, unlike scikit-learn's."""
    check_none_missing(y)
    predicted = model.predict(X)
    if predicted.dtype.kind == "f" and y.dtype.kind in "biuf" and y.shape == predicted.shape:
        y, predicted = y == predicted, np.ones(len(y), dtype=bool)
    return float(accuracy_score(y, predicted, sample_weight=sample_weight))


def scored_entries(
    model: CPPredictions, X: Any, y: Any, modes: Any = None, value: Any = UNSAID
) -> tuple[Any, np.ndarray]:
    """Entries to score and their values, which a SparseTensor and a table with one more column than modes hold.

    Warns if most of them touch rows without training entries, as folds do that are not shuffled.

    Raises
    ------
    ValueError
        If there are no values, or two sets of them.
    """
    model._fitted_belief()
    if isinstance(X, SparseTensor) and y is not None:
        fail_value("y must be left out when X is a SparseTensor, which holds its own values.")
    X, y = split_observed(names_of(model.labels_), X, y, modes, value)
    if y is None:
        fail_value("y must hold one value per row of X; got None (or pass a SparseTensor as X).")
    _, unseen = placed_rows(coords_to_predict(X, model.labels_), model.posterior_)
    if unseen.size and unseen.mean() > MANY_UNSEEN:
        warn_user(
            f"{int(unseen.sum())} of {unseen.size} scored entries touch rows without training entries; where they are "
            "a fold of a cross-validation, shuffle it: cv=KFold(5, shuffle=True), or tensor.kfold(5).",
            UserWarning,
        )
    return X, np.asarray(check_unmasked(y, "y"))
