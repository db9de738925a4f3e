"""Several matrices at once: group factor analysis, CCA, and collective factorisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, check_is_fitted

from tensorcep.core.checks import check_choice, check_flag, check_int, check_random_state, fail_value
from tensorcep.core.executor import n_threads
from tensorcep.core.settings import Settings
from tensorcep.entries.labels import Labels
from tensorcep.entries.tables import as_views
from tensorcep.factor_models import results
from tensorcep.factor_models.base import FEATURES_OF, FactorModel, scores_of
from tensorcep.factor_models.cells import READ, DenseCells, Matrix, as_array, read_matrix
from tensorcep.factor_models.fit import fit_components, new_rows, plan_run
from tensorcep.factor_models.layout import BIASES, Link, check_row_prior, known_rows, refuse_rows_alone, told_of_rows
from tensorcep.factor_models.problem import limits_of
from tensorcep.factor_models.side_information import Moments
from tensorcep.factor_models.sites import augmentation_of, kind_of
from tensorcep.priors.features import Features
from tensorcep.priors.series import Series

# A component is active in a matrix where it explains this share of the variance that all of them explain there.
ACTIVE_SHARE = 1e-2


@dataclass(eq=False, repr=False)
class BaseRelations(FactorModel):
    """Several matrices whose rows and columns are shared entities."""

    _: KW_ONLY
    lower_limit: Any = None

    def _fit_relations(
        self, matrices: Any, relations: Any, fixed: Sequence[str] = (), row_prior: Any = None, by_feature: bool = False
    ) -> Any:
        """Fit; entities in `fixed` have unit prior precisions, the components of others have learned ones."""
        # The rows of the first entity have a prior; columns of real matrices may have their own noise, `by_feature`.
        plan, bias = plan_run(self), check_choice("bias", self.bias, BIASES)
        names = list(dict.fromkeys(name for row, col, _ in relations for name in (row, col)))
        given = [self._matrix(matrices[m], likelihood, m) for m, (_, _, likelihood) in enumerate(relations)]
        shapes = [(own.cells.shape[1], word) for own, (_, _, word) in zip(given, relations, strict=True)]
        links, with_groups = [], ("negbinomial", "gaussian") if by_feature else ("negbinomial",)
        for matrix, relation, limit in zip(given, relations, limits_of(self.lower_limit, shapes), strict=True):
            row, col, likelihood = relation
            groups = "column" if likelihood in with_groups else "all"
            at, augmentation = (names.index(row), names.index(col)), augmentation_of(likelihood)
            links.append(self._measured(Link(matrix, *at, likelihood, augmentation, bias, groups, limit=limit)))
        plan.check(links)
        labels, sizes = list[Labels | None]([None] * len(names)), dict[int, int]()
        for m, (link, X) in enumerate(zip(links, matrices, strict=True)):
            sides = (link.row, link.col), results.labels_of(X), given[m].cells.shape, ("rows", "columns")
            for e, own, n, side in zip(*sides, strict=True):
                if own is not None and labels[e] not in (None, own):
                    what = f"the labels of {names[e]!r} in matrix {m} must be those of an earlier matrix"
                    fail_value(f"{what}, in their order; reindex one by the other.")
                labels[e] = own if labels[e] is None else labels[e]
                if sizes.setdefault(e, n) != n:
                    got = f"matrix {m} has {n} {side}, an earlier one {sizes[e]}"
                    fail_value(f"every matrix must have the same number of {names[e]!r}; {got}.")
        ard = check_flag("ard", self.ard)
        learned = [ard and name not in fixed for name in names]
        for link in links:
            check_row_prior(row_prior, plan.method.name, link)
        known = known_rows(row_prior, labels[0], given)
        result, where = fit_components(plan, links, learned, check_random_state(self.random_state), "random", known)
        self._set_fitted(result, links, where, names, _entity_labels=labels)
        return self

    def _matrix(self, X: Any, likelihood: str, m: int) -> Matrix:
        kind = kind_of(likelihood, augmentation_of(likelihood))
        absent = self._checked_absent()
        X = check_array(as_array(X, kind.check, absent, f"matrix {m}"), input_name=f"matrix {m}", **READ)
        return read_matrix(X, kind.check, absent, f"matrix {m}")

    def _place(self, given: dict[int, Any], what: str) -> Moments:
        """Moments of new rows of one entity, of which these matrices, views or others as errors call them, tell."""
        links = {}
        for m, X in given.items():
            link, name = self._links[m], f"{what} {m}"
            results.check_columns(self._entity_labels[link.col], X, name)
            matrix, wanted = self._matrix(X, link.likelihood, m), link.matrix.cells.shape[1]
            if matrix.cells.shape[1] != wanted:
                fail_value(f"{name} must have {wanted} columns as in fit; got {matrix.cells.shape[1]}.")
            links[m] = link._replace(matrix=matrix)
        sizes = [link.matrix.cells.shape[0] for link in links.values()]
        if len(set(sizes)) > 1:
            same = "views must have the same rows" if what == "view" else "the matrices must have the same new rows"
            fail_value(f"{same}; got {sizes}.")
        named = {f"{what} {m}": own for m, X in given.items() if (own := results.labels_of(X)[0]) is not None}
        first = next(iter(named), "")
        for name, own in named.items():
            if own != named[first]:
                rest = "in their order; reindex one by the other"
                fail_value(f"the rows of {name} must have the labels of those of {first}, {rest}.")
        state, _ = new_rows(self.posterior_, links, self._where, n_threads(self.n_jobs))
        return state.moments[self._links[min(links)].row]

    def _derived(self) -> dict[str, Any]:
        posterior, rank = self.posterior_, self._where[0].rank
        relations = [self._relation(m) for m in range(len(self._links))]
        named = list(zip(self._names, posterior.moments, posterior.precisions, strict=True))
        noise = [
            None if sites.noise is None else 1.0 / relation.noise_in_units(sites.noise.mean)
            for sites, relation in zip(posterior.sites, relations, strict=True)
        ]
        return {
            "factors_": {name: moments.mean[:, :rank].copy() for name, moments, _ in named},
            "relevance_": {name: 1.0 / precision.mean[:rank] for name, _, precision in named},
            "explained_variance_": np.stack([results.energies(posterior, relation, rank) for relation in relations]),
            "active_": np.stack([results.shares(posterior, relation, rank) for relation in relations]) > ACTIVE_SHARE,
            "noise_variance_": noise,
        }

    def reconstruct(self, m: int) -> np.ndarray:
        """Predictive means of all cells of training matrix m, observed or not.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> model.reconstruct(1).shape
        (150, 2)
        """
        m = self._number(m)
        return results.predict_training(self.posterior_, m, self._relation(m))[0]

    def predict_missing(self, m: int, return_std: bool = False) -> Any:
        """Training matrix m with its missing cells replaced by their predictive means.

        With `return_std`, also the predictive standard deviations of all cells, 0 where observed.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> model.predict_missing(0).shape
        (150, 2)
        """
        m = self._number(m)
        mean, variance = results.predict_training(self.posterior_, m, self._relation(m))
        matrix = self._links[m].matrix
        if isinstance(matrix.cells, DenseCells) and matrix.x.shape != mean.shape:
            fail_value("a model that was loaded from a file does not hold its training matrices; use reconstruct.")
        return matrix.filled_with(mean, variance) if return_std else matrix.filled(mean)

    def _number(self, m: int) -> int:
        check_is_fitted(self, "posterior_")
        return check_int("m", m, 0, len(self._links) - 1)


ROWS = "rows"


@dataclass(eq=False, repr=False)
class GroupFactorAnalysis(BaseRelations):
    """Factors of several views of the same rows, each of them active in all, some or one of the views.

    x^(m)_ij given u_i . v^(m)_j + bias, u_i ~ N(0, I); the loadings of every view have precisions of their own
    (Virtanen et al. 2012), so that a factor vanishes from the views that it says nothing about.

    Parameters
    ----------
    n_components : int, default=10
    likelihood : str or sequence of str, default="gaussian"
        Of all views, or one for each: "gaussian", "bernoulli" (logistic), "probit", "negbinomial", and, but for
        "gibbs", "poisson" (rate log(1 + e^f), by Boehning's bound).
    lower_limit : float, or sequence of float, array or None, optional
        Of real matrices, the value at which they pile up (a detection limit, a log of 1 + count): one there says only
        that it is no higher. One for all, or one item for each: a number, one for each column, or None for none.
    noise : {"feature", "view"}, default="feature"
        What has a noise variance of its own in Gaussian views.
    method : {"vb-factorized", "vb", "gibbs"} or a record of settings, default="vb"
        As in `BayesianPCA`.
    ard : bool, default=True
    bias : {"column", "row", "both", "none"}, default="column"
    absent : {"missing", "zero"}, default="missing"
    max_iter : int, default=2000
    tol : float, default=1e-5
    n_jobs, random_state, verbose
        As in `BayesianPCA`.
    row_prior : Features or Series, optional
        What is known of the rows, as in `BayesianPCA`: of rows without cells in any view it is all that is.

    Attributes
    ----------
    scores_ : ndarray (n_rows, K)
    loadings_ : list of ndarray (n_features, K)
    feature_effects_, lengths_
        As in `BayesianPCA`.
    factors_, relevance_, explained_variance_, active_, noise_variance_, lower_bound_, n_iter_, converged_, trace_
        As in `CollectiveMatrixFactorization`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from tensorcep import GroupFactorAnalysis
    >>> X = load_iris().data
    >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
    >>> model.variance_explained().shape, model.transform([X[:2, :2], None]).shape
    ((2, 1), (2, 1))
    """

    n_components: int = 10
    likelihood: str | Sequence[str] = "gaussian"
    noise: str = "feature"
    method: str | Settings = "vb"
    ard: bool = True
    _: KW_ONLY
    max_iter: int = 2000
    tol: float = 1e-5
    row_prior: Features | Series | None = None

    def fit(self, X: Sequence[Any] | Mapping[str, Any], y: Any = None) -> Any:
        """Fit to a sequence of views, matrices with the same rows (NaN where nothing is observed, or sparse).

        A dict (or a MuData, whose modalities are views) names the views, and the columns of DataFrames their features
        (`variance_explained`, `components`). A fit that is refused, interrupted or ended by an exception leaves the
        model as it was.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> model.scores_.shape
        (150, 1)
        """
        return self._fit_views(as_views(X))

    def _fit_views(self, X: Any) -> Any:
        names, views = (list(X), list(X.values())) if isinstance(X, Mapping) else (None, list(X))
        if not views:
            fail_value("X must hold at least one view; got none.")
        check_choice("noise", self.noise, ("feature", "view"))
        likelihoods = [self.likelihood] * len(views) if isinstance(self.likelihood, str) else list(self.likelihood)
        if len(likelihoods) != len(views):
            fail_value(f"likelihood must be one word, or one for each of {len(views)} views; got {len(likelihoods)}.")
        if self.noise == "view" and "gaussian" not in likelihoods:
            fail_value("noise has a meaning only where a view is 'gaussian'; got noise='view'; leave it out.")
        said = [f"view {m}" for m in range(len(views))] if names is None else [str(name) for name in names]
        relations = [(ROWS, f"{FEATURES_OF}{name}", word) for name, word in zip(said, likelihoods, strict=True)]
        return self._fit_relations(views, relations, (ROWS,), self.row_prior, self.noise == "feature")

    def _derived(self) -> dict[str, Any]:
        found, posterior, rank = super()._derived(), self.posterior_, self._where[0].rank
        columns = [self._relation(m).in_units(posterior.moments[link.col]).mean for m, link in enumerate(self._links)]
        loadings = [mean[:, :rank].copy() for mean in columns]
        return {**found, "scores_": found["factors_"][ROWS], "loadings_": loadings, **told_of_rows(posterior)}

    def _given(self, views: Sequence[Any]) -> Moments:
        """Moments of new rows given some of their views."""
        check_is_fitted(self, "posterior_")
        refuse_rows_alone(self.posterior_)
        views = as_views(views)
        if isinstance(views, Mapping):
            named = {str(name): view for name, view in views.items()}
            for name in named:
                check_choice("the name of a view", name, self.matrix_names_)
            views = [named.get(name) for name in self.matrix_names_]
        arrays = [np.asarray(view) if isinstance(view, (np.ndarray, pd.DataFrame)) else np.zeros(1) for view in views]
        nothing = [bool(array.size and pd.isna(array).all()) for array in arrays]  # they have numbers, all missing
        views = [None if empty else view for view, empty in zip(views, nothing, strict=True)]
        if len(views) != len(self._links) or all(view is None for view in views):
            fail_value(f"X must hold one item for each of {len(self._links)} views, a matrix or None, and one matrix.")
        return self._place({m: view for m, view in enumerate(views) if view is not None}, "view")

    def transform(self, X: Sequence[Any], return_cov: bool = False) -> Any:
        """Posterior means (and covariances) of the scores of new rows, given the views that are not None.

        Views are in the order of the fit, or a dict by their names; columns with names must be those of the fit.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> scores, covariances = model.transform([X[:2, :2], None], return_cov=True)
        >>> scores.shape, covariances.shape
        ((2, 1), (2, 1, 1))
        """
        return scores_of(self._given(X), self._where[0].rank, return_cov)

    def predict_view(self, X: Sequence[Any], m: int) -> np.ndarray:
        """Predictive means of view m of new rows, given the views in X that are not None.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import GroupFactorAnalysis
        >>> X = load_iris().data
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]})
        >>> model.predict_view([X[:2, :2], None], 1).shape
        (2, 2)
        """
        rows, relation = self._given(X), self._relation(self._number(m))
        tau, r = results.predictive_parameters(self.posterior_.sites[m])
        return results.predict_block(relation, rows, self.posterior_.moments[relation.col], tau, r)[0]


class BayesianCCA(GroupFactorAnalysis):
    """Canonical correlation analysis: group factor analysis of two views (Klami et al. 2013).

    Components active in both views are what they share; those active in one are its own structure. Parameters and
    attributes are those of `GroupFactorAnalysis`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from tensorcep import BayesianCCA
    >>> X = load_iris().data
    >>> BayesianCCA(1, random_state=0, tol=1e-2).fit(X[:, :2], X[:, 2:]).scores_.shape
    (150, 1)
    """

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit to two views with the same rows, as fit(X, Y), fit([X, Y]) or a dict of both by their names.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianCCA
        >>> X = load_iris().data
        >>> BayesianCCA(1, random_state=0, tol=1e-2).fit({"sepal": X[:, :2], "petal": X[:, 2:]}).scores_.shape
        (150, 1)
        """
        X = as_views(X)
        views = [X, y] if y is not None else X if isinstance(X, Mapping) else list(X)
        if len(views) != 2:
            fail_value(f"X and y must be two views; got {len(views)}.")
        return self._fit_views(views)

    @property
    def shared_(self) -> np.ndarray:
        """Which components are active in both views, (K,) bool."""
        check_is_fitted(self, "posterior_")
        return np.asarray(self.active_.all(axis=0))


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
        As in `GroupFactorAnalysis`.
    absent : {"missing", "zero"}, default="missing"
        What cells that a sparse matrix does not store are.
    max_iter : int, default=1000
    tol : float, default=1e-4
    n_jobs, random_state, verbose
        As in `BayesianPCA`.

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
                triples = "triples (row entity, column entity, likelihood) of two different entities"
                fail_value(f"relations must hold {triples}; got {relation!r}.")
        if len(relations) == 0 or len(X) != len(relations):
            fail_value(f"X must hold one matrix for each of {len(relations)} relations, at least one; got {len(X)}.")
        return self._fit_relations(X, [(str(a), str(b), c) for a, b, c in relations])

    def transform(self, X: Any, entity: Any = None, return_cov: bool = False) -> Any:
        """Factors (n, K) of new rows of an entity, all else as fitted.

        Parameters
        ----------
        X : sequence of matrices or None, or dict of matrices by their position or name
            One item per relation: the new rows where the entity is the row entity, their columns being those of the
            fit, or None.
        entity : str, optional
            Default: the row entity of the first matrix that is given.
        return_cov : bool, default=False
            Also return their covariances, (n, K, K).

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
        for m in sorted(given):
            row, col = self._entity_names(self._links[m])
            if row != entity:
                cure = f"give the relation as ({entity!r}, {row!r}) with its matrix transposed, and fit again"
                if col == entity:
                    fail_value(f"the rows of matrix {m} are {row!r}, not {entity!r}; only rows can be placed: {cure}.")
                fail_value(f"matrix {m} must have rows of {entity!r}; its rows are {row!r}; leave it out.")
        return scores_of(self._place(dict(sorted(given.items())), "matrix"), self._where[0].rank, return_cov)

    def _entity_names(self, link: Link) -> tuple[str | None, str | None]:
        return self._names[link.row], self._names[link.col]
