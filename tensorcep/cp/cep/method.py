"""Conditional expectation propagation (CEP) for the CP model.

Every entry i sends each of its K rows a Gaussian message with a full R x R precision. An update removes the entry's own
message from the row (the cavity), forms the conditional moments of the row given the other modes, takes their
expectation to first or second order, and stores the message that turns the cavity into those moments.

Source: Wang and Zhe, "Conditional Expectation Propagation" (CEP), sec. 3-4 and supplement 8.1. Where we differ: the
other modes' moments come from the cavity by default (the paper's text says posterior, its figures used the cavity);
the noise message keeps all second moments (CEP eq. 18; the supplement drops them); the modewise schedule.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
from numba import types

from tensorcep.core.checks import fail_value
from tensorcep.core.compile import TILTED_SIGNATURE, address_of
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.settings import lacking
from tensorcep.cp import settings as passing
from tensorcep.cp.cep import update
from tensorcep.cp.cep.stochastic import AVERAGED_PASS, CLOSED_PASS, averaged_rows, in_closed_form
from tensorcep.cp.messages.cavities import product_slots
from tensorcep.cp.messages.engine import MessageState, Pace, finish, first_state, resume, sweep
from tensorcep.cp.model.problem import USUAL, Problem

# Parts of the pass that few fits need are called by their addresses: without them it compiles in half of the time.
NUMBER, FLAG, WORK = types.int64, types.boolean, types.Array(types.float64, 2, "C")
SLOTS = types.NamedUniTuple(NUMBER, len(update.Slots._fields), update.Slots)
MESSAGE = types.void(NUMBER, FLAG, *(NUMBER,) * 4, WORK, SLOTS)


def init(problem: Problem, options: passing.CEP, executor: Executor) -> MessageState:
    """Messages that say nothing, and rows at the starting means with the prior's precision."""
    stored, likelihood, entries = options.messages == "full", problem.likelihood, problem.entries
    censored = likelihood.censored and bool(((likelihood.side * entries.y <= 0.0) & (entries.weight > 0.0)).any())
    side = likelihood.side if censored else 0.0
    if side and lacking(options, "censors"):
        needed = ", ".join(f"{name}={value!r}" for name, value in options.needs["censors"].items())
        fail_value(f"censored values need {needed}; set those, or lower_limit=None and upper_limit=None.")
    gaussian, clamped = problem.noise_prior is not None, 0
    first_step = 1.0 if gaussian and options.schedule != "parallel" else 0.5
    columns = product_slots(problem.free, len(problem.shape), update.places_of_modes)
    if columns.z.size:
        of_columns = types.void(NUMBER, numba.typeof(columns), FLAG, FLAG, NUMBER, NUMBER, WORK, SLOTS)
        clamped = address_of(update.products_with_clamped, of_columns)
    rule = update.Rule(
        step=1.0,
        power=1.0,
        theta=np.nan,
        tilted=address_of(problem.likelihood.tilted, TILTED_SIGNATURE),
        gaussian=gaussian,
        side=side,
        from_posterior=options.moments == "posterior",
        order=options.order,
        first=0 if gaussian else address_of(update.likelihood_message, MESSAGE),
        second=address_of(update.second_order_message, MESSAGE) if options.order == 2 else 0,
        clamped=clamped,
        positive=options.positive,
        tilted_noise=options.noise_moments == "tilted" and options.moments == "cavity",
        cuts=np.zeros(0),
    )
    return first_state(
        problem,
        executor,
        columns=columns,
        rule=rule,
        slots=partial(update.cep_slots, C=columns.offset.shape[2]),
        pace=Pace(first_step if options.damping == "adaptive" else 1.0 - float(options.damping)),
        dtype=options.dtype,
        precision=options.message_precision,
        noise_message=options.message_noise,
        stored=stored,
        keeps_cavities=stored and options.schedule == "modewise" and options.moments == "cavity",
    )


def step(state: MessageState, problem: Problem, options: passing.CEP, executor: Executor) -> tuple[MessageState, Sweep]:
    """One sweep: every message once."""
    order, work = 1 if state.sweeps < max(options.warm_up, options.anneal) else options.order, update.CEP_PASS
    if order != state.own.rule.order:
        state = state.put(rule=state.own.rule._replace(order=order))
    if options.messages == "averaged":
        work = CLOSED_PASS if in_closed_form(state.own.rule) else AVERAGED_PASS
        return sweep(state, problem, options, executor, work, averaged_rows)
    if state.own.rule.from_posterior:
        work = work._replace(reads=(*work.reads, "rows.mean", "rows.cov"))
    return sweep(state, problem, options, executor, work)


CEP = Method(
    name="cep",
    needs=("tilted", "loglik"),
    options=passing.CEP,
    init=init,
    step=step,
    finish=finish,
    source="Wang & Zhe, Conditional Expectation Propagation",
    capabilities=USUAL._replace(
        censors_spikes=False,  # real values are predicted worse for it
        heteroscedastic=("dispersion",),
        stores=lambda likelihood: not likelihood.censored and likelihood.extent != "trials",
        streams=True,
        revisits=True,
        passes_messages=True,
        knows_sparse_rows=True,
    ),
    # those before the ones that count: annealed ones, and first-order ones when the second order is to follow
    trial_sweeps=lambda options: max(options.anneal, options.warm_up if options.order == 2 else 0),
    resume=resume,
    of_entries=lambda state: state.own.sums,
)
