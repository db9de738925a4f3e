"""Parameters of the CP estimators after their checks."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_int, fail_value, word_or_range
from tensorcep.core.loop import Method
from tensorcep.cp.estimators.structure import Learner
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import Prior

# Undamped modewise updates converge for the Gaussian, whose messages are positive definite; other likelihoods and the
# parallel schedule need damping. Censored values far below their limit say little, and then updates overshoot.
AUTO_DAMPING: dict[tuple[str, str], float | str] = {("gaussian", "modewise"): 0.0, ("tobit", "modewise"): "adaptive"}
AUTO_DAMPING_OTHERWISE = 0.5


# Damped updates of labels and counts take longer to align the factors than undamped ones of real values; a prior that
# is learned finds its scale afterwards, and needs less.
AUTO_ANNEAL, AUTO_ANNEAL_LEARNED = {"gaussian": 15, "tobit": 15}, {"gaussian": 5, "tobit": 15}
AUTO_ANNEAL_OTHERWISE, AUTO_ANNEAL_LEARNED_OTHERWISE = 40, 15


class ModelOptions(NamedTuple):
    """Checked parameters of a fit (names as in the estimators); rank counts all columns, free (K, R) tells which are
    inferred in which mode.
    """

    rank: int
    free: np.ndarray
    schedule: str
    moments: str
    order: int
    damping: float | str
    dtype: str
    anneal: int
    max_iter: int
    tol: float
    threads: int
    callbacks: tuple[Any, ...]
    members: int


def method_settings(method: Method, options: ModelOptions, likelihood: Likelihood, own: Any) -> Any:
    """The settings of a method: the estimator's parameters that it has too, and its own (`method_options`).

    Raises
    ------
    ValueError, TypeError
        If the method has no such setting (the sentence lists what it has), or a value is not allowed.
    """
    names = [field.name for field in dataclasses.fields(method.options)]  # type: ignore[arg-type]
    damping = options.damping
    if damping == "auto":
        damping = AUTO_DAMPING.get((likelihood.name, options.schedule), AUTO_DAMPING_OTHERWISE)
    shared = {k: v for k, v in options._replace(damping=damping)._asdict().items() if k in names}
    own = {} if own is None else own
    if not isinstance(own, dict):
        raise TypeError(f"method_options must be a dict or None; got {type(own).__name__}.")
    for name in own:
        if name not in names:
            fail_value(f"method_options of method {method.name!r} may hold {names}; got {name!r}.")
    return method.options(**{**shared, **own})


def run_settings(options: ModelOptions, verbose: bool) -> dict[str, Any]:
    """What `inference._run.run` takes from the parameters of a fit."""
    return {
        "max_iter": options.max_iter,
        "tol": options.tol,
        "n_threads": options.threads,
        "callbacks": options.callbacks,
        "verbose": verbose,
    }


def matching_scale(mean_square: float, order: int, rank: int) -> float:
    """The prior scale at which the latent value, a sum of rank products of `order` factors, has this mean square."""
    return float((mean_square / rank) ** (0.5 / order)) if mean_square > 0.0 else 1.0


def annealing_sweeps(anneal: Any, likelihood: str, learned: bool) -> int:
    """The number of annealed sweeps; "auto" by likelihood and by whether the prior is learned."""
    if anneal == "auto" and learned:
        return AUTO_ANNEAL_LEARNED.get(likelihood, AUTO_ANNEAL_LEARNED_OTHERWISE)
    if anneal == "auto":
        return AUTO_ANNEAL.get(likelihood, AUTO_ANNEAL_OTHERWISE)
    if isinstance(anneal, str):
        fail_value(f"anneal must be 'auto' or an integer >= 0; got {anneal!r}.")
    return check_int("anneal", anneal, 0)


def checked_prior(prior: Any, shape: tuple[int, ...], rank: int) -> Prior:
    """Return a Prior whose means and precisions fit the shape, are finite, and positive definite."""
    if not isinstance(prior, Prior):
        fail_value(f"prior must be 'auto', 'fixed', 'learned', 'ard' or a tensorcep.Prior; got {type(prior).__name__}.")
    if not len(prior.mean) == len(prior.precision) == len(shape):
        fail_value(
            f"prior must hold one mean and one precision for each of {len(shape)} modes; got {len(prior.mean)} and "
            f"{len(prior.precision)}."
        )
    for k, (n, mean, precision) in enumerate(zip(shape, prior.mean, prior.precision, strict=True)):
        mean, precision = np.asarray(mean, dtype=np.float64), np.asarray(precision, dtype=np.float64)
        if mean.shape not in ((), (rank,), (n, rank)):
            fail_value(f"prior.mean of mode {k} must have shape (), ({rank},) or ({n}, {rank}); got {mean.shape}.")
        if precision.shape not in ((), (rank,), (rank, rank), (n, rank, rank)):
            allowed = f"(), ({rank},), ({rank}, {rank}) or ({n}, {rank}, {rank})"
            fail_value(f"prior.precision of mode {k} must have shape {allowed}; got {precision.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            fail_value(f"prior of mode {k} must be finite; got nan or infinity.")
        least = precision.min() if precision.ndim < 2 else np.linalg.eigvalsh(precision).min()
        if least <= 0.0:
            fail_value(f"prior.precision of mode {k} must be positive definite; its least eigenvalue is {least:g}.")
    return prior


def learned_prior(kind: str, centre: Any, scale: float, order: int, rank: int) -> tuple[Prior, Learner]:
    """The rows' prior to begin with, and what learns it, for prior="learned" or "ard".

    The mean of the rows is expected at `centre`; at 0 for "uniform".
    """
    check_choice("prior", kind, tuple(LEARNED))
    middle = 0.0 if centre == "uniform" else word_or_range("prior_mean", centre, ("uniform",), -np.inf)
    full = np.ones((order, rank))
    learned = partial(LEARNED[kind], mean=middle * full, scale=scale * full, free=full > 0.0)
    return Prior([middle] * order, [scale**-2] * order), learned


def start_means(init: Any, shape: tuple[int, ...], rank: int, scale: float, rng: np.random.Generator) -> Any:
    """Row means to start from, (n_rows, R), or None for the prior's.

    "random" draws from N(0, scale^2): at a common mean every component would get the same messages, and at the prior
    mean zero no messages at all.
    """
    if isinstance(init, str):
        if check_choice("init", init, ("random", "prior")) == "prior":
            return None
        return scale * rng.standard_normal((sum(shape), rank))
    if not isinstance(init, (list, tuple)):
        fail_value(f"init must be 'random', 'prior', or a list of one array per mode; got {init!r}.")
    factors = [np.asarray(factor, dtype=np.float64) for factor in init]
    if [factor.shape for factor in factors] != [(n, rank) for n in shape]:
        fail_value(
            f"init must be 'random', 'prior', or one array (n_k, {rank}) per mode of the shape {shape}; got arrays of "
            f"shapes {[factor.shape for factor in factors]}."
        )
    if not all(np.isfinite(factor).all() for factor in factors):
        fail_value("init must be finite; got nan or infinity.")
    return np.concatenate(factors)
