"""How a batch of a stream is learned: by sweeps as bold as it bears.

The posterior so far is a start that hardly any batch moves far, and from there sweeps that are not damped reach the
fixed point that damped ones reach in a third of the sweeps. The published formula learns most: the messages that
CEP.positive would limit are the surprising entries'. But messages may overshoot, and when many surprising ones meet in
one row they can outweigh its prior. So a batch is learned boldly at first, and if that shows trouble, all of it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tensorcep.core.loop import AnyMethod, Run, Sweep, run
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.settings.messages import CEP

# A sweep that is not damped must bring the change down to such a share of the one before: damped ones halve it.
LEAST_FALL = 0.5


def may_be_bold(settings: Any) -> bool:
    """Whether settings leave the damping open, of sweeps that do not need it from the first on."""
    if not isinstance(settings, CEP) or settings.damping != "auto":
        return False
    return settings.schedule == "modewise" and settings.order == 1


def learn(
    method: AnyMethod, problem: Problem, settings: Any, *, bold: bool = False, callbacks: Sequence[Any] = (), **how: Any
) -> Run:
    """Run a method on one batch; of CEP with safeguards for labels and counts.

    With `bold` the first attempt is without damping; it ends where a sweep does not bring the change down. Then the
    batch is learned by the formula, damped as the settings say, and if an update had to be skipped or a row shrunk on
    the way, all of it is learned again with positive messages.
    """
    if not isinstance(settings, CEP):
        return run(method, problem, dataclasses.replace(settings, anneal=0), callbacks=callbacks, **how)
    if problem.noise_prior is not None:
        a, b = problem.noise_prior
        # one more entry as the posterior so far expects it, so that the noise starts where it was
        settings = dataclasses.replace(settings, anneal=0, message_noise=(0.5, 0.5 * b / a))
        return run(method, problem, settings, callbacks=callbacks, **how)
    attempts: list[tuple[dict[str, Any], Any]] = [({"positive": False}, _in_trouble)]
    if bold:
        attempts.insert(0, ({"positive": False, "damping": 0.0}, _Falling(how["tol"])))
    for changes, watch in attempts:
        ended = _Ended(watch)
        attempt = dataclasses.replace(settings, anneal=0, **changes)
        result = run(method, problem, attempt, callbacks=(*callbacks, ended), **how)
        if not ended.by_watch:
            return result
    settings = dataclasses.replace(settings, anneal=0, positive=True)
    return run(method, problem, settings, callbacks=callbacks, **how)


class _Ended:
    """A callback that stops where another one says so, and remembers it."""

    def __init__(self, watch: Any) -> None:
        self.watch, self.by_watch = watch, False

    def __call__(self, n: int, sweep: Sweep, state: Any) -> bool:
        self.by_watch = self.by_watch or self.watch(n, sweep, state)
        return self.by_watch


def _in_trouble(n: int, sweep: Sweep, state: Any) -> bool:
    return sweep.skipped + sweep.shrunk > 0


class _Falling:
    """Whether a sweep is in trouble, or changed more than the tolerance and a share of what the one before did."""

    def __init__(self, tol: float) -> None:
        self.tol, self.change = tol, float("inf")

    def __call__(self, n: int, sweep: Sweep, state: Any) -> bool:
        before, self.change = self.change, sweep.change
        return _in_trouble(n, sweep, state) or not (sweep.change < self.tol or sweep.change <= LEAST_FALL * before)
