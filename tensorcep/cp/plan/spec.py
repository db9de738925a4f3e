"""What a user asks of a fit: the parameters of a CP estimator, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core import checks
from tensorcep.core.checks import fail_value
from tensorcep.core.executor import MOST_VERBOSE, n_threads
from tensorcep.core.loop import Callback
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs.side_information import check_mode_priors
from tensorcep.cp.methods import refuse_unable
from tensorcep.cp.model.columns import parts_of
from tensorcep.cp.settings import checked_method
from tensorcep.cp.targets.base import Target
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import Prior

PRIORS = ("auto", "fixed", *LEARNED)
INITS = ("auto", "random", "prior")
# Scales of the prior between which precisions and the squares of products stay finite.
SCALES = (1e-70, 1e70)


class FitSpec(NamedTuple):
    """The parameters of a CP estimator (`CPRegressor`): those of rows and of the run, which all share; its target."""

    target: Target
    rank: int | str
    method: str | Settings
    prior: Any
    prior_scale: float | str
    prior_mean: float | str
    interactions: str | dict[str, int]
    max_iter: int | str
    tol: float
    init: Any
    shape: tuple[int, ...] | None
    unknown: str
    forget: float
    revisit: int
    n_jobs: int | None
    random_state: Any
    verbose: int
    callbacks: Any
    sweep_callbacks: tuple[Callback, ...] = ()  # told of every sweep beside `callbacks`

    @property
    def asked(self) -> Likelihood:
        """The likelihood that a method is chosen for."""
        return self.target.asked(checked_method(self.method)[0])

    def knowing(self, coding: Mapping[str, Any]) -> FitSpec:
        """The same, where the target is to know how entries are coded."""
        return self._replace(target=self.target.knowing(coding))


def check_parameters(spec: FitSpec) -> None:
    """Refuse parameters that no fit takes, whatever the entries."""
    checked_options(spec)
    given_int("rank", spec.rank, 1)
    given_int("max_iter", spec.max_iter, 1)
    name, _ = checked_method(spec.method)
    checked_prior_kind(spec.prior)
    checks.word_or_range("prior_scale", spec.prior_scale, ("auto",), *SCALES)
    checks.word_or_range("prior_mean", spec.prior_mean, ("uniform",), -np.inf)
    if not is_auto(spec.interactions):
        parts_of(spec.interactions, 1)
    if isinstance(spec.init, str):
        checks.check_choice("init", spec.init, INITS)
    if spec.shape is not None:
        checks.check_shape(spec.shape)
    checks.check_random_state(spec.random_state)
    spec.target.asked(name)
    spec.target.check()


class RunOptions(NamedTuple):
    """Checked parameters that `tensorcep.core.loop.run` takes; the most sweeps once they are chosen."""

    tol: float
    n_threads: int
    callbacks: tuple[Callback, ...]
    verbose: bool
    max_iter: int = 0


def checked_options(spec: FitSpec) -> RunOptions:
    """The parameters that say how to run, after the checks of all parameters that no other function checks."""
    checks.check_choice("unknown", spec.unknown, ("prior", "error"))
    checks.check_range("forget", spec.forget, 0.0, 1.0, include_high=False)
    checks.check_int("revisit", spec.revisit, 0)
    callbacks = () if spec.callbacks is None else spec.callbacks
    callbacks = (callbacks,) if callable(callbacks) else callbacks
    if not isinstance(callbacks, (list, tuple)) or not all(callable(item) for item in callbacks):
        raise TypeError(f"callbacks must be a callable, a list of callables or None; got {spec.callbacks!r}.")
    tol, shows = checks.check_range("tol", spec.tol, 0.0), spec.verbose
    shows = shows if isinstance(shows, bool) else checks.check_int("verbose", shows, 0, MOST_VERBOSE)
    return RunOptions(tol, n_threads(spec.n_jobs), (*callbacks, *spec.sweep_callbacks), bool(shows))


def check_revisit(spec: FitSpec) -> None:
    """Refuse revisits to methods that have no message of every entry."""
    name, settings = checked_method(spec.method)
    if checks.check_int("revisit", spec.revisit, 0) and name != "auto":
        refuse_unable(settings or name, "revisits", f"cannot take revisit={spec.revisit}", instead="revisit=0")


def is_random(init: Any) -> bool:
    """Whether the starts of a fit differ from one another."""
    return isinstance(init, str) and init in ("auto", "random")


def checked_prior_kind(prior: Any) -> Any:
    """A word of `PRIORS`, or a Prior; of priors per mode "auto", since all of them are learned."""
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, Mapping):
        check_mode_priors(prior)
        return "auto"
    if not isinstance(prior, str):
        allowed = f"one of {PRIORS}, a tensorcep.Prior, or a dict of Features by mode, or Series, or Graph"
        fail_value(f"prior must be {allowed}; got {prior!r}.")
    return checks.check_choice("prior", prior, PRIORS)


def given_int(name: str, value: Any, auto: int) -> int:
    """The value of a parameter that is an integer >= 1, or what "auto" stands for."""
    return auto if is_auto(value) else checks.check_int(name, value, instead="'auto' or ")


def is_auto(value: Any) -> bool:
    """Whether it is the word that leaves a parameter open."""
    return isinstance(value, str) and value == "auto"
