"""What the CP estimators share: checks, building the problem, fitting."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.belief import GammaNoise, Result, first_member
from tensorcep.core.checks import (
    check_choice,
    check_int,
    check_random_state,
    check_range,
    fail_value,
    warn_user,
    word_or_range,
)
from tensorcep.core.executor import n_threads
from tensorcep.core.loop import Run, run
from tensorcep.cp.columns import free_columns
from tensorcep.cp.estimators.defaults import Chosen, abilities_for, choose
from tensorcep.cp.estimators.entries import training_entries
from tensorcep.cp.estimators.options import (
    ModelOptions,
    annealing_sweeps,
    checked_prior,
    learned_prior,
    method_settings,
    run_settings,
    start_means,
)
from tensorcep.cp.estimators.streaming import StreamingCP
from tensorcep.cp.estimators.structure import Learner, structure, structured_prior, structured_start
from tensorcep.cp.methods import get_method
from tensorcep.cp.model import pack_entries
from tensorcep.cp.problem import Problem
from tensorcep.cp.starts import mixed, run_from_starts
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import FixedPrior, Prior, natural_prior


class BaseCP(StreamingCP):
    """Common part of the CP estimators. Entries are samples: X holds integer coordinates (N, K), y their values."""

    def __init__(
        self,
        rank: int | str = "auto",
        *,
        method: str = "auto",
        prior_scale: float | str = "auto",
        prior_mean: float | str = "uniform",
        prior: Prior | str = "auto",
        interactions: str | dict[str, int] = "auto",
        schedule: str = "modewise",
        moments: str = "cavity",
        order: int = 1,
        damping: float | str = "auto",
        anneal: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float = 3e-3,
        init: Any = "random",
        n_init: int = 3,
        n_ensemble: int | str = "auto",
        shape: tuple[int, ...] | None = None,
        unknown: str = "prior",
        dtype: str = "float64",
        method_options: dict[str, Any] | None = None,
        forget: float = 0.0,
        revisit: int = 0,
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
        self.interactions = interactions
        self.schedule = schedule
        self.moments = moments
        self.order = order
        self.damping = damping
        self.anneal = anneal
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.n_init = n_init
        self.n_ensemble = n_ensemble
        self.shape = shape
        self.unknown = unknown
        self.dtype = dtype
        self.method_options = method_options
        self.forget = forget
        self.revisit = revisit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # rows of X are coordinates of entries, not feature vectors
        tags.non_deterministic = self.random_state is None
        return tags

    def _noise_prior(self, y: np.ndarray) -> GammaNoise | None:
        return None

    def _intercept(self, y: np.ndarray) -> float:
        """Latent value that every entry would have if they did not differ, where main effects need one to start at."""
        return 0.0

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
        entries = training_entries(X, y, self.shape)
        self._note_source(X, first=True)
        self._fit_entries(*entries)
        return self

    def _fit_entries(
        self,
        coords: np.ndarray,
        values: np.ndarray,
        shape: tuple[int, ...],
        labels: tuple[Any, ...],
        streaming: bool = False,
    ) -> tuple[Problem, Run]:
        """Fit checked entries, and return the problem that they made and the run that solved it.

        The first batch of a stream (`streaming`) gets one fit, since a stream has one posterior.
        """
        self._forget_stream()
        self._choose_likelihood(values, shape, streaming)
        likelihood = self._likelihood()
        chosen = choose(self, likelihood, len(values), shape, streaming)
        options = self._checked_options(chosen, len(shape))
        several = ("mixes",) * (options.members > 1)
        method = get_method(chosen.method, likelihood, abilities_for(chosen) + several)
        if streaming:
            options = options._replace(members=1)
        settings = method_settings(method, options, likelihood, self.method_options)
        values = self._checked_targets(values, likelihood)
        rng = check_random_state(self.random_state)
        trial_iter = method.trial_sweeps(settings)
        entries = pack_entries(coords, values, shape)
        values = values[entries.permutation]  # sums over them then do not depend on the order of the input
        prior, learner, starts = self._prior_and_starts(values, shape, chosen.prior, options, rng, trial_iter > 0)
        natural = natural_prior(prior, shape, options.rank)
        problem = Problem(
            entries=entries,
            shape=shape,
            rank=options.rank,
            likelihood=likelihood,
            prior=FixedPrior(*natural) if learner is None else learner(*natural),
            start=starts[0],
            noise_prior=self._noise_prior(values),
            seed=int(rng.integers(2**63)),
            free=None if options.free.all() else options.free,
        )
        how = run_settings(options, bool(self.verbose))
        runs: list[Run] = []
        for mine in np.array_split(np.arange(len(starts)), options.members):
            member = problem._replace(start=starts[mine[0]])
            if 0 < trial_iter < options.max_iter:
                own = [starts[i] for i in mine]
                found = run_from_starts(method, member, settings, own, trial_iter=trial_iter, **how)
            else:
                found = run(method, member, settings, **how)
            runs.append(found if options.members == 1 else found._replace(state=None))  # states hold all messages
            if found.stopped:
                break
        result = mixed(runs)
        self._keep(result.posterior, labels, chosen, prior)
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        self.trace_ = result.trace
        self.n_samples_seen_, self.n_batches_ = len(values), 1
        if not method.sampler and not result.converged and not result.stopped:
            last = max(one.trace["change"][-1] for one in runs)
            warn_user(
                f"{method.name} stopped after max_iter={options.max_iter} sweeps with a relative change of {last:.2g} "
                f"> tol={options.tol:g}; increase max_iter, raise tol, or add damping.",
                ConvergenceWarning,
            )
        return problem, result

    def _checked_options(self, chosen: Chosen, order: int) -> ModelOptions:
        """Check the parameters that the fit of `order` modes needs."""
        check_choice("unknown", self.unknown, ("prior", "error"))
        check_range("forget", self.forget, 0.0, 1.0, include_high=False)
        check_int("revisit", self.revisit, 0)
        damping = word_or_range("damping", self.damping, ("auto", "adaptive"), 0.0, 1.0, include_high=False)
        callbacks = () if self.callbacks is None else self.callbacks
        callbacks = (callbacks,) if callable(callbacks) else callbacks
        if not isinstance(callbacks, (list, tuple)) or not all(callable(item) for item in callbacks):
            raise TypeError(f"callbacks must be a callable, a list of callables or None; got {self.callbacks!r}.")
        free = free_columns(chosen.parts, order)
        if not free.all() and isinstance(chosen.prior, Prior):
            fail_value("prior must be 'fixed', 'learned' or 'ard' with interactions; a Prior serves interactions='cp'.")
        return ModelOptions(
            rank=free.shape[1],
            free=free,
            schedule=check_choice("schedule", self.schedule, ("modewise", "parallel")),
            moments=check_choice("moments", self.moments, ("cavity", "posterior")),
            order=check_int("order", self.order, 1, 2),
            damping=damping,
            dtype=check_choice("dtype", _dtype_name(self.dtype), ("float64", "float32")),
            anneal=min(
                annealing_sweeps(self.anneal, self._likelihood_name(), chosen.prior_name == "learned"),
                chosen.max_iter // 2,
            ),
            max_iter=chosen.max_iter,
            tol=check_range("tol", self.tol, 0.0),
            threads=n_threads(self.n_jobs),
            callbacks=tuple(callbacks),
            members=chosen.members,
        )

    def _choose_likelihood(self, y: np.ndarray, shape: tuple[int, ...], streaming: bool) -> None:
        """Decide what of the likelihood depends on the values of a fit, or of the first batch of a stream."""

    def _checked_targets(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        return likelihood.check_y(y)

    def _prior_and_starts(
        self,
        y: np.ndarray,
        shape: tuple[int, ...],
        kind: Any,
        options: ModelOptions,
        rng: np.random.Generator,
        may_choose: bool,
    ) -> tuple[Prior, Learner | None, list[np.ndarray | None]]:
        learner: Learner | None = None
        if not options.free.all():
            return self._structured(y, shape, kind, options, rng, may_choose)
        if isinstance(kind, str) and kind in LEARNED:
            scale = self._scale(y, len(shape), options.rank)
            prior, learner = learned_prior(kind, self.prior_mean, scale, len(shape), options.rank)
        elif isinstance(kind, Prior):
            prior, scale = checked_prior(kind, shape, options.rank), 1.0
        else:
            scale = self._scale(y, len(shape), options.rank)
            if self.prior_mean == "uniform":  # the paper's prior: one draw per row, kept
                means: list[Any] = [scale * rng.random((n, options.rank)) for n in shape]
            else:
                means = [word_or_range("prior_mean", self.prior_mean, ("uniform",), -np.inf)] * len(shape)
            prior = Prior(means, [1.0 / scale**2] * len(shape))
        if isinstance(self.init, str) and self.init == "prior" and not any(np.any(np.asarray(m)) for m in prior.mean):
            fail_value('init="prior" starts at prior means of zero, where every message is zero; use init="random".')
        n_starts = self._n_starts(options.members, may_choose)
        return prior, learner, [start_means(self.init, shape, options.rank, scale, rng) for _ in range(n_starts)]

    def _structured(
        self,
        y: np.ndarray,
        shape: tuple[int, ...],
        kind: Any,
        options: ModelOptions,
        rng: np.random.Generator,
        may_choose: bool,
    ) -> tuple[Prior, Learner | None, list[np.ndarray | None]]:
        """As `_prior_and_starts`, for a model with main effects or interactions."""
        if isinstance(self.init, str) and check_choice("init", self.init, ("random", "prior")) == "prior":
            fail_value('init="prior" starts interactions at zero, where every message is zero; use init="random".')
        centre = 0.0 if self.prior_mean == "uniform" else check_range("prior_mean", self.prior_mean)
        intercept = self._intercept(y)
        found = structure(options.free, intercept, centre, lambda j, n: self._scale(y - intercept, j, n))
        prior, learner = structured_prior(found, None if kind == "fixed" else kind)
        given = None if isinstance(self.init, str) else start_means(self.init, shape, options.rank, 1.0, rng)
        n_starts = self._n_starts(options.members, may_choose)
        return prior, learner, [structured_start(found, shape, given, rng) for _ in range(n_starts)]

    def _n_starts(self, members: int, may_choose: bool) -> int:
        """Starts of all members of the ensemble."""
        at_random = isinstance(self.init, str) and self.init == "random"
        if members > 1 and not at_random:
            fail_value(f"n_ensemble must be 1 without init='random', since all fits would be one; got {members}.")
        return members * (check_int("n_init", self.n_init) if at_random and may_choose else 1)

    def _scale(self, y: np.ndarray, order: int, rank: int) -> float:
        scale = word_or_range("prior_scale", self.prior_scale, ("auto",), 0.0, include_low=False)
        return self._auto_scale(y, order, rank) if scale == "auto" else float(scale)

    def _keep(self, posterior: Result, labels: tuple[Any, ...], chosen: Chosen, prior: Prior) -> None:
        """Set the fitted attributes that follow from the posterior."""
        self.method_, self.rank_, self.max_iter_ = chosen.method, chosen.rank, chosen.max_iter
        self.prior_, self.interactions_ = chosen.prior_name, chosen.parts
        self.posterior_ = posterior
        self.labels_ = labels
        self.shape_ = posterior.shape
        self.n_features_in_ = len(posterior.shape)
        learned = getattr(first_member(posterior), "mode_prior", None)
        if learned is not None:
            prior = Prior(learned.mean, learned.precision)
        unseen_mean = [np.asarray(m, dtype=float) for m in prior.mean]
        self._unseen_mean = np.stack([np.broadcast_to(_average(m, 1), (posterior.rank,)) for m in unseen_mean])
        precision = [np.asarray(p, dtype=float) for p in prior.precision]
        self._unseen_cov = np.stack(
            [np.linalg.inv(np.eye(posterior.rank) * p if p.ndim < 2 else _average(p, 2)) for p in precision]
        )
        self._set_moments()


def _average(values: np.ndarray, item_dims: int) -> np.ndarray:
    """Mean over rows of per-row values (item_dims dimensions each); shared values as they are."""
    return values.mean(axis=0) if values.ndim > item_dims else values


def _dtype_name(dtype: Any) -> Any:
    """The name of a numpy dtype; what is none, as it is."""
    try:
        return np.dtype(dtype).name
    except TypeError:
        return dtype
