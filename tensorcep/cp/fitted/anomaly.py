"""How odd observations are under what the model predicts of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_values, fail_value
from tensorcep.cp.fitted.forecast import placed
from tensorcep.cp.fitted.model import FittedModel
from tensorcep.cp.fitted.predict import belief_at, judged_entries, observed_logpdf, observed_moments, observed_tails
from tensorcep.cp.inputs.coordinates import coords_to_predict, names_of, placed_rows
from tensorcep.cp.posterior.components import Components
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID
from tensorcep.likelihoods.base import Likelihood

SCORES = ("value", "mean", "sd", "surprise", "lower_tail", "upper_tail", "unseen")


def anomaly_score(
    model: FittedModel, X: Any, y: Any = None, *, modes: Any = None, value: Any = UNSAID, **extent: Any
) -> pd.DataFrame:
    """How odd each observation is; in a stream, of a batch before it is learned."""
    likelihood, names = model.likelihood_of_new, names_of(model.fit.labels)
    X, y, extents = judged_entries(model, X, y, modes, value, extent, empty=True)
    if y is None:
        fail_value("anomaly_score needs what was observed: give y, or the column that holds it as value=.")
    coords = coords_to_predict(X, model.fit.labels)
    values = likelihood.check_y(check_values(model.fit.observation.coded(y), len(coords), name="y"))
    found = placed(model, X)
    belief, (rows, unseen) = found.belief, placed_rows(found.coords, model.fit.posterior, model.fit.described)
    rows = found.rows(rows)
    if model.spec.unknown == "error":
        belief_at(model, X)
    frame = _cells_frame(model, X, coords, names)
    shown = np.asarray(model.fit.observation.coded(y), dtype=np.float64)
    return with_scores(frame, (shown, *scored(likelihood, belief, rows, values, extents), unseen))


def _cells_frame(model: FittedModel, X: Any, coords: np.ndarray, names: list[Any]) -> pd.DataFrame:
    """The modes of the entries, as they were given."""
    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True)
    if isinstance(X, SparseTensor):
        found = names_of(X.labels)
        return X.to_pandas(value=SCORES[0]).drop(columns=SCORES[0]).set_axis(found, axis=1)
    return pd.DataFrame(coords, columns=names)


def scored(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, values: np.ndarray, extents: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Mean, sd, surprise and both tails of values (n,) of the likelihood's coding, at packed rows (n, K)."""
    mean, variance = observed_moments(likelihood, belief, rows, extent=extents)
    surprise = -observed_logpdf(likelihood, belief, rows, values, extent=extents) - likelihood.log_slopes(values)
    return mean, np.sqrt(variance), surprise, *observed_tails(likelihood, belief, rows, values, extents)


def with_scores(frame: pd.DataFrame, numbers: tuple[np.ndarray, ...]) -> pd.DataFrame:
    """A frame of modes with the columns of SCORES."""
    names = list(frame.columns)
    for name, numbers_of in zip(SCORES, numbers, strict=True):
        frame[f"predicted_{name}" if name in names else name] = numbers_of
    return frame
