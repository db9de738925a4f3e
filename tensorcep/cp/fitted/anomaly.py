"""How odd observations are under what the model predicts of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_values, fail_value
from tensorcep.cp.fitted.forecast import placed
from tensorcep.cp.fitted.model import FittedModel
from tensorcep.cp.fitted.predict import judged_entries, observed_logpdf, observed_moments, observed_tails
from tensorcep.cp.inputs.coordinates import coords_to_predict, names_of, placed_rows
from tensorcep.cp.posterior import Components
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID
from tensorcep.likelihoods.base import Likelihood

SCORES = ("value", "mean", "sd", "surprise", "lower_tail", "upper_tail", "unseen")


def anomaly_score(
    model: FittedModel, X: Any, y: Any = None, *, modes: Any = None, value: Any = UNSAID, **extent: Any
) -> pd.DataFrame:
    """How odd each observation is; in a stream, of a batch before it is learned."""
    fit, likelihood = model.fit, model.likelihood_of_new
    X, y, extents = judged_entries(model, X, y, modes, value, extent, empty=True)
    if y is None:
        fail_value("anomaly_score needs what was observed: give y, or the column that holds it as value=.")
    coords = coords_to_predict(X, fit.labels)
    values = likelihood.check_y(check_values(fit.observation.coded(y), len(coords), name="y"))
    found = placed(model, X)
    rows, unseen = placed_rows(found.coords, fit.posterior, fit.described)
    if model.spec.unknown == "error":
        model.packed(found.coords)  # which refuses them
    if isinstance(X, pd.DataFrame):
        frame = X.reset_index(drop=True)
    elif isinstance(X, SparseTensor):
        frame = X.to_pandas(value=SCORES[0]).drop(columns=SCORES[0]).set_axis(names_of(X.labels), axis=1)
    else:
        frame = pd.DataFrame(coords, columns=names_of(fit.labels))
    shown = np.asarray(fit.observation.coded(y), dtype=np.float64)
    return with_scores(frame, (shown, *scored(likelihood, found.belief, found.rows(rows), values, extents), unseen))


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
