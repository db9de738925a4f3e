"""What BayesianPCA and BayesianFactorAnalysis share."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core.checks import check_choice, check_int, check_random_state, fail_value
from tensorcep.core.executor import n_threads
from tensorcep.core.loop import Run
from tensorcep.core.packing import unpack
from tensorcep.factor_models.fit import BIASES, Layout, Link, build_problem, checked_method, fit_problem, relation_of
from tensorcep.factor_models.model import DenseCells, Moments, Relation
from tensorcep.factor_models.new_rows import new_rows, row_divergences
from tensorcep.factor_models.read import Matrix, read_matrix
from tensorcep.factor_models.sites import Priors, Sites, row_bounds
from tensorcep.factor_models.store import write_relations
from tensorcep.factor_models.summary import energies, parameters, predict_block, predict_training, reordered
from tensorcep.factor_models.updates import RelationProblem, State

SITES_WITHOUT_NOISE = Sites(np.zeros((1, 1)), np.zeros((1, 1)))


class BasePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
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
        method, options, how = checked_method(self)
        link = self._link(matrix)
        rng = check_random_state(self.random_state)
        init = check_choice("init", self.init, ("svd", "random"))
        problem, where = build_problem([link], [N, D], rank, [False, bool(self.ard)], Priors(), rng, init)
        result = fit_problem(method, problem, options, **how)
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
        relation = relation_of(self._link(Matrix(DenseCells((1, 1)), np.zeros((1, 1)))), 0, where)
        order = np.argsort(-energies(posterior, 0, relation, rank), kind="stable")
        self.posterior_ = reordered(posterior, order)
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
        self.explained_variance_ = energies(self.posterior_, 0, self._relation(), K)
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
        return new_rows(self.posterior_, {0: self._link(matrix)}, self._where, n_threads(self.n_jobs))

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
        return found.mean.copy(), np.broadcast_to(unpack(found.cov, K), (len(found.mean), K, K)).copy()

    def score_samples(self, X: Any) -> np.ndarray:
        """Log evidence of each row given the fitted components, (n_samples,).

        For Gaussian data it is the log of the integral over the scores of exp E[log p(x | scores)], expectation over
        the components; for others the lower bound of that.
        """
        check_is_fitted(self, "posterior_")
        state, problem = self._new_rows(self._read(X, reset=False))
        values = row_bounds(problem.relations[0], state.sites[0], *state.latent[0])
        return values - row_divergences(problem.entities[0], state.moments[0])

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Expected observations of rows whose scores (n_samples, n_components) are known, and row biases zero."""
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
        return self._predict_new(Moments(mean, np.zeros((1, layout.size)), True))[0]

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
            if getattr(self, "_training", None) is None:
                fail_value("X must be given: a model that was loaded from a file does not hold its training matrix.")
            matrix = self._training
            mean, variance = predict_training(self.posterior_, 0, self._relation())
        else:
            matrix = self._read(X, reset=False)
            rows = self._new_rows(matrix)[0].moments[0]
            mean, variance = self._predict_new(rows)
        filled = matrix.filled(mean)
        if not return_std:
            return filled
        seen = matrix._replace(x=np.zeros_like(matrix.x))
        return filled, seen.filled(np.sqrt(variance))

    def predict_latent(self) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent value of every training cell, both (n_samples, n_features)."""
        check_is_fitted(self, "posterior_")
        relation = self._relation()._replace(likelihood="gaussian", groups="all")
        posterior = self.posterior_._replace(sites=(SITES_WITHOUT_NOISE,))
        if posterior.draws is not None:
            posterior = posterior._replace(draws=posterior.draws._replace(noise=(None,), r=(None,)))
        return predict_training(posterior, 0, relation)

    def reconstruct(self) -> np.ndarray:
        """Predictive means of all training cells, observed or not, (n_samples, n_features)."""
        check_is_fitted(self, "posterior_")
        return predict_training(self.posterior_, 0, self._relation())[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz that `tensorcep.load` reads; the training data are not part of it."""
        check_is_fitted(self, "posterior_")
        write_relations(path, self, [self._link(self._shape_only())])

    def _shape_only(self) -> Matrix:
        shape = (len(self.posterior_.moments[0].mean), len(self.posterior_.moments[1].mean))
        return Matrix(DenseCells(shape), np.zeros((1, 1)))

    def _relation(self) -> Relation:
        """How rows and columns meet; without data."""
        return relation_of(self._link(self._shape_only()), 0, self._where)

    def _predict_new(self, rows: Moments) -> tuple[np.ndarray, np.ndarray]:
        """Predictive mean and variance of all cells of new rows."""
        relation, (tau, r) = self._relation(), parameters(self.posterior_.sites[0])
        if r is not None and relation.groups == "row":  # a new row's own dispersion is unknown
            relation, r = relation._replace(groups="all"), np.array([r.mean()])
        return predict_block(relation, rows, self.posterior_.moments[1], tau, r)
