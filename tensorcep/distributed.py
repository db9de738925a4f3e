"""Fits and predictions on the workers of a Dask cluster, fits to the bits of one process."""

from __future__ import annotations

import glob
import importlib
import os
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import fail_value
from tensorcep.core.cluster import TIMEOUT, ClusterError, dask_module
from tensorcep.cp.estimators.base import BaseCP
from tensorcep.cp.workers.checkpoint import EVERY, fit_on_workers
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
    """Fit a CP estimator on the workers of a Dask cluster.

    The plan is that of ``model.fit``, quick fits, chains and entries left out included, and so are the bits of its
    result, on any number of workers, for every method but "wopt", with every likelihood that it has. This process holds
    entries and rows, too; entries go to the workers by files, and rows as they change. Rows that workers draw, or
    update, they have from each other. Where all workers are on the machine of this process they go through its memory
    (``/dev/shm``).

    By "gibbs", "pg-gibbs", "vmp" and "pg-vb" workers do the updates of rows, a range of each mode at a time. Where a
    likelihood needs an auxiliary variable per entry they draw it, or compute the squares that it follows from; what it
    says goes through this process, 16 bytes per entry for each mode. Chains of real values are drawn at the same time.
    Counts by "gibbs", the default up to 100,000, are drawn by this process alone, in seconds, and not stored.

    By "cep" and "laplace" they compute the messages, of at most 16 chunks of the entries, and the sums come back.
    Messages of entries, if the method has them, stay with the workers, in memory and in files of the folder that all of
    them see: of two versions while one follows the other, and of each start as it was stored.

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
    return fit_on_workers(model, X, y, True, client, checkpoint, every, n_parts, timeout, modes=modes, value=value)


def predict(model: Any, frame: Any) -> Any:
    """Predictions of the lines of a dask.dataframe, or of parquet files, made by the workers when they are asked for.

    Parameters
    ----------
    model : fitted CP estimator
    frame : dask.dataframe.DataFrame, or path
        With a column for every mode, found by their names; others are ignored. A path is of a folder of parquet files,
        or a pattern such as ``"new/*.parquet"``; without an active client, threads of this process read them.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with the index and partitions of the frame. Of a classifier the columns are "label" and, by their names,
        the probabilities of all classes; of other models "mean" and "std".

    Raises
    ------
    TypeError, ValueError
        If the model has no such predictions, or `frame` is no table of Dask.
    FileNotFoundError
        If there is no file at the path.

    Examples
    --------
    >>> from tensorcep import distributed
    >>> table = distributed.predict(model, "new/*.parquet")  # doctest: +SKIP
    >>> table.to_parquet("predictions")  # doctest: +SKIP
    """
    dask_module("predictions of a dask.dataframe")
    check_is_fitted(model)
    if not isinstance(model, BaseCP):
        raise TypeError(f"model must be a CP estimator; got {type(model).__name__}.")
    if isinstance(frame, (str, os.PathLike)):
        path = os.fspath(frame)
        names = sorted(glob.glob(os.path.join(glob.escape(path), "*.parquet") if os.path.isdir(path) else path))
        if not names:
            raise FileNotFoundError(f"there is no parquet file at {path!r}; give a folder with some, or a pattern.")
        frame = importlib.import_module("dask.dataframe").read_parquet(names)
    if not is_of(frame, "dask"):
        fail_value(f"frame must be a dask.dataframe, or a path; got {type(frame).__name__}; use model.predict.")
    meta = _predicted(frame._meta.iloc[:0], model)
    return frame.map_partitions(_predicted, importlib.import_module("dask").delayed(model, pure=True), meta=meta)


def _predicted(part: pd.DataFrame, model: Any) -> pd.DataFrame:
    """The predictions of some lines."""
    none = not len(part)
    if not hasattr(model, "predict_proba"):
        mean, std = np.zeros((2, 0)) if none else model.predict(part, return_std=True)
        return pd.DataFrame({"mean": mean, "std": std}, index=part.index)
    classes = np.asarray(model.classes_)
    shares = np.zeros((0, len(classes))) if none else model.predict_proba(part)
    table = pd.DataFrame(shares, columns=[str(name) for name in classes], index=part.index)
    table.insert(0, "label", classes[:0] if none else model.predict(part))
    return table
