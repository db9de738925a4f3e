"""How alike the components of two fits are, and how well other seeds, and halves of the entries, find the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from tensorcep.core.checks import check_choice, check_int, check_random_state, fail_value
from tensorcep.core.cluster import Cluster
from tensorcep.factor_models.base import FactorModel
from tensorcep.model_selection.compare import cells_of_matrices

TINY = np.finfo(float).tiny


def factor_match_score(one: Any, other: Any, *, weights: bool = True) -> float:
    """How alike the components of two decompositions are: 1 where they are the same up to order, signs and scales.

    Of matched components the product over modes of the cosines, times ``1 - |a - b| / max(a, b)`` of their weights if
    these count, averaged; the match is the one with the largest mean. Where one has more components than the other,
    those that are left over count as 0.

    Parameters
    ----------
    one, other : fitted CP estimators or factor models, CPTensors of TensorLy, or lists of arrays (n_k, R)
        Of a CP estimator the components of all modes count, those that are switched off do not; of a factor model all,
        by the factors of its entities (of one matrix or of views by the scores, and the loadings of every matrix).
    weights : bool, default=True

    References
    ----------
    Acar, Dunlavy, Kolda and Morup (2011), Scalable tensor factorizations for incomplete data, sec. 4.

    Examples
    --------
    >>> from tensorcep import CPRegressor, factor_match_score, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
    >>> round(factor_match_score(model, model), 3)
    1.0
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
    return float(match[linear_sum_assignment(match, maximize=True)].sum() / max(match.shape))


def _parts(given: Any) -> list[np.ndarray]:
    """Factors (n_k, R) of the components of all modes."""
    if isinstance(given, FactorModel):
        return [moments.mean[:, : given.n_components_] for moments in given.posterior_.moments]
    if hasattr(given, "column_modes_"):
        shares = given.relevance_ * [len(modes) == len(given.shape_) for modes in given.column_modes_]
        kept = shares > 1e-3 * shares.max(initial=0.0)
        return [np.asarray(factor)[:, kept] for factor in given.factors_]
    if hasattr(given, "weights") and hasattr(given, "factors"):
        first, *rest = given.factors
        return [np.asarray(first) * np.asarray(given.weights), *(np.asarray(factor) for factor in rest)]
    if not isinstance(given, Sequence) or not all(np.ndim(factor) == 2 for factor in given):
        fail_value(f"factors must be a fitted CP estimator, a CPTensor or a list of 2-d arrays; got {given!r}.")
    return [np.asarray(factor, dtype=float) for factor in given]


def replicability(
    model: Any, X: Any, *, by: str = "seeds", n_repeats: int = 4, random_state: Any = 0, client: Any = None
) -> pd.DataFrame:
    """Factor match scores of pairs of fits: of the same entries from other seeds, or of the two halves of the entries.

    A table with a row per pair, and the columns "first", "second" and "score".

    Parameters
    ----------
    model : CP estimator or factor model
        It is cloned, and stays as it is.
    X : SparseTensor, or what a factor model is fitted to
        The halves of matrices are halves of their observed cells.
    by : {"seeds", "halves"}, default="seeds"
        (Seeds say little of a factor model that starts at a singular value decomposition, ``init="svd"``.)
    n_repeats : int, default=4
        Fits, all pairs of which are compared, or random splits.
    random_state : int, RandomState, Generator or None
    client : distributed.Client, optional
        Of a Dask cluster, whose workers make the fits; scores are the same.

    Examples
    --------
    >>> from tensorcep import CPRegressor, replicability, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
    >>> replicability(model.set_params(interactions="cp"), tensor, n_repeats=2).shape[0]
    1
    """
    check_choice("by", by, ("seeds", "halves"))
    n, rng = check_int("n_repeats", n_repeats, 2 if by == "seeds" else 1), check_random_state(random_state)
    cells = cells_of_matrices(model, X) if isinstance(model, FactorModel) else None
    entries = [X] * n if by == "seeds" else []
    for _ in range(n - len(entries)):
        if cells is None:
            entries += X.train_test_split(0.5, rng)
        else:
            halves = zip(*(one.train_test_split(0.5, rng) for one in cells.matrices), strict=True)
            entries += [cells.given(list(half)) for half in halves]
    models = [clone(model).set_params(random_state=int(rng.integers(2**31))) for _ in entries]
    cluster = None if client is None else Cluster(client)
    if cluster is None:
        fits = [_fitted(*call) for call in zip(models, entries, strict=True)]
    else:
        held = {id(one): cluster.put(one) for one in entries}
        calls = [(one, held[id(own)]) for one, own in zip(models, entries, strict=True)]
        fits = [told.value for told in cluster.run(_fitted, calls, "replicability", patient=True)]
    pairs = combinations(range(n), 2) if by == "seeds" else ((2 * i, 2 * i + 1) for i in range(n))
    scores = [(i, j, factor_match_score(fits[i], fits[j])) for i, j in pairs]
    return pd.DataFrame(scores, columns=["first", "second", "score"])


def _fitted(model: Any, entries: Any) -> Any:
    return model.fit(entries)
