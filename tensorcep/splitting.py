"""Entries of tables and tensors held out."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tensorcep.core.checks import check_columns
from tensorcep.entries.splitting import held_out, way_of
from tensorcep.entries.tables import as_frame
from tensorcep.entries.tensor import SparseTensor


def train_test_split(
    data: Any,
    test_size: float = 0.2,
    random_state: Any = None,
    *,
    by: str = "entry",
    mode: Any = None,
    times: Any = None,
) -> tuple[Any, Any]:
    """Hold a part of the entries of a table, or of a tensor, out: at random, by time, of each row, or whole rows.

    Parameters
    ----------
    data : table or SparseTensor
        Of a table all columns are kept: weights, exposures, times.
    test_size, random_state, by : as in `SparseTensor.train_test_split`
    mode : column of a table, or mode of a tensor, optional
        The mode of ``by="row"`` and ``by="group"``, such as the user.
    times : column of a table, mode of a tensor, or array-like of shape (N,), optional
        Of ``by="time"``, and of ``by="row"`` if you like.

    Returns
    -------
    train, test : DataFrame or SparseTensor
        With the entries in their order.

    Raises
    ------
    ValueError, TypeError
        If a parameter is not allowed, or nothing would be left to train on, or to test on.

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorcep import train_test_split
    >>> log = pd.DataFrame({"user": ["u1", "u1", "u2", "u2"], "item": list("abab"), "day": [1, 2, 2, 3]})
    >>> train, test = train_test_split(log, 1, by="row", mode="user", times="day")
    >>> test["item"].tolist()
    ['b', 'b']
    """
    if isinstance(data, SparseTensor):
        return data.train_test_split(test_size, random_state, by=by, mode=mode, times=times)
    table = as_frame(data)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"data must be a table or a SparseTensor; got {type(data).__name__}.")

    def column_of(name: Any) -> Any:
        if name is None:
            return table.index
        check_columns(table.columns, [name], "the table")
        return table[name]

    parts = held_out(way_of(by, mode, times, column_of), len(table), test_size, random_state)
    train, test = (table.iloc[rows] for rows in parts)
    return train, test
