"""Lower limits of real matrices: one for all, one for each matrix, or one for each of its columns."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tensorcep.core.checks import check_values, fail_value


def limits_of(given: Any, matrices: list[tuple[int, str]]) -> list[np.ndarray | None]:
    """The limits (D,) of every matrix, of which columns and likelihood are given; None where a matrix has none.

    Raises
    ------
    ValueError, TypeError
        If they are not as many as matrices or columns, not finite, or of a matrix that is not real, or there is none.
    """
    if given is None:
        return [None] * len(matrices)
    one = isinstance(given, numbers.Real)
    if one and not any(likelihood == "gaussian" for _, likelihood in matrices):
        fail_value(f"lower_limit is for 'gaussian' matrices; got {given:g} and none of these; leave it out.")
    each = [given if likelihood == "gaussian" else None for _, likelihood in matrices] if one else list(given)
    if len(each) != len(matrices):
        fail_value(
            f"lower_limit must be a number, or one item (a number, one for each column, or None) for each of "
            f"{len(matrices)} matrices; got {len(each)} items."
        )
    return [
        None if limit is None else _checked(limit, n, likelihood, m)
        for m, (limit, (n, likelihood)) in enumerate(zip(each, matrices, strict=True))
    ]


def _checked(limit: Any, n_columns: int, likelihood: str, m: int) -> np.ndarray:
    if likelihood != "gaussian":
        fail_value(f"lower_limit is for 'gaussian' matrices; matrix {m} is {likelihood!r}; give None for it.")
    values = np.full(n_columns, float(limit)) if isinstance(limit, numbers.Real) else limit
    return check_values(values, n_columns, name=f"lower_limit of {m}")
