"""What `score` of the CP estimators takes, from a user or from scikit-learn's cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_unmasked, fail_value, warn_user
from tensorcep.cp.estimators.entries import coords_to_predict, placed_rows
from tensorcep.cp.estimators.modes import names_of
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.entries.tables import UNSAID, as_frame, split_like
from tensorcep.entries.tensor import SparseTensor

# The share of entries in unseen rows from which on a score says little of the seen ones.
MANY_UNSEEN = 0.5


def scored_entries(model: CPPredictions, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Entries to score and their values, which a SparseTensor and a table with one more column than modes hold.

    Warns if most of them touch rows without training entries, as folds do that are not shuffled.

    Raises
    ------
    ValueError
        If there are no values, or two sets of them.
    """
    model._fitted_belief()
    X = as_frame(X)
    if isinstance(X, SparseTensor):
        if y is not None:
            fail_value("y must be left out when X is a SparseTensor, which holds its own values.")
        y = X.values
    elif y is None and isinstance(X, pd.DataFrame):
        X, y = split_like(names_of(model.labels_), X, None, None, UNSAID)
    elif y is None:
        fail_value("y must hold one value per row of X; got None (or pass a SparseTensor as X).")
    _, unseen = placed_rows(coords_to_predict(X, model.labels_), model.posterior_)
    if unseen.size and unseen.mean() > MANY_UNSEEN:
        warn_user(
            f"{int(unseen.sum())} of {unseen.size} scored entries touch rows without training entries; where they are "
            "a fold of a cross-validation, shuffle it: cv=KFold(5, shuffle=True), or tensor.kfold(5).",
            UserWarning,
        )
    return X, np.asarray(check_unmasked(y, "y"))
