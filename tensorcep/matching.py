"""How well other seeds, and the halves of the entries, find the same components, of models of any family."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tensorcep.factor_models.base import FactorModel
from tensorcep.model_selection import match as _factor_match
from tensorcep.model_selection.held_out import cells_of_matrices


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
    return _factor_match.factor_match_score(*map(_matched_factors, (one, other)), weights=weights)


def _matched_factors(given: Any) -> Any:
    """The factors of a factor model, a list of arrays (n, K); anything else as it is."""
    if not isinstance(given, FactorModel):
        return given
    return [moments.mean[:, : given.n_components_] for moments in given.posterior_.moments]


def replicability(
    model: Any, X: Any, *, by: str = "seeds", n_repeats: int = 4, random_state: Any = 0, client: Any = None
) -> pd.DataFrame:
    """Factor match scores of pairs of fits: of the same entries from other seeds, or of the two halves of the entries.

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

    Returns
    -------
    DataFrame
        A row per pair, with the columns "first", "second" and "score".

    Examples
    --------
    >>> from tensorcep import CPRegressor, replicability, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
    >>> replicability(model.set_params(interactions="cp"), tensor, n_repeats=2).shape[0]
    1
    """
    if not isinstance(model, FactorModel):
        how = by, n_repeats, random_state, client
        return _factor_match.compared(model, X, X.train_test_split, factor_match_score, *how)
    cells = cells_of_matrices(model, X)

    def split(share: float, rng: Any) -> tuple[Any, Any]:
        first, second = zip(*(one.train_test_split(share, rng) for one in cells.matrices), strict=True)
        return cells.given(list(first)), cells.given(list(second))

    return _factor_match.compared(model, X, split, factor_match_score, by, n_repeats, random_state, client)
