"""What a fit of the CP model is going to do, decided and checked before anything is done or changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import AnyMethod, Callback, Run, run
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs.side_information import Local
from tensorcep.cp.model.problem import Problem

# Annealed sweeps of a mean-field fit that starts where another has ended: more of them lose what that has found.
REFIT_ANNEAL = 2


class Pilot(NamedTuple):
    """A quick fit of all columns, or of some.

    Attributes
    ----------
    name : str
        Of its columns.
    method, settings, problem
    columns : (Q,) int64
        The plan's columns that are the problem's.
    """

    name: str
    method: AnyMethod
    settings: Settings
    problem: Problem
    columns: np.ndarray


class Paired(NamedTuple):
    """The same fit in main effects and pairs of modes alone, which chains may ask for (`tensorcep.cp.fit.chains`).

    Attributes
    ----------
    plan : Plan
    few_may_do : bool
        Whether two chains may do, since their number was left open.
    """

    plan: Plan
    few_may_do: bool


class Plan(NamedTuple):
    """One fit, or the mixture of several.

    Attributes
    ----------
    method : AnyMethod
    settings : Settings
        With numbers where the spec's say "auto".
    problem : Problem
        It starts at the first of `starts`.
    starts : tuple of (n_rows, R) float64 or None
        Row means that fits start from, those of one member after the other; None is the prior's.
    members : int
        Fits that are mixed.
    spectral : bool
        Whether the first start is to come from the spectra of the data (`tensorcep.cp.init.residual`), where no pilot
        finds it.
    pilots : tuple of Pilot
        Fits from the spectra that go first: beside a sampler (`tensorcep.cp.fit.chains`), or one to start another
        method.
    max_iter, tol, n_threads, callbacks, verbose
        As `tensorcep.core.loop.run` takes them.
    local : Local or None
        Of rows that deviate, each by itself.
    after_pilot : Settings or None
        Of a fit that starts where a pilot has ended; None is `settings`.
    one_state : bool
        Whether no state waits while another start is tried, since states are large.
    paired : tuple of Paired
        What chains may go on with instead.
    """

    method: AnyMethod
    settings: Settings
    problem: Problem
    starts: tuple[np.ndarray | None, ...]
    members: int
    spectral: bool
    pilots: tuple[Pilot, ...]
    max_iter: int
    tol: float
    n_threads: int
    callbacks: tuple[Callback, ...]
    verbose: bool
    local: Local | None = None
    after_pilot: Settings | None = None
    one_state: bool = False
    paired: tuple[Paired, ...] = ()

    @property
    def how(self) -> dict[str, Any]:
        """What every run of the plan has in common."""
        return {
            "max_iter": self.max_iter,
            "tol": self.tol,
            "n_threads": self.n_threads,
            "callbacks": self.callbacks,
            "verbose": self.verbose,
        }

    @property
    def trial_iter(self) -> int:
        """Sweeps, without a tolerance, after which the best start goes on; 0 where there are no such sweeps."""
        sweeps = self.method.trial_sweeps(self.settings)
        return sweeps if sweeps < self.max_iter else 0

    @property
    def is_one_run(self) -> bool:
        """Whether one run from one start is all."""
        return self.members == 1 and self.trial_iter == 0


def continued(plan: Plan, begun: Run) -> Run:
    """Go on with a run to the plan's last sweep; the result is that of one run."""
    stage = "draws" if plan.method.capabilities.sampler else "the best start"
    going_on = {**plan.how, "max_iter": plan.max_iter - begun.n_iter, "stage": stage}
    rest = run(plan.method, plan.problem, plan.settings, state=begun.state, done=begun.n_iter, **going_on)
    trace = {name: np.concatenate([begun.trace[name], values]) for name, values in rest.trace.items()}
    return rest._replace(n_iter=begun.n_iter + rest.n_iter, trace=trace)
