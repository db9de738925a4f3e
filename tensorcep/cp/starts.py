"""Runs from several starts: the best one goes on, or all are mixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tensorcep.core.belief import Mixture, Posterior
from tensorcep.core.loop import Method, Run, run
from tensorcep.cp.problem import Problem


def mixed(runs: Sequence[Run]) -> Run:
    """One result of runs from different starts: their mixture, the one with the best train score first.

    Sweeps are counted over all runs, and the trace, which then also tells the member, holds one run after the other. It
    has converged if every run has.
    """
    if len(runs) == 1:
        return runs[0]
    order = sorted(runs, key=lambda one: -one.trace["train_score"][-1])
    members = tuple(one.posterior for one in order if isinstance(one.posterior, Posterior))
    trace = {name: np.concatenate([one.trace[name] for one in order]) for name in order[0].trace}
    trace["member"] = np.repeat(np.arange(len(order)), [one.n_iter for one in order])
    return Run(
        Mixture(members),
        sum(one.n_iter for one in order),
        all(one.converged for one in order),
        any(one.stopped for one in order),
        trace,
        order[0].state,
    )


def run_from_starts(
    method: Method,
    problem: Problem,
    options: Any,
    starts: Iterable[np.ndarray | None],
    *,
    trial_iter: int,
    max_iter: int,
    tol: float,
    **settings: Any,
) -> Run:
    """Run trial_iter sweeps from every start, and go on from the one with the best train score.

    The result is that of one run from that start; `settings` are those of `run`.
    """
    best: Run | None = None
    for start in starts:
        trial = run(method, problem._replace(start=start), options, max_iter=trial_iter, tol=0.0, **settings)
        if trial.stopped:
            return trial
        if best is None or trial.trace["train_score"][-1] > best.trace["train_score"][-1]:
            best = trial
    if best is None:
        raise ValueError("starts must hold at least one start; got none.")
    going_on: dict[str, Any] = {"state": best.state, "done": trial_iter, "max_iter": max_iter - trial_iter}
    rest = run(method, problem, options, tol=tol, **going_on, **settings)
    trace = {name: np.concatenate([best.trace[name], values]) for name, values in rest.trace.items()}
    return rest._replace(n_iter=best.n_iter + rest.n_iter, trace=trace)
