"""Laplace propagation (LP) for the CP model.

As in CEP every entry sends each of its K rows a Gaussian message, and an update removes the entry's own messages from
its rows (the cavities). LP then finds the joint mode of the K rows under cavities x likelihood, and stores the messages
that turn the cavities into a Gaussian at that mode with the curvature there. Any likelihood with a log density serves.

Source: Smola, Vishwanathan and Eskin, "Laplace propagation" (2003); the CEP paper (Wang and Zhe) compares with it.
Where we differ from the comparison's code: the curvature is that of the likelihood (there it was replaced by 1e-6 I),
the noise message has the residual at the mode and the variance around it, and damping acts on natural parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.jit import LOGLIK_SIGNATURE, address_of
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import unpack
from tensorcep.cp.cep.sweep import Messages, Sums, add_sums
from tensorcep.cp.laplace.sweep import LaplaceRule, laplace_chunks, laplace_layout
from tensorcep.cp.messages import empty_messages, empty_sums
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import (
    RowState,
    initial_prior,
    latent_of_entries,
    learn_prior,
    refresh_rows,
    relative_change,
    rows_at_prior,
    seen_rows,
    train_score,
)
from tensorcep.cp.settings import passing
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.record import Conditional

LaplaceOptions = passing.Laplace


class LaplaceState(NamedTuple):
    """Messages, sums, rows and their prior, noise posterior (a, b), latent means, sweeps, address of loglik."""

    messages: Messages
    sums: Sums
    rows: RowState
    prior: Conditional
    noise: tuple[float, float]
    f: np.ndarray
    sweeps: int
    loglik: int


def init(problem: Problem, options: LaplaceOptions, executor: Executor) -> LaplaceState:
    """Empty messages, and rows at the starting means with the prior's precision.

    Raises
    ------
    ValueError
        If the curvature has no such name, or the damping is adaptive.
    """
    check_choice("curvature", options.curvature, ("conditional", "marginal"))
    if isinstance(options.damping, str):
        fail_value(f"damping of method 'laplace' must be a number in [0, 1) or 'auto'; got {options.damping!r}.")
    entries = problem.entries
    rows = rows_at_prior(problem)
    if problem.start is not None:
        rows.eta[:] = np.einsum("nij,nj->ni", unpack(rows.Lam, problem.rank), problem.start)
    refresh_rows(rows, 0, len(rows.good), executor)
    messages = empty_messages(problem, options.dtype)
    noise = (0.0, 1.0)
    if problem.noise_prior is not None:
        noise = (problem.noise_prior.a + messages.a.sum(), problem.noise_prior.b + messages.b.sum())
    f = latent_of_entries(entries, rows.mean, executor)
    loglik = address_of(problem.likelihood.loglik, LOGLIK_SIGNATURE)
    return LaplaceState(messages, empty_sums(problem), rows, initial_prior(problem), noise, f, 0, loglik)


def step(
    state: LaplaceState, problem: Problem, options: LaplaceOptions, executor: Executor
) -> tuple[LaplaceState, Sweep]:
    """One sweep: every message once."""
    K = len(problem.shape)
    passes = [(0, K)] if options.schedule == "parallel" else [(k, k + 1) for k in range(K)]
    noise, skipped = state.noise, 0
    for modes in passes:
        noise, n_skipped = _pass(state, noise, modes, problem, options, executor)
        skipped += n_skipped
    if state.sweeps >= options.anneal:  # messages are positive semidefinite: any prior leaves every row a Gaussian
        prior = learn_prior(state.prior, problem, state.rows, 1.0 - options.damping, executor)
        state = state._replace(prior=prior)
    f = latent_of_entries(problem.entries, state.rows.mean, executor)
    theta = noise[0] / noise[1] if problem.noise_prior is not None else problem.likelihood.default_theta
    sweep = Sweep(
        # the change an undamped update would make, so that damping does not look like convergence
        change=relative_change(f, state.f) / (1.0 - options.damping),
        noise_precision=theta if problem.noise_prior is not None else np.nan,
        skipped=skipped,
        shrunk=0,
        train_score=train_score(problem, f, theta),
    )
    return state._replace(noise=noise, f=f, sweeps=state.sweeps + 1), sweep


def _pass(
    state: LaplaceState,
    noise: tuple[float, float],
    modes: tuple[int, int],
    problem: Problem,
    options: LaplaceOptions,
    executor: Executor,
) -> tuple[tuple[float, float], int]:
    """Update the messages to the given modes, then their rows and the noise.

    Messages are positive semidefinite, so no cavity can become indefinite.
    """
    entries, rows, sums = problem.entries, state.rows, state.sums
    rule = LaplaceRule(
        step=1.0 - options.damping,
        theta=float(problem.likelihood.default_theta),
        loglik=state.loglik,
        gaussian=problem.noise_prior is not None,
        marginal=options.curvature == "marginal",
        power=float(options.anneal_power) if state.sweeps < options.anneal else 1.0,
    )

    def sweep(first: int, last: int) -> None:
        at = laplace_layout(len(problem.shape), problem.rank)
        work = lane_zeros((at.size, LANES))
        work[at.one] = 1.0
        laplace_chunks((first, last), modes, entries, rows, state.messages, sums, noise, rule, work, at)

    executor.over(len(entries.chunk_start) - 1, sweep)
    first, last = int(entries.offsets[modes[0]]), int(entries.offsets[modes[1]])

    def total(a: int, b: int) -> None:
        add_sums(first + a, first + b, state.prior.Lam, state.prior.eta, sums, rows.Lam, rows.eta)

    executor.over(last - first, total, LANES)
    refresh_rows(rows, first, last, executor)
    if problem.noise_prior is not None and modes[1] == len(problem.shape):
        a, b = sums.noise.sum(axis=0)
        noise = (problem.noise_prior.a + float(a), problem.noise_prior.b + float(b))
    return noise, int(sums.skipped.sum())


def finish(state: LaplaceState, problem: Problem) -> Posterior:
    """The posterior is prior x messages, as the rows hold it."""
    noise = GammaNoise(*state.noise) if problem.noise_prior is not None else None
    rows, seen = state.rows, seen_rows(problem)
    return Posterior(problem.shape, problem.rank, rows.Lam, rows.eta, noise, seen, mode_prior=state.prior.modes)


LAPLACE = Method(
    name="laplace",
    needs=("loglik",),
    options=LaplaceOptions,
    init=init,
    step=step,
    finish=finish,
    source="Smola, Vishwanathan & Eskin, Laplace propagation",
    trial_sweeps=lambda options: options.anneal,
    learns_prior=True,
    mixes=True,
)
