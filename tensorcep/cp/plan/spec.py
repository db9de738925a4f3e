"""Parameters of the CP estimators after their checks, and numbers for what is "auto" in the settings of a method."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_int, check_range
from tensorcep.core.executor import MOST_VERBOSE, n_threads
from tensorcep.core.loop import Callback
from tensorcep.core.settings import Settings
from tensorcep.core.sweep_tasks import sweep_callbacks
from tensorcep.cp.settings.sampling import Sampler

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Undamped modewise updates converge for the Gaussian, whose messages are positive definite; other likelihoods and the
# parallel schedule need damping. Censored values far below their limit say little, and then updates overshoot.
AUTO_DAMPING: dict[tuple[str, str], float | str] = {("gaussian", "modewise"): 0.0, ("tobit", "modewise"): "adaptive"}
AUTO_DAMPING_OTHERWISE = 0.5
# Damped updates of labels and counts take longer to align the factors than undamped ones of real values; a prior that
# is learned finds its scale afterwards, and needs less.
AUTO_ANNEAL, AUTO_ANNEAL_LEARNED = {"gaussian": 15, "tobit": 15}, {"gaussian": 5, "tobit": 15}
AUTO_ANNEAL_OTHERWISE, AUTO_ANNEAL_LEARNED_OTHERWISE = 40, 15


class RunOptions(NamedTuple):
    """Checked parameters that `tensorcep.core.loop.run` takes, beside the number of sweeps."""

    tol: float
    n_threads: int
    callbacks: tuple[Callback, ...]
    verbose: bool


def checked_options(model: BaseCP) -> RunOptions:
    """The parameters that say how to run, after the checks of all parameters that no other function checks.

    Raises
    ------
    ValueError, TypeError
        If one is not allowed.
    """
    check_choice("unknown", model.unknown, ("prior", "error"))
    check_range("forget", model.forget, 0.0, 1.0, include_high=False)
    check_int("revisit", model.revisit, 0)
    callbacks = () if model.callbacks is None else model.callbacks
    callbacks = (callbacks,) if callable(callbacks) else callbacks
    if not isinstance(callbacks, (list, tuple)) or not all(callable(item) for item in callbacks):
        raise TypeError(f"callbacks must be a callable, a list of callables or None; got {model.callbacks!r}.")
    tol = check_range("tol", model.tol, 0.0)
    callbacks = (*callbacks, *sweep_callbacks(model))
    shows = model.verbose
    shows = shows if isinstance(shows, bool) else check_int("verbose", shows, 0, MOST_VERBOSE)
    return RunOptions(tol, n_threads(model.n_jobs), callbacks, bool(shows))


def with_numbers(
    settings: Settings, likelihood: str, learned: bool, max_iter: int, most_draws: float = np.inf
) -> Settings:
    """The settings with a number for whatever is "auto" in them.

    Parameters
    ----------
    settings : Settings
    likelihood : str
    learned : bool
        Whether the prior is learned as a whole (prior="learned").
    max_iter : int
    most_draws : float
        Draws of every chain that there is room for.
    """
    if isinstance(settings, Sampler):
        return settings.for_sweeps(max_iter, most_draws)
    values, numbers = settings.get_params(), {}
    if values.get("damping") == "auto":
        numbers["damping"] = AUTO_DAMPING.get((likelihood, values["schedule"]), AUTO_DAMPING_OTHERWISE)
    if "anneal" in values:
        anneal = _auto_anneal(likelihood, learned) if values["anneal"] == "auto" else values["anneal"]
        numbers["anneal"] = min(anneal, max_iter // 2)
    return dataclasses.replace(settings, **numbers)


def _auto_anneal(likelihood: str, learned: bool) -> int:
    if learned:
        return AUTO_ANNEAL_LEARNED.get(likelihood, AUTO_ANNEAL_LEARNED_OTHERWISE)
    return AUTO_ANNEAL.get(likelihood, AUTO_ANNEAL_OTHERWISE)


def matching_scale(mean_square: float, order: int, rank: int) -> float:
    """The prior scale at which the latent value, a sum of rank products of `order` factors, has this mean square."""
    return float((mean_square / rank) ** (0.5 / order)) if mean_square > 0.0 else 1.0


def checked_ensemble(members: int, init: Any) -> int:
    """Refuse a mixture of fits that would all be one."""
    if members > 1 and not is_random(init):
        raise ValueError(
            f"n_ensemble must be 1 without init='auto' or 'random', since all fits would be one; got {members}."
        )
    return members


def is_random(init: Any) -> bool:
    """Whether the starts of a fit differ from one another."""
    return isinstance(init, str) and init in ("auto", "random")
