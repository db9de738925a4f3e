"""What the CP estimators share: checks, building the problem, fitting, latent predictions, draws, saving."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tensorcep._checks import (
    check_choice,
    check_fraction,
    check_int,
    check_random_state,
    check_range,
    check_values,
    fail_value,
    warn_user,
)
from tensorcep.estimators._entries import coords_to_predict, distinct_unknown_rows, packed_rows, training_entries
from tensorcep.estimators._options import (
    ModelOptions,
    annealing_sweeps,
    cep_options,
    checked_prior,
    n_threads,
    start_means,
    word_or_range,
)
from tensorcep.inference import get_method
from tensorcep.inference._run import Problem, run, run_from_starts
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods._record import Likelihood
from tensorcep.models.cp import pack_entries
from tensorcep.persist import write_model
from tensorcep.posterior import GammaNoise, Posterior, Prior, natural_prior, offsets, pack
from tensorcep.predict import RowMoments, draw_latent, draw_rows, latent, moments_of_rows, per_mode


class BaseCP(BaseEstimator):  # type: ignore[misc]
    """Common part of the CP estimators. Entries are samples: X holds integer coordinates (N, K), y their values."""

    _has_noise = False

    def __init__(
        self,
        rank: int = 8,
        *,
        method: str = "cep",
        prior_scale: float | str = "auto",
        prior_mean: float | str = "uniform",
        prior: Prior | None = None,
        schedule: str = "modewise",
        moments: str = "cavity",
        order: int = 1,
        damping: float | str = "auto",
        anneal: int | str = "auto",
        max_iter: int = 200,
        tol: float = 3e-3,
        init: Any = "random",
        n_init: int = 3,
        shape: tuple[int, ...] | None = None,
        unknown: str = "prior",
        dtype: str = "float64",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ):
        self.rank = rank
        self.method = method
        self.prior_scale = prior_scale
        self.prior_mean = prior_mean
        self.prior = prior
        self.schedule = schedule
        self.moments = moments
        self.order = order
        self.damping = damping
        self.anneal = anneal
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.n_init = n_init
        self.shape = shape
        self.unknown = unknown
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # rows of X are coordinates of entries, not feature vectors
        tags.non_deterministic = self.random_state is None
        return tags

    def _likelihood_name(self) -> str:
        raise TypeError(f"{type(self).__name__} has no likelihood; use CPRegressor, CPClassifier or CPCountRegressor.")

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self._likelihood_name())

    def _noise_prior(self, y: np.ndarray) -> GammaNoise | None:
        return None

    def _auto_scale(self, y: np.ndarray, order: int, rank: int) -> float:
        """Prior standard deviation of a factor element when prior_scale="auto"."""
        return 1.0

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit the factors to observed entries.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, or SparseTensor
            Coordinates of the entries, counted from 0. A SparseTensor brings its values, shape and labels.
        y : array-like of shape (N,)
            Values of the entries; left out with a SparseTensor.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before any work.
        FloatingPointError
            If the result is not finite.
        """
        coords, values, shape, labels = training_entries(X, y, self.shape)
        options = self._checked_options(len(shape))
        likelihood = self._likelihood()
        method = get_method(self.method, likelihood)
        values = self._checked_targets(values, likelihood)
        rng = check_random_state(self.random_state)
        entries = pack_entries(coords, values, shape)
        values = values[entries.permutation]  # sums over them then do not depend on the order of the input
        prior, starts = self._prior_and_starts(values, shape, options, rng)
        prior_Lam, prior_eta = natural_prior(prior, shape, options.rank)
        problem = Problem(
            entries=entries,
            shape=shape,
            rank=options.rank,
            likelihood=likelihood,
            prior_Lam=prior_Lam,
            prior_eta=prior_eta,
            start=starts[0],
            noise_prior=self._noise_prior(values),
        )
        method_options = cep_options(options, likelihood)
        settings: dict[str, Any] = {
            "max_iter": options.max_iter,
            "tol": options.tol,
            "n_threads": options.threads,
            "callbacks": options.callbacks,
            "verbose": bool(self.verbose),
        }
        trial_iter = max(options.anneal, method_options.warm_up if options.order == 2 else 0)
        if 0 < trial_iter < options.max_iter:
            result = run_from_starts(method, problem, method_options, starts, trial_iter=trial_iter, **settings)
        else:
            result = run(method, problem, method_options, **settings)
        self._keep(result.posterior, labels, options, prior)
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        self.trace_ = result.trace
        if not result.converged and not result.stopped:
            last = result.trace["change"][-1]
            warn_user(
                f"{method.name} stopped after max_iter={options.max_iter} sweeps with a relative change of {last:.2g} "
                f"> tol={options.tol:g}; increase max_iter, raise tol, or add damping.",
                ConvergenceWarning,
            )
        return self

    def _checked_options(self, order: int) -> ModelOptions:
        check_choice("unknown", self.unknown, ("prior", "error"))
        damping = word_or_range("damping", self.damping, ("auto", "adaptive"), 0.0, 1.0, include_high=False)
        max_iter = check_int("max_iter", self.max_iter)
        callbacks = () if self.callbacks is None else self.callbacks
        callbacks = (callbacks,) if callable(callbacks) else callbacks
        if not isinstance(callbacks, (list, tuple)) or not all(callable(item) for item in callbacks):
            raise TypeError(f"callbacks must be a callable, a list of callables or None; got {self.callbacks!r}.")
        return ModelOptions(
            rank=check_int("rank", self.rank),
            schedule=check_choice("schedule", self.schedule, ("modewise", "parallel")),
            moments=check_choice("moments", self.moments, ("cavity", "posterior")),
            order=check_int("order", self.order, 1, 2),
            damping=damping,
            dtype=check_choice("dtype", _dtype_name(self.dtype), ("float64", "float32")),
            anneal=min(annealing_sweeps(self.anneal, self._likelihood_name()), max_iter // 2),
            max_iter=max_iter,
            tol=check_range("tol", self.tol, 0.0),
            threads=n_threads(self.n_jobs),
            callbacks=tuple(callbacks),
        )

    def _checked_targets(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        return likelihood.check_y(y)

    def _prior_and_starts(
        self, y: np.ndarray, shape: tuple[int, ...], options: ModelOptions, rng: np.random.Generator
    ) -> tuple[Prior, list[np.ndarray | None]]:
        if self.prior is not None:
            prior, scale = checked_prior(self.prior, shape, options.rank), 1.0
        else:
            scale = self._scale(y, len(shape), options.rank)
            if self.prior_mean == "uniform":  # the paper's prior: one draw per row, kept
                means: list[Any] = [scale * rng.random((n, options.rank)) for n in shape]
            else:
                means = [word_or_range("prior_mean", self.prior_mean, ("uniform",), -np.inf)] * len(shape)
            prior = Prior(means, [1.0 / scale**2] * len(shape))
        if isinstance(self.init, str) and self.init == "prior" and not any(np.any(np.asarray(m)) for m in prior.mean):
            fail_value('init="prior" starts at prior means of zero, where every message is zero; use init="random".')
        several = isinstance(self.init, str) and self.init == "random" and options.anneal > 0
        n_starts = check_int("n_init", self.n_init) if several else 1
        return prior, [start_means(self.init, shape, options.rank, scale, rng) for _ in range(n_starts)]

    def _scale(self, y: np.ndarray, order: int, rank: int) -> float:
        scale = word_or_range("prior_scale", self.prior_scale, ("auto",), 0.0, include_low=False)
        return self._auto_scale(y, order, rank) if scale == "auto" else float(scale)

    def _keep(self, posterior: Posterior, labels: tuple[Any, ...], options: ModelOptions, prior: Prior) -> None:
        """Set the fitted attributes that follow from the posterior."""
        self.posterior_ = posterior
        self.labels_ = labels
        self.shape_ = posterior.shape
        self.n_features_in_ = len(posterior.shape)
        unseen_mean = [np.asarray(m, dtype=float) for m in prior.mean]
        self._unseen_mean = np.stack([np.broadcast_to(_average(m, 1), (options.rank,)) for m in unseen_mean])
        precision = [np.asarray(p, dtype=float) for p in prior.precision]
        self._unseen_cov = np.stack(
            [np.linalg.inv(np.eye(options.rank) * p if p.ndim < 2 else _average(p, 2)) for p in precision]
        )
        self._set_moments()

    def _set_moments(self) -> None:
        known = moments_of_rows(self.posterior_)
        if not (np.isfinite(known.mean).all() and np.isfinite(known.cov).all()):
            raise FloatingPointError("the fit produced values that are not finite; add damping or a tighter prior.")
        self.factors_, self.factor_covs_ = per_mode(known, self.shape_)
        # one more row per mode stands for rows that the model does not know
        self._moments = RowMoments(
            np.concatenate([known.mean, self._unseen_mean]), np.concatenate([known.cov, pack(self._unseen_cov)])
        )

    def _rows(self, X: Any) -> np.ndarray:
        """Packed rows (n, K) of the entries X; unknown rows point at their mode's prior row."""
        check_is_fitted(self, "posterior_")
        return packed_rows(coords_to_predict(X, self.labels_), self.posterior_, self.unknown)

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent value (the CP sum) of each entry.

        The variance is that of the product of the factors under the posterior; it holds no observation noise.

        Parameters
        ----------
        X : array-like of shape (n, K), SparseTensor, or DataFrame of labels

        Returns
        -------
        mean, variance : ndarray of shape (n,)
        """
        return latent(self._moments_checked(), self._rows(X))

    def _moments_checked(self) -> RowMoments:
        check_is_fitted(self, "posterior_")
        return self._moments

    def sample_posterior(self, n_samples: int = 1, X: Any = None, random_state: Any = None) -> Any:
        """Draw from the posterior of the factors.

        Parameters
        ----------
        n_samples : int
        X : entries as in `predict`, optional
        random_state : int, RandomState, Generator or None

        Returns
        -------
        list of ndarray (n_samples, n_k, R), or ndarray (n_samples, n)
            The factors of every mode, or, with X, the latent values of its entries.
        """
        moments, rng = self._moments_checked(), check_random_state(random_state)
        n = check_int("n_samples", n_samples)
        if X is not None:
            rows, origin = distinct_unknown_rows(self._rows(X), coords_to_predict(X, self.labels_), self.shape_)
            return draw_latent(draw_rows(RowMoments(moments.mean[origin], moments.cov[origin]), n, rng), rows)
        draws = draw_rows(moments, n, rng)
        first = offsets(self.shape_)
        return [draws[:, a:b] for a, b in itertools.pairwise(first)]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw new observations of the entries X, (n_samples, n): factor uncertainty and observation noise."""
        rng = check_random_state(random_state)
        f = self.sample_posterior(n_samples, X, rng)
        likelihood = self._likelihood()
        theta = self._draw_theta(n_samples, rng)
        return np.stack([likelihood.sample(rng, f_s, np.full_like(f_s, t)) for f_s, t in zip(f, theta, strict=True)])

    def _draw_theta(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._theta(n)

    def _theta(self, n: int) -> np.ndarray:
        return np.full(n, self._likelihood().default_theta)

    def log_score(self, X: Any, y: Any) -> np.ndarray:
        """Log predictive density or mass of the observations y, (n,)."""
        likelihood = self._likelihood()
        mean, variance = self.predict_latent(X)
        values = likelihood.check_y(check_values(y, len(mean), name="y"))
        return likelihood.logpdf(values, mean, variance, self._theta(len(mean)))

    def _observation_interval(self, X: Any, coverage: float) -> np.ndarray:
        tail = 0.5 * (1.0 - check_fraction("coverage", coverage))
        mean, variance = self.predict_latent(X)
        quantile, theta = self._likelihood().quantile, self._theta(len(mean))
        return np.stack([quantile(q, mean, variance, theta) for q in (tail, 1.0 - tail)], axis=1)

    def to_tensorly(self) -> Any:
        """The posterior means as a TensorLy CPTensor with unit weights."""
        from tensorly.cp_tensor import CPTensor

        check_is_fitted(self, "posterior_")
        return CPTensor((np.ones(self.posterior_.rank), [factor.copy() for factor in self.factors_]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one .npz file, atomically; `tensorcep.load` reads it back.

        The parameters `callbacks`, `prior`, `init` (when it is an array) and a `random_state` that is not an integer
        are not part of the file: they have done their work.
        """
        check_is_fitted(self, "posterior_")
        write_model(path, self)


def _average(values: np.ndarray, item_dims: int) -> np.ndarray:
    """Mean over rows of per-row values (item_dims dimensions each); shared values as they are."""
    return values.mean(axis=0) if values.ndim > item_dims else values


def _dtype_name(dtype: Any) -> Any:
    """The name of a numpy dtype; what is none, as it is."""
    try:
        return np.dtype(dtype).name
    except TypeError:
        return dtype
