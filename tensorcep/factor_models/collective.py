"""Collective matrix factorisation: matrices of any kind that share the things their rows and columns stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.executor import n_threads
from tensorcep.core.settings import Settings
from tensorcep.factor_models.base import scores_of
from tensorcep.factor_models.base_many import BaseRelations
from tensorcep.factor_models.entity_labels import check_columns, check_same_rows
from tensorcep.factor_models.layout import Link
from tensorcep.factor_models.new_rows import new_rows


@dataclass(eq=False, repr=False)
class CollectiveMatrixFactorization(BaseRelations):
    """Factorise several matrices at once, one factor matrix per entity.

    A cell's latent value is u_i . v_j plus biases, u and v the rows of its two entities; a component whose precision is
    large in an entity is off in all matrices of that entity.

    Parameters
    ----------
    relations : sequence of (row entity, column entity, likelihood)
        One for each matrix, for example ``("users", "items", "bernoulli")``; likelihoods are those of
        `GroupFactorAnalysis`.
    n_components : int, default=10
    method : {"vb-factorized", "vb", "gibbs"} or a record of settings, default="vb-factorized"
        As in `BayesianPCA`.
    ard : bool, default=True
        Learn a precision for every component of every entity.
    bias : {"column", "row", "both", "none"}, default="both"
    lower_limit : float, or sequence of float, array or None, optional
        Of real matrices, the value at which they pile up (a detection limit, a log of 1 + count): one there says only
        that it is no higher. One for all, or one item for each: a number, one for each column, or None for none.
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
    weights_, explained_variance_ : ndarray (matrices, K)
    active_ : ndarray of bool (matrices, K)
        Where a component explains more than 1 % of what all of them explain in a matrix.
    noise_variance_ : list
    lower_bound_ : float
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import CollectiveMatrixFactorization
    >>> users, items = np.arange(-6.0, 6.0), np.arange(-4.0, 5.0)
    >>> ratings, features = np.outer(users, items) + np.eye(12, 9), np.outer(items, [1.0, -1.0]) + np.eye(9, 2)
    >>> relations = [("users", "items", "gaussian"), ("items", "features", "gaussian")]
    >>> model = CollectiveMatrixFactorization(relations, 1, tol=1e-2, random_state=0)
    >>> model.fit([ratings, features]).reconstruct(0).shape
    (12, 9)
    """

    relations: Sequence[tuple[str, str, str]]
    n_components: int = 10
    method: str | Settings = "vb-factorized"
    ard: bool = True
    _: KW_ONLY
    bias: str = "both"
    max_iter: int = 1000

    def fit(self, X: Sequence[Any] | Mapping[str, Any], y: Any = None) -> Any:
        """Fit to a sequence of matrices, in the order of `relations`, or a dict of them by names like "users x items".

        Each is an array with NaN where nothing is observed, a DataFrame, a SparseTensor, or a sparse matrix. The labels
        of data frames and tensors name the rows of their entities, and files keep them. A fit that is refused,
        interrupted or ended by an exception leaves the model as it was.

        Raises
        ------
        ValueError, TypeError
            If a relation is not a triple of two entities and a likelihood, or the matrices do not fit them.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import CollectiveMatrixFactorization
        >>> ratings = np.outer(np.arange(-6.0, 6.0), np.arange(-4.0, 5.0)) + np.eye(12, 9)
        >>> model = CollectiveMatrixFactorization([("users", "items", "gaussian")], 1, tol=1e-2, random_state=0)
        >>> model.fit({"users x items": ratings}).reconstruct(0).shape
        (12, 9)
        """
        relations = list(self.relations)
        if isinstance(X, Mapping):
            wanted = [" x ".join(map(str, relation[:2])) for relation in relations]
            if sorted(map(str, X)) != sorted(wanted):
                fail_value(f"X must hold a matrix for each of {wanted}; got {list(X)}.")
            X = [X[name] for name in wanted]
        for relation in relations:
            if not isinstance(relation, (tuple, list)) or len(relation) != 3 or relation[0] == relation[1]:
                fail_value(
                    "relations must hold triples (row entity, column entity, likelihood) of two different entities; "
                    f"got {relation!r}."
                )
        if len(relations) == 0 or len(X) != len(relations):
            fail_value(f"X must hold one matrix for each of {len(relations)} relations, at least one; got {len(X)}.")
        return self._fit_relations(X, [(str(a), str(b), c) for a, b, c in relations], ())

    def transform(self, X: Any, entity: Any = None, return_cov: bool = False) -> Any:
        """Place new rows of an entity, all else as fitted.

        Parameters
        ----------
        X : sequence of matrices or None, or dict of matrices by their position or name
            One item per relation: the new rows where the entity is the row entity, their columns being those of the
            fit, or None.
        entity : str, optional
            Default: the row entity of the first matrix that is given.
        return_cov : bool, default=False

        Returns
        -------
        factors : ndarray (n, K)
        covariances : ndarray (n, K, K), if return_cov

        Raises
        ------
        ValueError
            If a matrix has other rows than the entity or an earlier matrix, or other columns than those of the fit.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import CollectiveMatrixFactorization
        >>> ratings = np.outer(np.arange(-6.0, 6.0), np.arange(-4.0, 5.0)) + np.eye(12, 9)
        >>> model = CollectiveMatrixFactorization([("users", "items", "gaussian")], 1, tol=1e-2, random_state=0)
        >>> model = model.fit([ratings])
        >>> model.transform([2.0 * ratings[:1]], entity="users").shape
        (1, 1)
        """
        check_is_fitted(self, "posterior_")
        given = dict(X) if isinstance(X, Mapping) else {m: matrix for m, matrix in enumerate(X) if matrix is not None}
        given = {self._position(m): matrix for m, matrix in given.items()}
        if not given:
            fail_value("X must hold at least one matrix of new rows; got none.")
        entity = self._names[self._links[min(given)].row] if entity is None else entity
        check_choice("entity", entity, self._names)
        links = {m: self._new_link(m, given[m], entity) for m in sorted(given)}
        sizes = {m: link.matrix.cells.shape[0] for m, link in links.items()}
        if len(set(sizes.values())) > 1:
            fail_value(f"the matrices must have the same new rows; got {list(sizes.values())}.")
        check_same_rows({f"matrix {m}": given[m] for m in sorted(given)})
        e = self._names.index(entity)
        rows = new_rows(self.posterior_, links, self._where, n_threads(self.n_jobs))[0].moments[e]
        return scores_of(rows, self._where[0].rank, return_cov)

    def _new_link(self, m: int, X: Any, entity: str) -> Link:
        """The link of a matrix of new rows."""
        link = self._links[m]
        row, col = self._names[link.row], self._names[link.col]
        if row != entity:
            fail_value(
                f"the rows of matrix {m} are {row!r}, not {entity!r}; only rows can be placed: give the relation as "
                f"({entity!r}, {row!r}) with its matrix transposed, and fit again."
                if col == entity
                else f"matrix {m} must have rows of {entity!r}; its rows are {row!r}; leave it out."
            )
        check_columns(self._entity_labels[link.col], X, f"matrix {m}")
        matrix = self._matrix(X, link.likelihood, m)
        wanted = link.matrix.cells.shape[1]
        if matrix.cells.shape[1] != wanted:
            fail_value(f"matrix {m} must have {wanted} columns as in fit; got {matrix.cells.shape[1]}.")
        return link._replace(matrix=matrix)

    def _entity_names(self, link: Link) -> tuple[str | None, str | None]:
        return self._names[link.row], self._names[link.col]
