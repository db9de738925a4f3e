"""The only loop: init, step until the tolerance is met, finish. Trace, callbacks, progress and threads live here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from tensorcep.inference._hyper import Hyper
from tensorcep.likelihoods._record import Likelihood
from tensorcep.models.cp import Entries
from tensorcep.posterior import GammaNoise, Mixture, Posterior, Result


class Problem(NamedTuple):
    """What a method infers from.

    Attributes
    ----------
    entries : Entries
    shape : tuple of int
    rank : int
    likelihood : Likelihood
    prior_Lam, prior_eta : (n_rows, P), (n_rows, R) float64
        Natural parameters of the prior of every row.
    start : (n_rows, R) float64 or None
        Row means that a method starts from; None starts at the prior.
    noise_prior : GammaNoise or None
        Prior of the Gaussian noise precision; None for likelihoods without one.
    seed : int
        Seed of the methods that draw random numbers.
    hyper : Hyper or None
        Prior of the rows' prior where that is learned, which then starts at prior_Lam and prior_eta.
    free : (K, R) bool or None
        Columns that are not clamped to 1 by the prior (`tensorcep.models.columns`); None when all are free.
    """

    entries: Entries
    shape: tuple[int, ...]
    rank: int
    likelihood: Likelihood
    prior_Lam: np.ndarray
    prior_eta: np.ndarray
    start: np.ndarray | None
    noise_prior: GammaNoise | None
    seed: int = 0
    hyper: Hyper | None = None
    free: np.ndarray | None = None


class Sweep(NamedTuple):
    """What one step reports.

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
    noise_precision: float
    skipped: int
    shrunk: int
    train_score: float
    lower_bound: float = np.nan


class Method(NamedTuple):
    """One inference method: plain functions, one file each.

    Attributes
    ----------
    name : str
    needs : tuple of str
        The parts of a Likelihood that the method uses.
    options : type
        Frozen dataclass of the method's settings. A field that an estimator has too gets the estimator's value.
    init, step, finish : callable
        ``init(problem, options, threads) -> state``, ``step(state, problem, options, threads) -> (state, Sweep)``,
        ``finish(state, problem) -> Posterior, Draws or PointEstimate``.
    source : str
    likelihoods : tuple of str, optional
        The likelihoods that the method is for, where parts do not tell.
    sampler : bool
        Whether steps are draws: a run then takes max_iter steps, without a tolerance.
    trial_sweeps : callable
        ``trial_sweeps(options) -> int``: sweeps, without a tolerance, that every random start gets before the best one
        goes on; 0 for one start.
    learns_prior : bool
        Whether the method can learn the rows' prior (`Problem.hyper`).
    takes_limits : bool
        Whether the method knows what a censored value says.
    mixes : bool
        Whether runs from several starts make a `tensorcep.posterior.Mixture`: the result is a Posterior.
    """

    name: str
    needs: tuple[str, ...]
    options: Callable[..., Any]
    init: Callable[..., Any]
    step: Callable[..., tuple[Any, Sweep]]
    finish: Callable[..., Any]
    source: str
    likelihoods: tuple[str, ...] | None = None
    sampler: bool = False
    trial_sweeps: Callable[[Any], int] = lambda options: 0
    learns_prior: bool = False
    takes_limits: bool = False
    mixes: bool = False

    def lacks(self, likelihood: Likelihood) -> list[str]:
        """What the likelihood would need to have for this method; nothing when the two fit."""
        if self.likelihoods is not None and likelihood.name not in self.likelihoods:
            return [f"one of the likelihoods {list(self.likelihoods)}"]
        if likelihood.censored and not self.takes_limits:
            return ["values without a limit (lower_limit=None)"]
        return [part for part in self.needs if getattr(likelihood, part) is None]


class Threads:
    """Runs a kernel over ranges of work. Kernels release the interpreter lock, so plain threads are enough."""

    def __init__(self, n: int):
        self.n = n
        self._pool = ThreadPoolExecutor(n) if n > 1 else None

    def over(self, size: int, work: Callable[[int, int], None], align: int = 1) -> None:
        """Call ``work(first, last)`` on up to n contiguous ranges that cover range(size), aligned to `align`."""
        parts = min(self.n, -(-size // align))
        if self._pool is None or parts <= 1:
            work(0, size)
            return
        cuts = [min(size, align * (-(-size * t // (parts * align)))) for t in range(parts + 1)]
        for future in [self._pool.submit(work, a, b) for a, b in itertools.pairwise(cuts) if b > a]:
            future.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Run(NamedTuple):
    """The result of `run`: posterior, sweeps done, whether it met the tolerance or was stopped, trace, last state.

    The trace maps the fields of `Sweep` and "seconds" to one number per sweep.
    """

    posterior: Result
    n_iter: int
    converged: bool
    stopped: bool
    trace: dict[str, np.ndarray]
    state: Any


Callback = Callable[[int, Sweep, Any], Any]


def run(
    method: Method,
    problem: Problem,
    options: Any,
    *,
    max_iter: int,
    tol: float,
    state: Any = None,
    done: int = 0,
    n_threads: int = 1,
    callbacks: Iterable[Callback] = (),
    verbose: bool = False,
) -> Run:
    """Run a method until the relative change of the latent means is below tol, or max_iter sweeps.

    A callback gets (sweep number from 1, Sweep, state) and stops the run by returning a true value. A given state, of
    an earlier run of `done` sweeps, is continued.
    """
    callbacks = tuple(callbacks)
    sweeps: list[Sweep] = []
    seconds: list[float] = []
    converged = stopped = False
    threads = Threads(n_threads)
    try:
        if state is None:
            state = method.init(problem, options, threads)
        with tqdm(total=max_iter, desc=method.name, unit="sweep", disable=not verbose) as bar:
            while len(sweeps) < max_iter and not converged and not stopped:
                begin = time.perf_counter()
                state, sweep = method.step(state, problem, options, threads)
                seconds.append(time.perf_counter() - begin)
                sweeps.append(sweep)
                bar.update()
                bar.set_postfix(change=f"{sweep.change:.1e}", refresh=False)
                converged = not method.sampler and sweep.change < tol
                bar.total = len(sweeps) if converged else max_iter
                stopped = any([bool(callback(done + len(sweeps), sweep, state)) for callback in callbacks])
        posterior = method.finish(state, problem)
    finally:
        threads.close()
    trace = {name: np.array([getattr(s, name) for s in sweeps]) for name in Sweep._fields}
    trace["seconds"] = np.array(seconds)
    return Run(posterior, len(sweeps), converged, stopped, trace, state)


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
