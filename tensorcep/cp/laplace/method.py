"""Laplace propagation (LP) for the CP model.

As in CEP every entry sends each of its K rows a Gaussian message, and an update removes the entry's own messages from
its rows (the cavities). LP then finds the joint mode of the K rows under cavities x likelihood, and stores the messages
that turn the cavities into a Gaussian at that mode with the curvature there. Any likelihood with a log density serves.

Source: Smola, Vishwanathan and Eskin, "Laplace propagation" (2003); the CEP paper (Wang and Zhe) compares with it.
Where we differ from the comparison's code: the curvature is that of the likelihood (there it was replaced by 1e-6 I),
the noise message has the residual at the mode and the variance around it, and damping acts on natural parameters.
"""

from __future__ import annotations

from tensorcep.core.checks import fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.jit import LOGLIK_SIGNATURE, address_of
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.cp.laplace.sweep import Rule, laplace_chunks, laplace_slots, places_of_modes
from tensorcep.cp.messages.columns import columns_of
from tensorcep.cp.messages.passes import sweep
from tensorcep.cp.messages.state import MessageState, Pace, finish, first_state
from tensorcep.cp.model.parameters import cuts_of, first_thresholds
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.settings import messages as passing


def init(problem: Problem, options: passing.Laplace, executor: Executor) -> MessageState:
    """Messages that say nothing, and rows at the starting means with the prior's precision.

    Raises
    ------
    ValueError
        If the damping is adaptive.
    """
    if isinstance(options.damping, str):
        fail_value(f"damping of method 'laplace' must be a number in [0, 1) or 'auto'; got {options.damping!r}.")
    rule = Rule(
        step=1.0,
        power=1.0,
        theta=float(problem.likelihood.default_theta),
        loglik=address_of(problem.likelihood.loglik, LOGLIK_SIGNATURE),
        gaussian=problem.noise_prior is not None,
        marginal=options.curvature == "marginal",
        cuts=cuts_of(problem, first_thresholds(problem)),
    )
    return first_state(
        problem,
        executor,
        columns=columns_of(problem.free, len(problem.shape), places_of_modes),
        rule=rule,
        slots=laplace_slots,
        pace=Pace(1.0 - options.damping),
        dtype=options.dtype,
        keeps_cavities=options.schedule == "modewise",
    )


def step(
    state: MessageState, problem: Problem, options: passing.Laplace, executor: Executor
) -> tuple[MessageState, Sweep]:
    """One sweep: every message once."""
    return sweep(state, problem, options, executor, laplace_chunks)


LAPLACE = Method(
    name="laplace",
    needs=("loglik",),
    options=passing.Laplace,
    init=init,
    step=step,
    finish=finish,
    source="Smola, Vishwanathan & Eskin, Laplace propagation",
    capabilities=Capabilities(
        learns_prior=True,
        side_information=True,
        thresholds=True,
        heteroscedastic=("dispersion",),
        fixes_rows=True,
        workers=True,
        passes_messages=True,
        regrows=True,
    ),
    trial_sweeps=lambda options: options.anneal,
    of_entries=lambda state: state.sums,
)
