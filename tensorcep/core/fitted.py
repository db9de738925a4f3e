"""What fitted models of tensors and of matrices answer alike: figures, reports, comparisons and the shell ask this."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd


class Part(NamedTuple):
    """The tensor, or one of the matrices, that a model was fitted to."""

    name: Any
    modes: list[Any]  # names of the modes; of a matrix those of its rows and of its columns
    labels: tuple[Any, ...]  # of the rows of each mode; None of indices
    shape: tuple[int, ...]
    kind: str  # {"values", "labels", "levels", "counts"}: what is observed
    # (n,) or None: of the columns of a matrix, the limits at which lower values are censored
    lower_limit: np.ndarray | None = None
    seen: tuple[np.ndarray, ...] = ()  # the rows of each mode that have entries
    times: tuple[np.ndarray | None, ...] = ()  # where the rows of a mode lie that is a series


class Predictive(Protocol):
    """The laws of new observations at n entries."""

    @property
    def mean(self) -> np.ndarray: ...  # (n,); of labels 0 and 1 the probability of 1
    @property
    def sd(self) -> np.ndarray: ...  # (n,)
    @property
    def has_interval(self) -> bool: ...  # of observations: not of labels, nor of point estimates
    def interval(self, coverage: float) -> np.ndarray: ...  # central intervals, (n, 2)
    def holds(self, y: np.ndarray, coverage: float) -> np.ndarray: ...  # whether these hold each observation, (n,)
    def log_score(self, y: np.ndarray) -> np.ndarray: ...  # log density or probability of observations, (n,)


class Fitted(Protocol):
    """A fitted model of one tensor, or of one or several matrices."""

    @property
    def parts_(self) -> tuple[Part, ...]: ...
    @property
    def n_chains_(self) -> int: ...
    def predictive(self, X: Any, part: Any = 0) -> Predictive: ...
    def latent_draws(self, X: Any, part: Any = 0) -> np.ndarray: ...
    def anomaly_score(self, X: Any, y: Any = None) -> pd.DataFrame: ...
    def variance_explained(self) -> pd.DataFrame: ...
