"""The only loop: init, step until the tolerance is met, finish. Trace, callbacks, progress and threads live here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from tensorcep.core.executor import Executor, ThreadExecutor
from tensorcep.core.host import Begun, current_host
from tensorcep.likelihoods.record import Likelihood


class Sweep(NamedTuple):
    """What one step reports; a method fills in by name what it knows.

    Attributes
    ----------
    change : float
        Root mean square change of the latent means of the training entries, relative to their root mean square.
    noise_precision : float
        Posterior mean of the noise precision (nan for likelihoods without one).
    skipped : int
        Message updates that a safeguard left out.
    shrunk : int
        Rows whose messages were scaled down to keep their precision positive definite.
    train_score : float
        Mean log likelihood of the training entries at their posterior mean latent values.
    lower_bound : float
        Lower bound of the log evidence, or the log evidence itself, where the method has one (otherwise nan).
    """

    change: float
    noise_precision: float = np.nan
    skipped: int = 0
    shrunk: int = 0
    train_score: float = np.nan
    lower_bound: float = np.nan


Prob = TypeVar("Prob")
Opts = TypeVar("Opts")
State = TypeVar("State")
ProbIn = TypeVar("ProbIn", contravariant=True)
OptsIn = TypeVar("OptsIn", contravariant=True)
StateIn = TypeVar("StateIn", contravariant=True)
StateOut = TypeVar("StateOut", covariant=True)


class Init(Protocol[ProbIn, OptsIn, StateOut]):
    """The state before the first sweep."""

    def __call__(self, problem: ProbIn, options: OptsIn, executor: Executor, /) -> StateOut: ...


class Step(Protocol[ProbIn, OptsIn, State]):
    """One sweep: the next state, which may share arrays with the one before, and what the sweep reports."""

    def __call__(
        self, state: State, problem: ProbIn, options: OptsIn, executor: Executor, /
    ) -> tuple[State, Sweep]: ...


class Finish(Protocol[ProbIn, StateIn]):
    """What a run leads to, of the last state: a posterior, draws, or a point estimate."""

    def __call__(self, state: StateIn, problem: ProbIn, /) -> Any: ...


@dataclass(frozen=True)
class Method(Generic[Prob, Opts, State]):
    """One inference method for problems, settings and states of its own: plain functions, one file each.

    Attributes
    ----------
    name : str
    needs : tuple of str
        The parts of a Likelihood that the method uses.
    options : type
        The record of the method's settings.
    init, step, finish : Init, Step, Finish
    source : str
    likelihoods : tuple of str, optional
        The likelihoods that the method is for, where parts do not tell.
    sampler : bool
        Whether steps are draws: a run then takes max_iter steps, without a tolerance.
    trial_sweeps : callable
        ``trial_sweeps(options) -> int``: sweeps, without a tolerance, that every random start gets before the best one
        goes on; 0 for one start.
    learns_prior : bool
        Whether the method can learn the rows' prior (`Problem.prior`).
    takes_features : bool
        Whether the rows' prior can depend on their features, and rows on each other.
    takes_pairs : bool
        Whether rows may deviate along another mode, each by itself.
    takes_limits : bool
        Whether the method knows what a censored value says.
    takes_levels : bool
        Whether the method learns the thresholds between ordered levels.
    takes_zeros : bool
        Whether the method learns the share of structural zeros.
    shrinks : bool
        Whether columns that the data do not show shrink by themselves; a point estimate follows the noise with them.
    regrows : bool
        Whether columns that a quick fit has shrunk nearly to nothing can grow again and follow the noise.
    of_entries : callable
        ``of_entries(state)``: what a state has of the entries alone, whatever the start, or no sweep reads before it is
        written. A problem takes it to a run from another start, so that it is there once. None: nothing.
    ended : callable
        ``ended(state)``: what is left of the state of a fit that has ended, for whoever tells of it: without lists of
        the entries.
    """

    name: str
    needs: tuple[str, ...]
    options: Callable[..., Opts]
    init: Init[Prob, Opts, State]
    step: Step[Prob, Opts, State]
    finish: Finish[Prob, State]
    source: str
    likelihoods: tuple[str, ...] | None = None
    sampler: bool = False
    trial_sweeps: Callable[[Any], int] = lambda options: 0
    learns_prior: bool = False
    takes_features: bool = False
    takes_pairs: bool = False
    takes_limits: bool = False
    takes_levels: bool = False
    takes_zeros: bool = False
    shrinks: bool = True
    regrows: bool = False
    of_entries: Callable[[Any], Any] = lambda state: None
    ended: Callable[[Any], Any] = lambda state: state

    def lacks(self, likelihood: Likelihood) -> list[str]:
        """What the likelihood would need to have for this method; nothing when the two fit."""
        if self.likelihoods is not None and likelihood.name not in self.likelihoods:
            return [f"one of the likelihoods {list(self.likelihoods)}"]
        if likelihood.censored and not self.takes_limits:
            return ["values without a limit (lower_limit=None, no upper_limit)"]
        if likelihood.levels is not None and not self.takes_levels:
            return ["values without thresholds to learn"]
        if likelihood.zeros is not None and not self.takes_zeros:
            return ["counts without structural zeros (zero_inflation=False)"]
        return [part for part in self.needs if getattr(likelihood, part) is None]


# A method of which only the name is known.
AnyMethod = Method[Any, Any, Any]


class LeftOut(NamedTuple):
    """Entries, by their places (n,), and their log predictive densities (n,) by a fit that was not given them.

    `quick` are those (n,) by the quick fit that went before it, `mean` and `variance` are of their latent values.
    """

    place: np.ndarray
    score: np.ndarray
    quick: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class Run(NamedTuple):
    """A run: what `finish` gave, sweeps done, whether it met the tolerance or was stopped, trace, last state.

    The trace maps the fields of `Sweep` and "seconds" to one number per sweep. `left_out` is what the same fit of some
    entries says of the others, where there was one.
    """

    posterior: Any
    n_iter: int
    converged: bool
    stopped: bool
    trace: dict[str, np.ndarray]
    state: Any
    left_out: LeftOut | None = None


Callback = Callable[[int, Sweep, Any], Any]


def run(
    method: Method[Prob, Opts, State],
    problem: Prob,
    options: Opts,
    *,
    max_iter: int,
    tol: float,
    state: State | None = None,
    done: int = 0,
    n_threads: int = 1,
    callbacks: Iterable[Callback] = (),
    verbose: bool = False,
    stage: str = "",
    kept: bool = True,
) -> Run:
    """Run a method until the relative change of the latent means is below tol, or max_iter sweeps.

    A callback gets (sweep number from 1, Sweep, state) and stops the run by returning a true value. A given state, of
    an earlier run of `done` sweeps, is continued. The progress bar names the `stage`. A host does not keep a run whose
    callbacks remember earlier sweeps.
    """
    callbacks = tuple(callbacks)
    host = current_host()
    executor = ThreadExecutor(n_threads) if host is None else host.executor(n_threads)
    try:
        if state is None:
            state = method.init(problem, options, executor)
        begun = Begun(state, [], []) if host is None else host.begin(method, problem, state, executor, kept)
        state, sweeps, seconds, ended, stopped = begun
        del begun  # arrays of the first state go with it
        converged = _has_converged(method, sweeps, tol)
        title = f"{method.name}, {stage}" if stage else method.name
        with tqdm(total=max_iter, desc=title, unit="sweep", disable=not verbose, initial=len(sweeps)) as bar:
            while len(sweeps) < max_iter and not converged and not stopped and not ended:
                begin = time.perf_counter()
                state, sweep = method.step(state, problem, options, executor)
                seconds.append(time.perf_counter() - begin)
                sweeps.append(sweep)
                bar.update()
                if verbose:
                    bar.set_postfix(change=f"{sweep.change:.1e}", refresh=False)
                converged = _has_converged(method, sweeps, tol)
                bar.total = len(sweeps) if converged else max_iter
                stopped = any([bool(callback(done + len(sweeps), sweep, state)) for callback in callbacks])
                if host is not None and kept:
                    host.keep(Begun(state, sweeps, seconds, False, stopped))
        posterior = method.finish(state, problem)
        if host is not None and kept:
            host.keep(Begun(state, sweeps, seconds, True, stopped))
    finally:
        executor.close()
    trace = {name: np.array([getattr(s, name) for s in sweeps]) for name in Sweep._fields}
    trace["seconds"] = np.array(seconds)
    return Run(posterior, len(sweeps), converged, stopped, trace, state)


def _has_converged(method: AnyMethod, sweeps: list[Sweep], tol: float) -> bool:
    return bool(sweeps) and not method.sampler and sweeps[-1].change < tol
