"""Group factor analysis and canonical correlation analysis: views of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.executor import n_threads
from tensorcep.core.settings import Settings
from tensorcep.entries.labels import Labels
from tensorcep.entries.matrices import as_views
from tensorcep.factor_models.base import empty_relations, scores_of
from tensorcep.factor_models.base_many import BaseRelations
from tensorcep.factor_models.entity_labels import check_columns, check_same_rows
from tensorcep.factor_models.known_rows import KnownRows
from tensorcep.factor_models.layout import Layout, Link
from tensorcep.factor_models.moments import Moments
from tensorcep.factor_models.new_rows import new_rows
from tensorcep.factor_models.planned_rows import check_row_prior, known_rows, refuse_rows_alone, told_of_rows
from tensorcep.factor_models.predict import predict_block, predictive_parameters
from tensorcep.factor_models.reading import FEATURES_OF
from tensorcep.factor_models.relations import RelationPosterior
from tensorcep.priors.features import Features
from tensorcep.priors.series import Series

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
    n_jobs : int, optional
    random_state : int, RandomState, Generator or None
    verbose : int, default=0
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
    >>> import numpy as np
    >>> from tensorcep import GroupFactorAnalysis
    >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
    >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
    >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
    >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
    >>> model.variance_explained().shape, model.transform([views["a"][:2], None]).shape
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
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.scores_.shape
        (20, 1)
        """
        X = as_views(X)
        return self._fit_views(list(X.values()), list(X)) if isinstance(X, Mapping) else self._fit_views(list(X))

    def _fit_views(self, views: list[Any], names: list[Any] | None = None) -> Any:
        if not views:
            fail_value("X must hold at least one view; got none.")
        check_choice("noise", self.noise, ("feature", "view"))
        likelihoods = [self.likelihood] * len(views) if isinstance(self.likelihood, str) else list(self.likelihood)
        if len(likelihoods) != len(views):
            fail_value(f"likelihood must be one word, or one for each of {len(views)} views; got {len(likelihoods)}.")
        if self.noise == "view" and "gaussian" not in likelihoods:
            fail_value("noise has a meaning only where a view is 'gaussian'; got noise='view'; leave it out.")
        said = [f"view {m}" for m in range(len(views))] if names is None else [str(name) for name in names]
        relations = [
            (ROWS, f"{FEATURES_OF}{name}", likelihood) for name, likelihood in zip(said, likelihoods, strict=True)
        ]
        return self._fit_relations(views, relations, (ROWS,))

    def _known_rows(self, method: str, links: list[Link], labels: list[Labels | None]) -> tuple[KnownRows | None, ...]:
        for link in links:
            check_row_prior(self.row_prior, method, link)
        return known_rows(self.row_prior, labels[0], [link.matrix for link in links])

    def _groups(self, likelihood: str) -> str:
        by_feature = likelihood == "negbinomial" or (likelihood == "gaussian" and self.noise == "feature")
        return "column" if by_feature else "all"

    def _fitted(
        self, posterior: RelationPosterior, links: list[Link], where: list[Layout], names: list[str]
    ) -> dict[str, Any]:
        attributes = super()._fitted(posterior, links, where, names)
        factors, K = attributes["factors_"], where[0].rank
        columns = [(relation, posterior.moments[relation.col]) for relation in empty_relations(links, where)]
        loadings = [relation.in_units(moments).mean[:, :K].copy() for relation, moments in columns]
        return {**attributes, "scores_": factors[ROWS], "loadings_": loadings, **told_of_rows(posterior)}

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
        views = [None if _holds_nothing(view) else view for view in views]
        if len(views) != len(self._links) or all(view is None for view in views):
            fail_value(f"X must hold one item for each of {len(self._links)} views, a matrix or None, and one matrix.")
        links = {}
        for m, (view, link) in enumerate(zip(views, self._links, strict=True)):
            if view is None:
                continue
            check_columns(self._entity_labels[link.col], view, f"view {m}")
            matrix = self._matrix(view, link.likelihood, m)
            if matrix.cells.shape[1] != link.matrix.cells.shape[1]:
                wanted = link.matrix.cells.shape[1]
                fail_value(f"view {m} must have {wanted} columns as in fit; got {matrix.cells.shape[1]}.")
            links[m] = link._replace(matrix=matrix)
        if len({link.matrix.cells.shape[0] for link in links.values()}) > 1:
            fail_value(f"views must have the same rows; got {[li.matrix.cells.shape[0] for li in links.values()]}.")
        check_same_rows({f"view {m}": views[m] for m in links})
        return new_rows(self.posterior_, links, self._where, n_threads(self.n_jobs))[0].moments[0]

    def transform(self, X: Sequence[Any], return_cov: bool = False) -> Any:
        """Posterior means (and covariances) of the scores of new rows, given the views that are not None.

        Views are in the order of the fit, or a dict by their names; columns with names must be those of the fit.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> scores, covariances = model.transform([views["a"][:2], None], return_cov=True)
        >>> scores.shape, covariances.shape
        ((2, 1), (2, 1, 1))
        """
        return scores_of(self._given(X), self._where[0].rank, return_cov)

    def predict_view(self, X: Sequence[Any], m: int) -> np.ndarray:
        """Predictive means of view m of new rows, given the views in X that are not None.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.predict_view([views["a"][:2], None], 1).shape
        (2, 2)
        """
        rows, relation = self._given(X), self._relation(self._number(m))
        tau, r = predictive_parameters(self.posterior_.sites[m])
        return predict_block(relation, rows, self.posterior_.moments[relation.col], tau, r)[0]


def _holds_nothing(view: Any) -> bool:
    """Whether a view has numbers, all of which are missing."""
    if not isinstance(view, (np.ndarray, pd.DataFrame)):
        return False
    missing = pd.isna(np.asarray(view))
    return bool(missing.size and missing.all())


class BayesianCCA(GroupFactorAnalysis):
    """Canonical correlation analysis: group factor analysis of two views (Klami et al. 2013).

    Components active in both views are what they share; those active in one are its own structure. Parameters and
    attributes are those of `GroupFactorAnalysis`.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import BayesianCCA
    >>> scores = np.cos(np.arange(20))[:, None]
    >>> X, Y = scores @ [[1.0, 2.0]] + 0.1 * np.sin(np.arange(40)).reshape(20, 2), scores @ [[-1.0, 1.0, 0.5]]
    >>> BayesianCCA(1, random_state=0, tol=1e-2).fit(X, Y).scores_.shape
    (20, 1)
    """

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit to two views with the same rows, as fit(X, Y), fit([X, Y]) or a dict of both by their names.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianCCA
        >>> scores = np.cos(np.arange(20))[:, None]
        >>> X, Y = scores @ [[1.0, 2.0]] + 0.1 * np.sin(np.arange(40)).reshape(20, 2), scores @ [[-1.0, 1.0, 0.5]]
        >>> BayesianCCA(1, random_state=0, tol=1e-2).fit({"first": X, "second": Y}).scores_.shape
        (20, 1)
        """
        X = as_views(X)
        names = list(X) if y is None and isinstance(X, Mapping) else None
        views = [X, y] if y is not None else list(X.values()) if isinstance(X, Mapping) else list(X)
        if len(views) != 2:
            fail_value(f"X and y must be two views; got {len(views)}.")
        return self._fit_views(views, names)

    @property
    def shared_(self) -> np.ndarray:
        """Which components are active in both views, (K,) bool."""
        check_is_fitted(self, "posterior_")
        return np.asarray(self.active_.all(axis=0))
