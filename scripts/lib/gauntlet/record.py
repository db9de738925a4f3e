"""What the parts of the gauntlet hand to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """One data set, split, with what its maker knows of the truth.

    Attributes
    ----------
    train : SparseTensor, or list of 2-D arrays with NaN where a cell is hidden
    coords : (n, K) int64
        Test cells; of matrices (number of the matrix, row, column).
    y : (n,) float64
        Test values.
    truth : (n,) float64, optional
        What the maker would predict: expected values, probabilities of a one, or log masses of the test counts.
    weights : (n,) float64, optional
        Of the test labels, where their share of ones is not that of the training entries.
    unit : (n,) float64
        Errors of values are measured in these.
    """

    train: Any
    coords: np.ndarray
    y: np.ndarray
    truth: np.ndarray | None = None
    weights: np.ndarray | None = None
    unit: np.ndarray | float = 1.0


class Cell(NamedTuple):
    """One problem of the gauntlet.

    Attributes
    ----------
    name : str
    model : {"cp", "stream", "pca", "fa", "gfa", "cmf"}
        Whose default is fitted.
    observed : {"values", "labels", "counts"}
    size : {"smoke", "small", "large"}
    make : callable
        The Problem of a seed.
    batches : int
        Of a stream.
    """

    name: str
    model: str
    observed: str
    size: str
    make: Callable[[int], Problem]
    batches: int = 10


class Answer(NamedTuple):
    """What a fitted model says of the test cells.

    Attributes
    ----------
    prediction : (n,) float64
        Expected values, probabilities of a one, or log masses of the test counts.
    below : (m,) float64, optional
        Predictive probability below each of m test values, ties broken at random: uniform if calibrated.
    chosen : str
        What the default came to.
    """

    prediction: np.ndarray
    below: np.ndarray | None
    chosen: str
