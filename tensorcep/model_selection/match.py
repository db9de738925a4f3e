"""How alike two sets of factors are, whatever the order, signs and scales of their components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from tensorcep.core.checks import check_choice, check_int, check_random_state, fail_value
from tensorcep.core.cluster import Cluster, cluster_of

TINY = np.finfo(float).tiny


def factor_match_score(one: Any, other: Any, *, weights: bool = True) -> float:
    """How alike the components of two decompositions are: 1 where they are the same up to order, signs and scales.

    Of matched components the product over modes of the cosines, times ``1 - |a - b| / max(a, b)`` of their weights if
    these count, averaged; the match is the one with the largest mean. Where one has more components than the other,
    those that are left over count as 0.

    Parameters
    ----------
    one, other : fitted CP estimators, CPTensors of TensorLy, or lists of arrays (n_k, R)
        Of an estimator the components of all modes count, those that are switched off do not.
    weights : bool, default=True

    References
    ----------
    Acar, Dunlavy, Kolda and Morup (2011), Scalable tensor factorizations for incomplete data, sec. 4.
    """
    a, b = _parts(one), _parts(other)
    shapes = [[len(factor) for factor in factors] for factors in (a, b)]
    if shapes[0] != shapes[1]:
        fail_value(f"the factors must have as many rows in every mode; got {shapes[0]} and {shapes[1]}.")
    norms = [np.stack([np.linalg.norm(factor, axis=0) for factor in factors]) for factors in (a, b)]
    if 0 in (norms[0].shape[1], norms[1].shape[1]):
        fail_value("there must be a component of all modes on both sides; got none.")
    match = np.ones((norms[0].shape[1], norms[1].shape[1]))
    for left, right, n, m in zip(a, b, *norms, strict=True):
        match *= np.abs(left.T @ right) / np.maximum(np.outer(n, m), TINY)
    if weights:
        w, v = (norm.prod(axis=0) for norm in norms)
        match *= 1.0 - np.abs(w[:, None] - v) / np.maximum(np.maximum(w[:, None], v), TINY)
    rows, columns = linear_sum_assignment(match, maximize=True)
    return float(match[rows, columns].sum() / max(match.shape))


def _parts(given: Any) -> list[np.ndarray]:
    """Factors (n_k, R) of the components of all modes."""
    if hasattr(given, "column_modes_"):
        every = [len(modes) == len(given.shape_) for modes in given.column_modes_]
        shares = given.relevance_ * every
        kept = shares > 1e-3 * shares.max(initial=0.0)
        return [np.asarray(factor)[:, kept] for factor in given.factors_]
    if hasattr(given, "weights") and hasattr(given, "factors"):
        first, *rest = given.factors
        return [np.asarray(first) * np.asarray(given.weights), *(np.asarray(factor) for factor in rest)]
    if not isinstance(given, Sequence) or not all(np.ndim(factor) == 2 for factor in given):
        fail_value(f"factors must be a fitted CP estimator, a CPTensor or a list of 2-d arrays; got {given!r}.")
    return [np.asarray(factor, dtype=float) for factor in given]


def compared(
    model: Any, X: Any, split: Any, score: Any, by: str, n_repeats: int, random_state: Any, client: Any = None
) -> pd.DataFrame:
    """The table of `tensorcep.replicability`, of an estimator of any family.

    Parameters
    ----------
    split : callable
        ``split(0.5, rng)``: two halves of the entries.
    score : callable
        Of two fits.
    client : distributed.Client, optional
        Whose workers make the fits.
    """
    check_choice("by", by, ("seeds", "halves"))
    n, rng = check_int("n_repeats", n_repeats, 2 if by == "seeds" else 1), check_random_state(random_state)

    halves = [split(0.5, rng) for _ in range(n)] if by == "halves" else []
    entries = [half for both in halves for half in both] if halves else [X] * n
    models = [clone(model).set_params(random_state=int(rng.integers(2**31))) for _ in entries]
    fits = _all_fitted(models, entries, cluster_of(client))
    if by == "seeds":
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    else:
        pairs = [(2 * i, 2 * i + 1) for i in range(n)]
    scores = [(i, j, score(fits[i], fits[j])) for i, j in pairs]
    return pd.DataFrame(scores, columns=["first", "second", "score"])


def _all_fitted(models: list[Any], entries: list[Any], cluster: Cluster | None) -> list[Any]:
    """The models, each fitted to its entries."""
    if cluster is None:
        return [_fitted(*both) for both in zip(models, entries, strict=True)]
    held = {id(one): cluster.put(one) for one in entries}
    calls = [(one, held[id(own)]) for one, own in zip(models, entries, strict=True)]
    return [told.value for told in cluster.run(_fitted, calls, "replicability", patient=True)]


def _fitted(model: Any, entries: Any) -> Any:
    return model.fit(entries)
