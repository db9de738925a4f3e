"""Bayesian PCA and factor analysis."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core import checks
from tensorcep.core.checks import check_choice, check_flag, check_random_state, check_range, fail_value
from tensorcep.core.executor import n_threads
from tensorcep.core.loop import Run
from tensorcep.core.settings import Settings, fill_docstring
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.factor_models import layout, results
from tensorcep.factor_models.base import FactorModel, scores_of
from tensorcep.factor_models.cells import READ, Matrix, as_array, read_matrix
from tensorcep.factor_models.fit import STARTS, fit_components, new_rows, plan_run, row_evidence
from tensorcep.factor_models.layout import BIASES, Layout, Link, known_rows, refuse_rows_alone
from tensorcep.factor_models.online import learn_rows, sums_of_rows
from tensorcep.factor_models.problem import FEW, Kind, RelationProblem, State
from tensorcep.factor_models.side_information import Moments
from tensorcep.factor_models.sites import AUGMENTATIONS, augmentation_of
from tensorcep.priors.features import Features
from tensorcep.priors.series import Series

FEATURES = ("n_features_in_", "feature_names_in_", "labels_")


@dataclass(eq=False, repr=False)
class BasePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FactorModel):  # type: ignore[misc]
    """One matrix, x_ij given u_i . v_j + bias_j, with u_i ~ N(0, I), or what a `row_prior` says."""

    n_components: int | str | None = "auto"
    _: KW_ONLY
    init: str = "svd"
    tol: float = 1e-3
    row_prior: Features | Series | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.required = False
        tags.non_deterministic = self.random_state is None
        return tags

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit the factors to a matrix, and return the model.

        A fit that is refused, interrupted or ended by an exception leaves the model as it was.

        Parameters
        ----------
        X : array-like, sparse matrix or SparseTensor of shape (n_samples, n_features)
            NaN, masked cells, and cells that a sparse matrix or a tensor does not store, are missing (unless
            ``absent="zero"``); zeros that it stores are observed, and a cell that it lists twice is the sum of both. A
            DataFrame, an AnnData or a DataArray of xarray names rows and columns; cells that the sparse matrix of an
            AnnData does not store are zeros (of one of its layers with ``absent="zero"``).
        y : ignored

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before any work.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.n_components_
        1
        """
        plan, init = plan_run(self), check_choice("init", self.init, STARTS)
        link = self._planned_link()
        plan.check([link])
        layout.check_row_prior(self.row_prior, plan.method.name, link)
        seen = copy.copy(self)  # takes the number of features and their names until the fit is done
        matrix = seen._read(X, link.kind, reset=True)
        links = [self._measured(link._replace(matrix=matrix))]
        known = known_rows(self.row_prior, results.labels_of(X)[0], [matrix])
        rng, learned = check_random_state(self.random_state), [False, check_flag("ard", self.ard)]
        result, where = fit_components(plan, links, learned, rng, init, known)
        labels, n = list(results.labels_of(X)), matrix.cells.shape[0]
        more = {"_entity_labels": labels, "n_samples_seen_": n, "_sums_of_rows": None}
        return self._set_rows(result, links[0], where, seen, more)

    def _set_rows(self, result: Run, link: Link, where: list[Layout], seen: Any, more: dict[str, Any]) -> Any:
        """Set the attributes of a fit to these rows, of which `seen` has the names of their features."""
        more |= {name: value for name, value in vars(seen).items() if name in FEATURES}
        self._set_fitted(result, [link.without_data()], where, [], **more, _training=link.matrix)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """Learn more rows, and return the model; what all earlier ones said of columns is their prior (streaming VB).

        The first call is a fit, which decides the number of components and the scales of the columns, so that its rows
        should be many, and a warning tells of fewer than 10; later ones go on from there, also from a model that `fit`
        made or a file holds. No row is kept but those of the last batch: `scores_`, `reconstruct` and `predict_missing`
        are of these. After every batch the components are turned to principal axes again; there is no lower bound of
        the evidence of all.

        Parameters
        ----------
        X : as in `fit`
            Rows that were not learned before, with the same columns.
        y : ignored

        Raises
        ------
        ValueError, TypeError
            On input that is not allowed, or a method other than "vb"; the model is then as it was.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> X = load_iris().data
        >>> model = BayesianPCA(1, random_state=0).partial_fit(X[::2]).partial_fit(X[1::2])
        >>> model.transform(X[:1]).shape
        (1, 1)
        """
        plan = plan_run(self)
        if plan.method.name != "vb":
            fail_value(f"partial_fit is for method='vb'; got {plan.method.name!r}; set method='vb', and fit again.")
        if self.row_prior is not None:
            fail_value("partial_fit cannot learn what a row_prior says of rows; use fit, with all rows.")
        if "posterior_" not in vars(self):
            n = len(self.fit(X).scores_)
            if n < FEW:
                which = f"where it has fewer than {FEW} rows, here {n}, later ones mend them only in part"
                first = "the first batch decides the components and the scales of the columns"
                checks.warn_user(f"{first}, and {which}; give more rows first.", UserWarning)
            return self
        posterior = self.posterior_
        refuse_rows_alone(posterior)
        if posterior.draws is not None or posterior.moments[1].diagonal:
            fail_value("partial_fit goes on from a fit by method='vb'; this one was by another; fit again.")
        seen = copy.copy(self)
        link = self._links[0]._replace(matrix=seen._read(X, self._links[0].kind, reset=False))
        sums, n = vars(self).get("_sums_of_rows"), self.n_samples_seen_
        sums = sums_of_rows(posterior) if sums is None else sums
        result, link, sums = learn_rows(plan, link, posterior, sums, n, self._where, bool(self.ard))
        n += link.matrix.cells.shape[0]
        labels = [results.labels_of(X)[0], self._entity_labels[1]]
        more = {"_entity_labels": labels, "n_samples_seen_": n, "_sums_of_rows": sums}
        return self._set_rows(result, link, self._where, self, more)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("init", self.init, STARTS)
        self._planned_link()

    def _planned_link(self) -> Link:
        """How the matrix of a fit is modelled, as the parameters say; without its data."""
        return Link(NOTHING, 0, 1, "gaussian", bias=check_choice("bias", self.bias, BIASES), groups="column")

    def _read(self, X: Any, kind: Kind, reset: bool, empty: bool = False) -> Matrix:
        absent = self._checked_absent()
        labels = X.labels if isinstance(X, SparseTensor) else (None, None)
        if reset:
            self.labels_ = labels
        elif labels[1] is not None and getattr(self, "labels_", labels)[1] not in (None, labels[1]):
            fail_value("the columns of X must have the labels, in the order, of those that the model was fitted to.")
        checked = validate_data(self, as_array(X, kind.check, absent), reset=reset, **READ)
        if not reset:  # scikit-learn looks at names that are text, of frames alone
            results.check_columns(self._entity_labels[1], X, "X")
        return read_matrix(checked, kind.check, absent, empty=empty)

    def _derived(self) -> dict[str, Any]:
        posterior, relation, rank = self.posterior_, self._relation(0), self._where[0].rank
        (rows, cols), sites = posterior.moments, posterior.sites[0]
        loadings, bias = relation.in_units(cols).mean, relation.col_bias
        noise = None if sites.noise is None else 1.0 / relation.noise_in_units(sites.noise.mean)
        return {
            "components_": loadings[:, :rank].T.copy(),
            "scores_": rows.mean[:, :rank].copy(),
            "explained_variance_": results.energies(posterior, relation, rank),
            "relevance_": 1.0 / posterior.precisions[1].mean[:rank],
            "mean_": np.zeros(len(loadings)) if bias < 0 else loadings[:, bias].copy(),
            "noise_variance_": noise if noise is None or len(noise) > 1 else float(noise[0]),
            "dispersion_": None if sites.r is None else sites.r.mean.copy(),
            **layout.told_of_rows(posterior),
        }

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _new_rows(self, X: Any) -> tuple[Matrix, State, RelationProblem]:
        """New rows of a fitted matrix, and their conditional posterior, all else as fitted."""
        check_is_fitted(self, "posterior_")
        refuse_rows_alone(self.posterior_)
        matrix = self._read(X, self._links[0].kind, reset=False, empty=True)
        link = self._links[0]._replace(matrix=matrix)
        return matrix, *new_rows(self.posterior_, {0: link}, self._where, n_threads(self.n_jobs))

    def transform(self, X: Any, return_cov: bool = False) -> Any:
        """Posterior means (n_samples, n_components) of the scores of new rows, given the fitted components.

        With Gaussian data the posterior is exact: N(Lam^-1 eta, Lam^-1), Lam = I + sum over the observed cells of
        tau_j E[v_j v_j']. Otherwise it is the best Gaussian under the augmentation's bound.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        return_cov : bool, default=False
            Also return their covariances, (n_samples, n_components, n_components).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> scores, covariances = model.transform([[5.1, 3.5, 1.4, 0.2]], return_cov=True)
        >>> scores.shape, covariances.shape
        ((1, 1), (1, 1, 1))
        """
        _, state, _ = self._new_rows(X)
        return scores_of(state.moments[0], self._where[0].rank, return_cov)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log evidence of each row given the fitted components, (n_samples,).

        For Gaussian data it is the log of the integral over the scores of exp E[log p(x | scores)], expectation over
        the components; for others the lower bound of that.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.score_samples([[5.1, 3.5, 1.4, 0.2]]).shape
        (1,)
        """
        _, state, problem = self._new_rows(X)
        return row_evidence(state, problem)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> X = load_iris().data
        >>> model = BayesianPCA(1, random_state=0).fit(X)
        >>> bool(model.score(X) == model.score_samples(X).mean())
        True
        """
        return float(np.mean(self.score_samples(X)))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Expected observations of rows whose scores (n_samples, n_components) are known, and row biases zero.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.inverse_transform([[0.0], [1.0]]).shape
        (2, 4)
        """
        check_is_fitted(self, "posterior_")
        scores, where = np.asarray(checks.check_unmasked(X, "X"), dtype=np.float64), self._where[0]
        if scores.ndim != 2 or scores.shape[1] != where.rank:
            fail_value(f"X must hold one column for each of {where.rank} components; got shape {scores.shape}.")
        mean = where.rows_at_zero(len(scores))
        mean[:, : where.rank] = scores
        return self._predict_new(Moments(mean, np.zeros((1, where.size)), True))[0]

    def predict_missing(self, X: Any = None, return_std: bool = False) -> Any:
        """The matrix (n_samples, n_features) with its missing cells replaced by their predictive means.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            New rows; without it the training matrix.
        return_std : bool, default=False
            Also return the predictive standard deviations of all cells, 0 where observed.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianPCA
        >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
        >>> X[0, 2] = np.nan
        >>> model = BayesianPCA(1, random_state=0).fit(X)
        >>> filled = model.predict_missing()
        >>> bool(np.isnan(filled).any()), filled.shape
        (False, (6, 3))
        """
        check_is_fitted(self, "posterior_")
        if X is None:
            if getattr(self, "_training", None) is None:
                fail_value("X must be given: a model that was loaded from a file does not hold its training matrix.")
            matrix = self._training
            mean, variance = results.predict_training(self.posterior_, 0, self._relation(0))
        else:
            matrix, state, _ = self._new_rows(X)
            mean, variance = self._predict_new(state.moments[0])
        return matrix.filled_with(mean, variance) if return_std else matrix.filled(mean)

    def predict_latent(self) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent value of every training cell, both (n_samples, n_features).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> mean, variance = model.predict_latent()
        >>> mean.shape, bool((variance > 0).all())
        ((150, 4), True)
        """
        relation = self._relation(0)
        return results.over_draws(self.posterior_, 0, relation, lambda u, v, *_: results.latent_block(relation, u, v))

    def reconstruct(self) -> np.ndarray:
        """Predictive means of all training cells, observed or not, (n_samples, n_features).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.reconstruct().shape
        (150, 4)
        """
        return results.predict_training(self.posterior_, 0, self._relation(0))[0]

    def _predict_new(self, rows: Moments) -> tuple[np.ndarray, np.ndarray]:
        """Predictive mean and variance of all cells of new rows."""
        sites = self.posterior_.sites[0]
        relation, tau = results.for_new_rows(self._relation(0), sites), results.predictive_parameters(sites)[0]
        return results.predict_block(relation, rows, self.posterior_.moments[1], tau, relation.known_r)


NOTHING = layout.no_data((1, 1))  # in place of the matrix while a fit is planned

_SHARED = """n_components : int or "auto", default="auto"
        Number of components K. By "auto" the fit starts from many, as the shape allows, at most 40 (fewer above a
        million cells), and keeps those that say something.
    method : {"vb", "vb-factorized", "gibbs"} or a record of settings, default="vb"
        Variational inference with a joint Gaussian per row and per column, the same fully factorised, or sampling. A
        record of `tensorcep.factor_models.settings` says how: ``FactorisedVB(step=0.3)``, ``VB()``,
        ``Gibbs(burn_in=100, thin=2)``.
    ard : bool, default=True
        Learn a precision for every component, so that those not needed vanish.
    bias : {"column", "row", "both", "none"}, default="column"
        Offsets in the latent value.
    standardize : bool, default=True
        Fit real columns less their means (where columns have offsets) and divided by their standard deviations, so
        that units do not matter; results are in the units of the data.
    absent : {"missing", "zero"}, default="missing"
        What cells that a sparse matrix does not store are. Zeros are stored: the matrix becomes a dense one.
    init : {"svd", "random"}, default="svd"
        Start at a truncated singular value decomposition, or at random.
    max_iter : int, default=500
    tol : float, default=1e-3
        Stop when the latent means change by less than this fraction of their size.
    n_jobs : int, optional
        Threads for lists of cells; the result does not depend on it. Dense matrices use BLAS on one thread.
    random_state : int, RandomState, Generator or None
    verbose : int, default=0
    row_prior : Features or Series, optional
        What is known of the rows beside their cells, for method="vb" in `fit`. `Features`: scores are a linear map of
        the features and noise, and both are learned. `Series`: every score follows an Ornstein-Uhlenbeck
        process along the labels of the rows (a dynamic factor model), whose length is learned. Rows without cells are
        predicted from it: append rows of missing cells to X for forecasts, or for rows of which features alone are
        known. Rows that were not in the X of `fit` are refused.

    Attributes
    ----------
    n_components_ : int
    components_ : ndarray (K, n_features)
        Posterior means of the loadings, in the order of their variance with columns on their own scales.
    scores_ : ndarray (n_samples, K)
        Posterior means of the training rows' scores.
    weights_ : ndarray (K,)
        Sizes of the components whose scores and loadings have norm 1.
    explained_variance_ : ndarray (K,)
        Expected variance of the latent values that a component explains, summed over features.
    relevance_ : ndarray (K,)
        Prior variance of a component's loadings, 1 / E[alpha_k].
    mean_ : ndarray (n_features,)
        Column biases, 0 where there are none.
    noise_variance_ : float, ndarray or None
    dispersion_ : ndarray or None
    lower_bound_ : float
        Of the log evidence; nan for samplers.
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
    feature_effects_ : DataFrame or None
        How scores depend on features of rows: columns feature, component, mean and sd, the surest first.
    lengths_ : ndarray (K,) or None
        Lengths of the processes of a series, in steps, the least distance of two rows; 0 where rows do not depend on
        each other.
"""


@dataclass(eq=False, repr=False)
class BayesianPCA(BasePCA):
    """Principal component analysis of real, binary or count matrices with missing cells.

    Real data have a noise variance for every column, or one for all; binary cells are Bernoulli(logistic(f)), or
    Bernoulli(Phi(f)) by "probit", counts negative binomial with probability logistic(f) and dispersion r (or Poisson
    with rate log(1 + e^f), under Boehning's bound), where f_ij = u_i . v_j + bias_j. Memory: some ten arrays of the
    size of a dense matrix, or of the list of observed cells; for dense real data some three by method "vb".

    Parameters
    ----------
    likelihood : {"gaussian", "bernoulli", "probit", "negbinomial", "poisson"}, default="gaussian"
    augmentation : {"direct", "noise", "boehning"}, default="direct"
        For data that are not Gaussian: Polya-Gamma variables on f, or on f plus a Gaussian noise in every cell; or
        Boehning's bound, for comparison. Poisson counts have that alone, which "direct" then stands for.
    dispersion : {"column", "row", "all"} or float, default="column"
        What has a dispersion r of its own, or its value where it is known.
    noise : {"column", "all"}, default="column"
        What has a noise variance of its own in real data: every column, or all of them one, in units of their scales.
    {shared}

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import BayesianPCA
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
    >>> X[0, 2] = np.nan
    >>> model = BayesianPCA(1, random_state=0).fit(X)
    >>> model.predict_missing().shape, model.transform(X[:2]).shape
    ((6, 3), (2, 1))
    >>> from tensorcep import Series
    >>> ahead = np.vstack([X, np.full((1, 3), np.nan)])
    >>> BayesianPCA(1, row_prior=Series(), random_state=0).fit(ahead).reconstruct()[-1].shape
    (3,)
    """

    likelihood: str = "gaussian"
    method: str | Settings = "vb"
    augmentation: str = "direct"
    ard: bool = True
    _: KW_ONLY
    dispersion: str | float = "column"
    noise: str = "column"

    def _planned_link(self) -> Link:
        link, noise = super()._planned_link(), check_choice("noise", self.noise, ("column", "all"))
        augmentation = check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        if noise != "column" and self.likelihood != "gaussian":
            fail_value(f"noise has a meaning only with likelihood='gaussian'; got noise={noise!r}; leave it out.")
        if self.likelihood != "negbinomial" and self.dispersion != "column":
            given = self.dispersion
            fail_value(f"dispersion has a meaning only with likelihood='negbinomial'; got {given!r}; leave it out.")
        if self.likelihood == "gaussian":  # which no augmentation concerns
            return link._replace(groups=noise)
        alone = augmentation_of(self.likelihood)  # the direct one, if there is that
        augmentation = alone if augmentation == "direct" else augmentation
        link = link._replace(likelihood=self.likelihood, augmentation=augmentation, groups="all")
        if link.kind.theta != "r":
            return link
        if isinstance(self.dispersion, str):
            return link._replace(groups=check_choice("dispersion", self.dispersion, ("all", "row", "column")))
        return link._replace(known_r=np.array([check_range("dispersion", self.dispersion, 0.0, include_low=False)]))


@dataclass(eq=False, repr=False)
class BayesianFactorAnalysis(BasePCA):
    """Factor analysis: Gaussian data with missing cells and a noise variance for every feature.

    Parameters
    ----------
    {shared}

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import BayesianFactorAnalysis
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
    >>> BayesianFactorAnalysis(1, random_state=0).fit(X).transform(X).shape
    (6, 1)
    """

    method: str | Settings = "vb"
    ard: bool = True


for _class in (BayesianPCA, BayesianFactorAnalysis):
    fill_docstring(_class, {"{shared}": _SHARED})
