"""What a fit of the CP model is going to do, decided and checked before anything is done or changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import AnyMethod, Callback
from tensorcep.core.settings import Settings
from tensorcep.cp.problem import Problem


class Plan(NamedTuple):
    """One fit, or the mixture of several.

    Attributes
    ----------
    method : AnyMethod
    settings : Settings
        With numbers where the estimator's say "auto".
    problem : Problem
        It starts at the first of `starts`.
    starts : tuple of (n_rows, R) float64 or None
        Row means that fits start from, those of one member after the other; None is the prior's.
    members : int
        Fits that are mixed.
    max_iter, tol, n_threads, callbacks, verbose
        As `tensorcep.core.loop.run` takes them.
    """

    method: AnyMethod
    settings: Settings
    problem: Problem
    starts: tuple[np.ndarray | None, ...]
    members: int
    max_iter: int
    tol: float
    n_threads: int
    callbacks: tuple[Callback, ...]
    verbose: bool

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
