"""Fits and predictions on the workers of a Dask cluster, fits to the bits of one process."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import fail_value
from tensorcep.core.cluster import TIMEOUT, ClusterError, dask_module
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.workers.fitting import EVERY, OnWorkers, fit_on_workers
from tensorcep.entries.tables import UNSAID, is_of

__all__ = ["ClusterError", "fit", "predict"]


def fit(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    modes: Any = None,
    value: Any = UNSAID,
    client: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = EVERY,
    n_parts: int | None = None,
    timeout: float = TIMEOUT,
) -> Any:
    """Fit a CP estimator with the row updates on the workers of a Dask cluster.

    The plan is that of ``model.fit``, pilots, chains and entries left out included, and so are the bits of its result,
    on any number of workers. For methods "gibbs", "pg-gibbs", "vmp" and "pg-vb", with every likelihood that they have:
    the methods of "auto" but for little memory. This process holds entries and rows, too; entries go to the workers by
    files, of which each range of rows of each mode has one, and rows as they change. Where a likelihood needs an
    auxiliary variable per entry the workers draw it, or compute the squares that it follows from; what it says goes
    through this process, 16 bytes per entry for each mode.

    Parameters
    ----------
    model : CPRegressor, CPClassifier, CPCountRegressor or CPOrdinalRegressor
        It is fitted, and returned.
    X, y, modes, value : entries
        As in ``model.fit``, or a dask.dataframe, which the workers read. Its labels are sorted, whatever the order of
        its files; the order of its lines matters where a cell has several.
    client : distributed.Client, optional
        Of the cluster; default: the active one.
    checkpoint : path of a folder, optional
        Which this process and all workers see: the entries of the workers, and the state of the fit every few sweeps.
        The same call goes on with a fit that was ended, however, to the same bits; after a fit it gives the same result
        again. Without it entries are in a temporary folder, which workers on this machine see.
    every : int, default=5
        Sweeps between two states that are stored.
    n_parts : int, optional
        Ranges that each mode is cut into; default: a power of two, by the number of entries alone. Nothing depends on
        it but the time.
    timeout : float, default=300
        Seconds without progress after which the fit ends with a sentence that says which task waits for what.

    Returns
    -------
    model

    Raises
    ------
    ImportError
        If Dask is not installed.
    TypeError, ValueError
        On what is not allowed, or cannot be fitted by workers.
    ClusterError
        If the workers make no progress, or the scheduler is gone. What was stored stays.

    Examples
    --------
    >>> from distributed import Client  # doctest: +SKIP
    >>> from tensorcep import CPRegressor, distributed
    >>> client = Client("tcp://scheduler:8786")  # doctest: +SKIP
    >>> frame = dask.dataframe.read_parquet("ratings/*.parquet")  # doctest: +SKIP
    >>> how = {"modes": ["user", "item", "day"], "value": "stars", "checkpoint": "folder"}
    >>> model = distributed.fit(CPRegressor(), frame, client=client, **how)  # doctest: +SKIP
    """
    if not isinstance(model, BaseCP):
        raise TypeError(f"model must be a CP estimator; got {type(model).__name__}.")
    how = OnWorkers(client, checkpoint, every, n_parts, timeout)
    return fit_on_workers(model, X, y, how, strict=True, modes=modes, value=value)


def predict(model: Any, frame: Any) -> Any:
    """Predictions of the lines of a dask.dataframe, made by the workers when they are asked for.

    Parameters
    ----------
    model : fitted CP estimator
        With a mean and a standard deviation of what it predicts: CPRegressor, CPCountRegressor.
    frame : dask.dataframe.DataFrame
        With a column for every mode, found by their names; others are ignored.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with the index and partitions of the frame and the columns "mean" and "std".

    Raises
    ------
    TypeError, ValueError
        If the model has no such predictions, or `frame` is no table of Dask.

    Examples
    --------
    >>> from tensorcep import distributed
    >>> table = distributed.predict(model, frame)  # doctest: +SKIP
    >>> table.to_parquet("predictions")  # doctest: +SKIP
    """
    dask_module("predictions of a dask.dataframe")
    check_is_fitted(model)
    if not isinstance(model, BaseCP) or hasattr(model, "predict_proba"):
        raise TypeError(f"model must predict means and standard deviations; got {type(model).__name__}.")
    if not is_of(frame, "dask"):
        fail_value(f"frame must be a dask.dataframe; got {type(frame).__name__}; use model.predict.")
    meta = pd.DataFrame({"mean": np.zeros(0), "std": np.zeros(0)}, index=frame._meta.index[:0])
    held = importlib.import_module("dask").delayed(model, pure=True)
    return frame.map_partitions(_predicted, held, meta=meta)


def _predicted(part: pd.DataFrame, model: Any) -> pd.DataFrame:
    mean, std = (np.zeros(0), np.zeros(0)) if not len(part) else model.predict(part, return_std=True)
    return pd.DataFrame({"mean": mean, "std": std}, index=part.index)
