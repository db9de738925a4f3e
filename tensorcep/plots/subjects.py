"""What figures ask of a fitted model, whichever family it is of: tables of weights, shares, and observed cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import fail_value
from tensorcep.cp.fitted.components import chain_draws
from tensorcep.cp.inputs.coordinates import by_mode, labels_at, mode_of, names_of, rows_of
from tensorcep.entries.labels import Labels
from tensorcep.factor_models.base import FactorModel
from tensorcep.factor_models.entity_labels import observed_cells


class Panel(NamedTuple):
    """The weights of the rows of a mode, of an entity or of a matrix's columns.

    Attributes
    ----------
    name : hashable
    weights : DataFrame
        A column of rows first; then at least component, mean, lower and upper.
    labels : Labels or None
    """

    name: Any
    weights: pd.DataFrame
    labels: Labels | None


class Found(NamedTuple):
    """The components that are worth a figure: their numbers, the largest first, their shares (n,), and panels."""

    components: list[int]
    shares: list[float]
    panels: list[Panel]


def is_of_matrices(model: Any) -> bool:
    """Whether a model is one of matrices."""
    return isinstance(model, FactorModel)


def found_by(model: Any) -> Found:
    """The components of several modes of a CP model, or those of a factor model, with the weights of all rows.

    Raises
    ------
    ValueError
        If there is none.
    """
    check_is_fitted(model, "posterior_")
    if is_of_matrices(model):
        return _found_in_matrices(model)
    table = model.variance_explained()
    table = table[[len(model.column_modes_[r]) > 1 for r in table["component"]]]
    if table.empty:
        fail_value("the figure needs a component of several modes; the model has main effects alone.")
    names = names_of(model.labels_)
    panels = [Panel(name, model.components(name), own) for name, own in zip(names, model.labels_, strict=True)]
    return Found(table["component"].tolist(), table["share"].tolist(), panels)


def _found_in_matrices(model: Any) -> Found:
    shares = model.variance_explained().mean(axis=0)
    entities, known, links = list(getattr(model, "_names", [])), model._entity_labels, model._links
    matrices = model.matrix_names_
    loadings = [Panel(name, model.components(m), known[links[m].col]) for m, name in enumerate(matrices)]
    if hasattr(model, "scores_"):  # one matrix, or views of the same rows
        panels = [Panel("rows", model.scores_frame(0), known[0]), *loadings]
    else:
        panels = [Panel(name, model.scores_frame(name), known[e]) for e, name in enumerate(entities)]
    if entities == []:
        panels[1] = panels[1]._replace(name="columns")
    order = np.argsort(-shares.to_numpy(), kind="stable")
    return Found(order.tolist(), shares.to_numpy()[order].tolist(), panels)


class OfMatrix:
    """One matrix of a fitted factor model, with what figures of residuals and forecasts ask of a CP model."""

    def __init__(self, model: Any, matrix: Any):
        check_is_fitted(model, "posterior_")
        self.model, self.m = model, model._position(matrix)
        link = model._links[self.m]
        entities = list(getattr(model, "_names", [])) or ["row", "column"]
        known = [model._entity_labels[e] for e in (link.row, link.col)]
        sides = [str(entities[e]) for e in (link.row, link.col)]
        self.names = ["row" if sides[0] == "rows" else sides[0], "column" if " of " in sides[1] else sides[1]]
        self.shape_, self.labels_ = link.matrix.cells.shape, tuple(known)
        self.is_gaussian = link.likelihood == "gaussian"

    def anomaly_score(self, X: Any, y: Any = None) -> pd.DataFrame:
        """The observed cells with what is predicted of them: columns of both modes, value, mean, sd."""
        tensor = observed_cells(X)
        if tensor.shape != tuple(self.shape_):
            fail_value(f"X must be the matrix of the fit, of shape {tuple(self.shape_)}; got {tensor.shape}.")
        mean, sd = self.model.predict_cells(tensor.coords, self.m, return_std=True)
        rows = {name: labels_at(self.labels_, k, tensor.coords[:, k]) for k, name in enumerate(self.names)}
        return pd.DataFrame({**rows, "value": tensor.values, "mean": mean, "sd": sd})

    def predict(self, cells: np.ndarray) -> np.ndarray:
        """Predictive means of coordinates (n, 2)."""
        return np.asarray(self.model.predict_cells(cells, self.m))

    def predict_interval(self, cells: np.ndarray, level: float) -> np.ndarray:
        """Central intervals (n, 2) of new observations, those of a Gaussian."""
        mean, sd = self.model.predict_cells(cells, self.m, return_std=True)
        half = float(ndtri(0.5 + 0.5 * level)) * sd
        return np.stack([mean - half, mean + half], axis=1)


class OfTensor:
    """A fitted CP model, with the names of its modes."""

    def __init__(self, model: Any):
        check_is_fitted(model, "posterior_")
        self.model, self.names = model, names_of(model.labels_)
        self.shape_, self.labels_ = model.shape_, model.labels_

    def anomaly_score(self, X: Any, y: Any = None) -> pd.DataFrame:
        """As that of the model."""
        scores: pd.DataFrame = self.model.anomaly_score(X, y)
        return scores

    def predict(self, cells: np.ndarray) -> np.ndarray:
        """Predictive means of coordinates (n, K)."""
        return np.asarray(self.model.predict(self._given(cells)))

    def predict_interval(self, cells: np.ndarray, level: float) -> np.ndarray:
        """Central intervals (n, 2) of new observations."""
        return np.asarray(self.model.predict_interval(self._given(cells), level))

    def _given(self, cells: np.ndarray) -> Any:
        if all(found is None for found in self.labels_):
            return cells
        return pd.DataFrame({name: labels_at(self.labels_, j, cells[:, j]) for j, name in enumerate(self.names)})


Subject = OfMatrix | OfTensor


def subject_of(model: Any, matrix: Any = 0) -> Subject:
    """What a figure of cells draws."""
    return OfMatrix(model, matrix) if is_of_matrices(model) else OfTensor(model)


def position(subject: Subject, mode: Any) -> int:
    """Which mode a name or a position is."""
    if mode in subject.names and not isinstance(mode, bool):
        return subject.names.index(mode)
    return mode_of(subject.labels_, mode)


def fixed_rows(subject: Subject, k: int, given: Mapping[Any, Any]) -> tuple[np.ndarray, dict[int, Any]]:
    """Coordinates (n, K) of the cells along mode k where the others are given, and what is given by position.

    Raises
    ------
    ValueError
        If a mode is not given.
    """
    fixed = by_mode(subject.labels_, {position(subject, name): row for name, row in given.items()})
    missing = [subject.names[j] for j in range(len(subject.names)) if j not in fixed and j != k]
    if missing:
        fail_value(f"given must name a row of every other mode; there is none of {', '.join(map(repr, missing))}.")
    n, shape = subject.shape_[k], subject.shape_
    rows = [np.arange(n) if j == k else np.repeat(rows_of(subject.labels_, shape, j, fixed[j]), n)
            for j in range(len(shape))]  # fmt: skip
    return np.stack(rows, axis=1), fixed


def chains_of(model: Any, X: Any, matrix: Any = 0) -> np.ndarray:
    """Draws (chains, draws) of the latent value of one cell.

    Raises
    ------
    ValueError
        If the method draws none, or there is not one cell.
    """
    check_is_fitted(model, "posterior_")
    if is_of_matrices(model):
        draws = None if model.posterior_.draws is None else model._latent_draws(X, matrix)
    else:
        draws = chain_draws(model._fitted, X) if model._result.belief.n_chains else None
    if draws is None:
        method = model.method_ if hasattr(model, "method_") else model.method
        fail_value(f"the figure needs draws, but method {method!r} draws none; use method='gibbs'.")
    if draws.shape[2] != 1:
        fail_value(f"X must be one entry; got {draws.shape[2]}.")
    return np.asarray(draws[:, :, 0])
