"""Inference methods, the loop that runs one, and the host that a run may have."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from tensorcep.core.executor import Executor, ThreadExecutor


class StoredRun(NamedTuple):
    """A run up to its last stored sweep: state, what sweeps reported, seconds; whether it ended, and by a callback."""

    state: Any
    sweeps: list[Any]
    seconds: list[float]
    ended: bool = False
    stopped: bool = False


class Host(Protocol):
    """Runs on other machines, or that are kept in files."""

    def check_plan(self, plan: Any) -> None: ...  # refuse a plan that cannot be run there, before any work
    def executor(self, n_threads: int) -> Executor: ...  # who runs the kernels of a run
    # The next run of the call, from the state that it would begin with, or, if it is kept, from a later one
    def begin(self, method: Any, problem: Any, state: Any, executor: Executor, kept: bool) -> StoredRun: ...
    def keep(self, run: StoredRun) -> None: ...  # what the run has come to, after every sweep and at its end


# The host of the runs of this thread; None for this process.
HOST: ContextVar[Host | None] = ContextVar("host", default=None)


@contextlib.contextmanager
def hosted_by(host: Host) -> Iterator[None]:
    """Have the runs of the block take place there."""
    token = HOST.set(host)
    try:
        yield
    finally:
        HOST.reset(token)


# The only loop: init, step until the tolerance is met, finish. Trace, callbacks, progress and threads live here.


class Sweep(NamedTuple):
    """What one step reports; a method fills in by name what it knows."""

    # Root mean square change of the latent means of the training entries, relative to their root mean square
    change: float
    noise_precision: float = np.nan  # posterior mean of the noise precision (nan for likelihoods without one)
    skipped: int = 0  # message updates that a safeguard left out
    shrunk: int = 0  # rows whose messages were scaled down to keep their precision positive definite
    train_score: float = np.nan  # mean log likelihood of the training entries at their posterior mean latent values
    # Lower bound of the log evidence, or the log evidence itself, where the method has one (otherwise nan)
    lower_bound: float = np.nan


# What a method asks of a likelihood is its business: the loop knows no model.
Likelihood = Any
Prob = TypeVar("Prob")
Opts = TypeVar("Opts")
State = TypeVar("State")


class Capabilities(NamedTuple):
    """What a method can do: a flag, names, or a rule that is asked of a likelihood or a problem (`has` asks any)."""

    sampler: bool = False  # steps are draws: a run takes max_iter steps, without a tolerance, and gives chains
    # It gives no posterior; columns that the data do not show do not shrink by themselves, but follow the noise
    point_estimate: bool = False
    quick: bool = False  # it may go before another method, as a pilot that finds a start and the columns
    learns_prior: bool = False  # it can learn the rows' prior (`Problem.prior`)
    side_information: bool = False  # the rows' prior can depend on their features, and rows on each other
    local: bool = False  # rows may deviate along another mode, each by itself
    # It knows what a censored value says; learns the thresholds between ordered levels, the share of such zeros
    censors: bool = False
    censors_spikes: bool = False  # real values predict better if a spike at the least one is taken for a limit
    thresholds: bool = False
    structural_zeros: bool = False
    heteroscedastic: tuple[str, ...] = ()  # what may differ from row to row, or from entry to entry
    # ``weights(problem)``: entries of the problem may count as any number, not a whole one alone
    weights: Callable[[Any], bool] = lambda problem: problem.likelihood.levels is None
    # ``stores(likelihood)``: entries may lie on scratch
    stores: Callable[[Likelihood], bool] = lambda likelihood: False
    # It learns batch by batch; it can learn past entries again
    streams: bool = False
    revisits: bool = False
    # Rows can stay as they are; workers of a cluster can do its sums
    fixes_rows: bool = False
    workers: bool = False
    passes_messages: bool = False  # kernels of the likelihood make messages of entries
    # ``proposes_rows(likelihood)``: a sampler may turn rows down, since no variable makes entries Gaussian
    proposes_rows: Callable[[Likelihood], bool] = lambda likelihood: False
    # It knows how little a row with few entries tells, so that variation which rows explain by chance costs little
    knows_sparse_rows: bool = False
    regrows: bool = False  # columns that a quick fit has shrunk nearly to nothing can grow again and follow the noise

    def has(self, capability: str, about: Any = None) -> bool:
        """Whether a method has a capability; `about` is one of the names, or what the rule is asked of."""
        value = getattr(self, capability)
        return bool(value(about)) if callable(value) else about in value if isinstance(value, tuple) else value

    def coupled_rows(self, likelihood: Likelihood) -> bool:
        """Whether rows may depend on each other: not where they are turned down one by one."""
        return self.side_information and not self.proposes_rows(likelihood)

    @property
    def posterior(self) -> bool:
        """Whether it says how well rows are known."""
        return not self.point_estimate

    @property
    def gaussian(self) -> bool:
        """Whether it gives Gaussians of the rows."""
        return not (self.sampler or self.point_estimate)

    @property
    def robust(self) -> bool:
        """Whether more columns than the data show do no harm to predictions."""
        return self.sampler or self.quick


NONE = Capabilities()


@dataclass(frozen=True)
class Method(Generic[Prob, Opts, State]):
    """One inference method for problems, settings and states of its own: plain functions, one file each."""

    name: str
    needs: tuple[str, ...]  # the parts of a Likelihood that the method uses
    options: Callable[..., Opts]  # the record of the method's settings
    init: Callable[[Prob, Opts, Executor], State]  # the state before the first sweep
    # One sweep: the next state, which may share arrays with the one before, and what the sweep reports
    step: Callable[[State, Prob, Opts, Executor], tuple[State, Sweep]]
    finish: Callable[[State, Prob], Any]  # of the last state a posterior, draws, or a point estimate
    source: str
    capabilities: Capabilities = NONE
    # ``trial_sweeps(options) -> int``: sweeps, without a tolerance, that every random start gets before the best one
    # goes on; 0 for one start
    trial_sweeps: Callable[[Any], int] = lambda options: 0
    # ``of_entries(state)``: what a state has of the entries alone, whatever the start, or no sweep reads before it is
    # written. A problem takes it to a run from another start, so that it is there once. None: nothing.
    of_entries: Callable[[Any], Any] = lambda state: None
    # ``resume(state, problem, executor) -> state``: a state that comes from a file, with what its records say is made
    # again (``remade()``, names of fields)
    resume: Callable[[Any, Any, Any], Any] = lambda state, problem, executor: state
    # ``ended(state)``: what is left of the state of a fit that has ended, for whoever tells of it: without lists of the
    # entries
    ended: Callable[[Any], Any] = lambda state: state

    def lacks(self, likelihood: Likelihood) -> list[str]:
        """What the likelihood would need to have for this method; nothing when the two fit."""
        can = self.capabilities
        if likelihood.censored and not can.censors:
            return ["values without a limit (lower_limit=None, no upper_limit)"]
        if likelihood.levels is not None and not can.thresholds:
            return ["values without thresholds to learn"]
        if likelihood.zeros is not None and not can.structural_zeros:
            return ["counts without structural zeros (zero_inflation=False)"]
        return [part for part in self.needs if getattr(likelihood, part) is None]


# A method of which only the name is known.
AnyMethod = Method[Any, Any, Any]


class LeftOut(NamedTuple):
    """Entries that a fit was not given, by place (n,), and their log densities by it and by the quick fit before it."""

    place: np.ndarray
    score: np.ndarray
    quick: np.ndarray
    mean: np.ndarray  # (n,), of their latent values
    variance: np.ndarray


class Run(NamedTuple):
    """A run: what `finish` gave, sweeps done, whether it met the tolerance or was stopped, trace, last state."""

    posterior: Any
    n_iter: int
    converged: bool
    stopped: bool
    trace: dict[str, np.ndarray]  # the fields of `Sweep` and "seconds": one number per sweep
    state: Any
    left_out: LeftOut | None = None  # what the same fit of some entries says of the others, where there was one


Callback = Callable[[int, Sweep, Any], Any]  # gets sweep number from 1, Sweep, state; a true value stops the run


def run(
    method: Method[Prob, Opts, State],
    problem: Prob,
    options: Opts,
    *,
    max_iter: int,
    tol: float,
    state: State | None = None,  # of an earlier run of `done` sweeps, which goes on
    done: int = 0,
    n_threads: int = 1,
    callbacks: Iterable[Callback] = (),
    verbose: bool = False,
    stage: str = "",  # that the progress bar names
    kept: bool = True,  # by a host: not where callbacks remember earlier sweeps
) -> Run:
    """Run a method until the relative change of the latent means is below tol, or max_iter sweeps."""
    callbacks = tuple(callbacks)
    host = HOST.get()
    executor = ThreadExecutor(n_threads) if host is None else host.executor(n_threads)
    try:
        if state is None:
            state = method.init(problem, options, executor)
        begun = StoredRun(state, [], []) if host is None else host.begin(method, problem, state, executor, kept)
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
                    host.keep(StoredRun(state, sweeps, seconds, False, stopped))
        posterior = method.finish(state, problem)
        if host is not None and kept:
            host.keep(StoredRun(state, sweeps, seconds, True, stopped))
    finally:
        executor.close()
    trace = {name: np.array([getattr(s, name) for s in sweeps]) for name in Sweep._fields}
    trace["seconds"] = np.array(seconds)
    return Run(posterior, len(sweeps), converged, stopped, trace, state)


def _has_converged(method: AnyMethod, sweeps: list[Sweep], tol: float) -> bool:
    return bool(sweeps) and not method.capabilities.sampler and sweeps[-1].change < tol
