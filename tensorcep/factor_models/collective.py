"""Collective matrix factorisation: matrices of any kind that share the things their rows and columns stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tensorcep.core.checks import fail_value
from tensorcep.core.settings import Settings
from tensorcep.factor_models.base_many import BaseRelations


@dataclass(eq=False, repr=False)
class CollectiveMatrixFactorization(BaseRelations):
    """Factorise several matrices at once, one factor matrix per entity.

    A cell's latent value is u_i . v_j plus biases, u and v the rows of its two entities; a component whose precision is
    large in an entity is off in all matrices of that entity.

    Parameters
    ----------
    relations : sequence of (row entity, column entity, likelihood)
        One for each matrix, for example ``("users", "items", "bernoulli")``; likelihoods are "gaussian", "bernoulli"
        and "negbinomial".
    n_components : int, default=10
    method : {"vb-factorized", "vb", "gibbs"} or a record of settings, default="vb-factorized"
        As in `BayesianPCA`.
    ard : bool, default=True
        Learn a precision for every component of every entity.
    bias : {"column", "row", "both", "none"}, default="both"
    absent : {"missing", "zero"}, default="missing"
        What cells that a sparse matrix does not store are.
    max_iter : int, default=1000
    tol : float, default=1e-4
    n_jobs : int, optional
    random_state : int, RandomState, Generator or None
    verbose : int, default=0

    Attributes
    ----------
    factors_, relevance_ : dict of entity to ndarray (n, K), (K,)
    explained_variance_ : ndarray (matrices, K)
    active_ : ndarray of bool (matrices, K)
        Where a component explains more than 1 % of what all of them explain in a matrix.
    noise_variance_ : list
    lower_bound_ : float
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
    """

    relations: Sequence[tuple[str, str, str]]
    n_components: int = 10
    method: str | Settings = "vb-factorized"
    ard: bool = True
    _: KW_ONLY
    bias: str = "both"
    max_iter: int = 1000

    def fit(self, X: Sequence[Any], y: Any = None) -> Any:
        """Fit to a sequence of matrices, in the order of `relations`.

        Each is an array with NaN where nothing is observed, a DataFrame, or a sparse matrix. A fit that is refused,
        interrupted or ended by an exception leaves the model as it was.

        Raises
        ------
        ValueError, TypeError
            If a relation is not a triple of two entities and a likelihood, or the matrices do not fit them.
        """
        relations = list(self.relations)
        for relation in relations:
            if not isinstance(relation, (tuple, list)) or len(relation) != 3 or relation[0] == relation[1]:
                fail_value(
                    "relations must hold triples (row entity, column entity, likelihood) of two different entities; "
                    f"got {relation!r}."
                )
        if len(relations) == 0 or len(X) != len(relations):
            fail_value(f"X must hold one matrix for each of {len(relations)} relations, at least one; got {len(X)}.")
        return self._fit_relations(X, [(str(a), str(b), c) for a, b, c in relations], ())
