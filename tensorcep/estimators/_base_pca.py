"""What BayesianPCA and BayesianFactorAnalysis share."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from tensorcep._checks import check_choice, check_int, check_random_state, check_range, fail_value
from tensorcep.estimators._matrices import Matrix, read_matrix
from tensorcep.estimators._options import n_threads
from tensorcep.estimators._relation_fit import (
    BIASES,
    RELATION_METHODS,
    Layout,
    Link,
    build_problem,
    fit_problem,
    layouts,
    relation_of,
)
from tensorcep.estimators._relation_predict import predict_cells
from tensorcep.inference._gammas import Gammas
from tensorcep.inference._relation_sites import Priors, row_bounds
from tensorcep.inference._relation_vb import RelationPosterior, RelationProblem, State
from tensorcep.inference._run import Run
from tensorcep.inference.pca_vb import PCA_VB
from tensorcep.inference.pca_vb import Options as NoOptions
from tensorcep.models.relations import DenseCells, Entity, Moments, as_packed, latent_moments, variances

NEW_ROWS_SWEEPS = 500
NEW_ROWS_TOL = 1e-8


def method_options(method: Any, own: Any) -> Any:
    """The settings of a method from a dict; a wrong name is answered with those that exist."""
    names = [field.name for field in dataclasses.fields(method.options)]
    own = {} if own is None else own
    if not isinstance(own, dict):
        raise TypeError(f"method_options must be a dict or None; got {type(own).__name__}.")
    for name in own:
        if name not in names:
            fail_value(f"method_options of method {method.name!r} may hold {names}; got {name!r}.")
    return method.options(**own)


class BasePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One matrix, x_ij given u_i . v_j + bias_j, with u_i ~ N(0, I)."""

    _noise_groups = "all"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.required = False
        tags.non_deterministic = self.random_state is None
        return tags

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit the factors to a matrix.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            NaN, and cells that a sparse matrix does not store, are missing.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before any work.
        """
        matrix = self._read(X, reset=True)
        N, D = matrix.cells.shape
        rank = min(10, N, D) if self.n_components is None else check_int("n_components", self.n_components)
        method = RELATION_METHODS[check_choice("method", self.method, RELATION_METHODS)]
        options = method_options(method, self.method_options)
        max_iter, tol = check_int("max_iter", self.max_iter), check_range("tol", self.tol, 0.0)
        if method.sampler and max_iter <= options.burn_in:
            fail_value(f"max_iter must be above the burn-in of {options.burn_in} sweeps; got {max_iter}.")
        link = self._link(matrix)
        rng = check_random_state(self.random_state)
        init = check_choice("init", self.init, ("svd", "random"))
        problem, where = build_problem([link], [N, D], rank, [False, bool(self.ard)], Priors(), rng, init)
        threads = n_threads(self.n_jobs)
        result = fit_problem(
            method, problem, options, max_iter=max_iter, tol=tol, n_threads=threads, verbose=bool(self.verbose)
        )
        self._keep(result, where, rank)
        self._training = matrix
        return self

    def _read(self, X: Any, reset: bool) -> Matrix:
        check_choice("absent", self.absent, ("missing", "zero"))
        likelihood = self._likelihood()
        X = validate_data(
            self, X, reset=reset, accept_sparse=["csr", "csc", "coo"], dtype=np.float64, ensure_all_finite="allow-nan"
        )
        return read_matrix(X, likelihood, self.absent)

    def _likelihood(self) -> str:
        return "gaussian"

    def _link(self, matrix: Matrix) -> Link:
        bias = check_choice("bias", self.bias, BIASES)
        return Link(matrix, 0, 1, "gaussian", bias=bias, groups=self._noise_groups)

    def _keep(self, result: Run, where: list[Layout], rank: int) -> None:
        """Set the fitted attributes that follow from the posterior; components in the order of their variance."""
        posterior: Any = result.posterior
        order = np.argsort(-_energies(posterior.moments, rank), kind="stable")
        self.posterior_ = _reordered(posterior, order)
        self._where = where
        self.lower_bound_ = float(result.trace["lower_bound"][-1])
        self.n_iter_, self.converged_, self.trace_ = result.n_iter, result.converged, result.trace
        self._set_attributes()

    def _set_attributes(self) -> None:
        rows, cols = self.posterior_.moments
        sites = self.posterior_.sites[0]
        K = self._where[1].rank
        self.components_ = cols.mean[:, :K].T.copy()
        self.scores_ = rows.mean[:, :K].copy()
        self.explained_variance_ = _energies(self.posterior_.moments, K)
        self.relevance_ = 1.0 / self.posterior_.precisions[1].mean[:K]
        bias = self._where[1].bias.get(0)
        self.mean_ = np.zeros(len(cols.mean)) if bias is None else cols.mean[:, bias].copy()
        noise = None if sites.noise is None else 1.0 / sites.noise.mean
        self.noise_variance_ = noise if noise is None or len(noise) > 1 else float(noise[0])
        self.dispersion_ = None if sites.r is None else sites.r.mean.copy()

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _new_rows(self, matrix: Matrix) -> tuple[State, RelationProblem]:
        """The conditional posterior of new rows, all else as fitted."""
        sites = self.posterior_.sites[0]
        r = None if sites.r is None else sites.r.mean
        groups = self._noise_groups if self._likelihood() == "gaussian" else self._link(matrix).groups
        if r is not None and groups == "row":  # a new row's dispersion is unknown: the mean of those seen
            groups, r = "all", np.array([r.mean()])
        link = self._link(matrix)._replace(groups=groups, known_r=r)
        where = layouts([link], 2, self._where[0].rank)
        relation = relation_of(link, 0, where)._replace(
            known_noise=None if sites.noise is None else sites.noise.mean,
        )
        n, layout = matrix.cells.shape[0], where[0]
        precision = self.posterior_.precisions[0].mean
        start = np.zeros((n, layout.size))
        if layout.one >= 0:
            start[:, layout.one] = 1.0
        cols = as_packed(self.posterior_.moments[1])
        nothing = np.zeros(layout.size, dtype=bool)
        rows = Entity(n, precision, nothing, layout.one)
        fixed = Entity(len(cols.mean), np.ones(where[1].size), np.zeros(where[1].size, dtype=bool), where[1].one)
        problem = RelationProblem((rows, fixed), (relation,), (start, cols.mean), (None, cols))
        result = fit_problem(
            PCA_VB, problem, NoOptions(), max_iter=NEW_ROWS_SWEEPS, tol=NEW_ROWS_TOL, n_threads=n_threads(self.n_jobs)
        )
        return result.state, problem

    def transform(self, X: Any, return_cov: bool = False) -> Any:
        """Posterior means of the scores of new rows, given the fitted components.

        With Gaussian data the posterior is exact: N(Lam^-1 eta, Lam^-1), Lam = I + sum over the observed cells of
        tau_j E[v_j v_j']. Otherwise it is the best Gaussian under the augmentation's bound.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        return_cov : bool, default=False

        Returns
        -------
        scores : ndarray (n_samples, n_components)
        covariances : ndarray (n_samples, n_components, n_components), if return_cov
        """
        check_is_fitted(self, "posterior_")
        state, _ = self._new_rows(self._read(X, reset=False))
        K = self._where[0].rank
        found = state.moments[0].select(np.arange(K))
        if not return_cov:
            return found.mean.copy()
        i, j = np.tril_indices(K)
        cov = np.empty((len(found.mean), K, K))
        cov[:, i, j] = cov[:, j, i] = np.broadcast_to(found.cov, (len(found.mean), len(i)))
        return found.mean.copy(), cov

    def score_samples(self, X: Any) -> np.ndarray:
        """Log evidence of each row given the fitted components, (n_samples,).

        For Gaussian data it is the log of the integral over the scores of exp E[log p(x | scores)], expectation over
        the components; for others the lower bound of that.
        """
        check_is_fitted(self, "posterior_")
        state, problem = self._new_rows(self._read(X, reset=False))
        values = row_bounds(problem.relations[0], state.sites[0], *state.latent[0])
        entity, moments = problem.entities[0], state.moments[0]
        precision = entity.precision[entity.free]
        free = moments.select(entity.free)
        spread = np.broadcast_to(variances(free), free.mean.shape)
        R = len(entity.free)
        i, j = np.tril_indices(R)
        full = np.empty((len(free.cov), R, R))
        full[:, i, j] = full[:, j, i] = free.cov
        log_det = np.broadcast_to(np.linalg.slogdet(full)[1], len(values))
        squares = (precision * (free.mean**2 + spread)).sum(axis=1)
        return np.asarray(values - 0.5 * (squares - R - log_det - np.log(precision).sum()))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Expected observations of rows with given scores (n_samples, n_components), at the mean components."""
        check_is_fitted(self, "posterior_")
        scores = np.asarray(X, dtype=np.float64)
        K = self._where[0].rank
        if scores.ndim != 2 or scores.shape[1] != K:
            fail_value(f"X must hold one column for each of {K} components; got shape {scores.shape}.")
        layout = self._where[0]
        mean = np.zeros((len(scores), layout.size))
        mean[:, :K] = scores
        if layout.one >= 0:
            mean[:, layout.one] = 1.0
        cols = self.posterior_.moments[1]
        zero = np.zeros((1, layout.size))
        found = self._predict(Moments(mean, zero, True), Moments(cols.mean, np.zeros((1, layout.size)), True), True)
        return found[0]

    def predict_missing(self, X: Any = None, return_std: bool = False) -> Any:
        """The matrix with its missing cells replaced by their predictive means.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            New rows; without it the training matrix.
        return_std : bool, default=False
            Also return the predictive standard deviations of all cells, 0 where observed.

        Returns
        -------
        filled : ndarray (n_samples, n_features)
        std : ndarray (n_samples, n_features), if return_std
        """
        check_is_fitted(self, "posterior_")
        if X is None:
            if self._training is None:
                fail_value("X must be given: a model that was loaded from a file does not hold its training matrix.")
            matrix = self._training
            mean, variance = self._predict_training()
        else:
            matrix = self._read(X, reset=False)
            rows = self._new_rows(matrix)[0].moments[0]
            mean, variance = self._predict(rows, self.posterior_.moments[1], True)
        filled = matrix.filled(mean)
        if not return_std:
            return filled
        seen = matrix._replace(x=np.zeros_like(matrix.x))
        return filled, seen.filled(np.sqrt(variance))

    def reconstruct(self) -> np.ndarray:
        """Predictive means of all training cells, observed or not, (n_samples, n_features)."""
        check_is_fitted(self, "posterior_")
        return self._predict_training()[0]

    def _predict_training(self) -> tuple[np.ndarray, np.ndarray]:
        """Predictive mean and variance of the training cells; over a sampler's draws where there are some."""
        draws = self.posterior_.draws
        if draws is None:
            rows, cols = self.posterior_.moments
            return self._predict(rows, cols, False)
        mean = square = np.zeros((1, 1))
        for s in range(len(draws.rows[0])):
            u, v = (Moments(rows[s], np.zeros((1, rows.shape[2])), True) for rows in draws.rows)
            noise, r = (None if found[0] is None else found[0][s] for found in (draws.noise, draws.r))
            m, variance = self._predict(u, v, False, noise, r)
            mean, square = mean + m, square + variance + m * m
        mean, square = mean / len(draws.rows[0]), square / len(draws.rows[0])
        return mean, square - mean**2

    def _predict(
        self, rows: Moments, cols: Moments, new: bool, tau: np.ndarray | None = None, r: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predictive mean and variance of all cells of some rows; noise and dispersion as fitted unless given."""
        if rows.diagonal != cols.diagonal:
            rows, cols = as_packed(rows), as_packed(cols)
        cells = DenseCells((len(rows.mean), len(cols.mean)))
        link = self._link(Matrix(cells, np.zeros((1, 1))))
        relation = relation_of(link, 0, self._where)
        u, v = rows.select(relation.row_coords), cols.select(relation.col_coords)
        with threadpool_limits(limits=1, user_api="blas"):
            f, variance = latent_moments(cells, u, v, lambda size, work: work(0, size))
        sites = self.posterior_.sites[0]
        tau = sites.noise.mean if tau is None and sites.noise is not None else tau
        r = sites.r.mean if r is None and sites.r is not None else r
        noise = np.zeros((1, 1)) if tau is None else cells.spread(1.0 / tau, self._noise_groups)
        if r is not None:  # a new row's own dispersion is unknown
            r = np.full((1, 1), r.mean()) if link.groups == "row" and new else cells.spread(r, link.groups)
        return predict_cells(link.likelihood, f, variance, noise, r)


def _energies(moments: tuple[Moments, ...], rank: int) -> np.ndarray:
    """Mean over rows of E[u_ik^2], times the sum over columns of E[v_jk^2]."""
    rows, cols = (m.mean[:, :rank] ** 2 + variances(m)[:, :rank] for m in moments)
    return np.asarray(rows.mean(axis=0) * cols.sum(axis=0))


def _reordered(posterior: RelationPosterior, order: np.ndarray) -> RelationPosterior:
    moments, precisions = [], []
    for m, p in zip(posterior.moments, posterior.precisions, strict=True):
        index = np.concatenate([order, np.arange(len(order), m.mean.shape[1])])
        moments.append(m.select(index))
        precisions.append(Gammas(p.mean[index], p.log_mean[index], p.divergence))
    return posterior._replace(moments=tuple(moments), precisions=tuple(precisions))
