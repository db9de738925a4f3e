"""Draws of chains and pilots together, in all columns of the plan that they serve."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.core.components import Components, draw_rows, room_for_draws
from tensorcep.core.loop import Run
from tensorcep.core.packing import pack
from tensorcep.cp.flights import Flown, refitted
from tensorcep.cp.gibbs.chains import taken
from tensorcep.cp.gibbs.noise_law import with_factors
from tensorcep.cp.gibbs.shrinkage import with_constant
from tensorcep.cp.gibbs.state import GibbsState
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.parameters import told_of_theta
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import Problem
from tensorcep.priors.ahead import in_columns, lines_of_modes
from tensorcep.priors.record import clocks_of


class Sampled(NamedTuple):
    """The plan that a sampler follows, and which columns of the whole plan are its columns."""

    plan: Plan
    columns: np.ndarray


def write_in(rows: np.ndarray, columns: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """Write rows (n, m, Q) in some columns (Q,) to `out` (n, m, R): in the others they are 0, in clamped ones 1.

    Draws of a pilot's Gaussian hold clamped columns at 1 to six digits only. `free` (m, R) tells of every row.
    """
    if len(columns) < out.shape[-1]:
        out[...] = 0.0
        out[..., columns] = rows
    else:
        out[...] = rows
    out[:, ~free] = 1.0


def embedded(rows: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Rows (C, n, Q) in some columns as rows (C, n, R) in all columns (see `write_in`)."""
    out = np.empty((*rows.shape[:2], problem.rank), dtype=rows.dtype)
    write_in(rows, columns, problem.rows_free, out)
    return out


def _lines(lines: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Parameters of series in some columns as those of all columns, of which the others are 0 for good."""
    free = problem.every_free
    places = [np.where(own[columns], columns, -1) for own in free]
    return in_columns(lines, clocks_of(problem.prior), places, free)


def in_all_columns(sampled: Run, of: Sampled, problem: Problem) -> Run:
    """The run with draws in all columns; of those that say the constant alone the column that holds it may be new."""
    draws: Draws = sampled.posterior
    known, unknown, free = draws.rows, draws.unknown, problem.every_free
    if len(of.columns) < problem.rank:
        sizes = (*known.shape[:3], problem.rank)
        known, more = room_for_draws(sizes, 0 if unknown is None else len(free), known.dtype)
        of_rows = problem.rows_free
        for c, rows in enumerate(draws.rows):
            write_in(rows, of.columns, of_rows, known[c])
        if draws.unknown is not None:
            unknown = more
            for c, rows in enumerate(draws.unknown):
                write_in(rows, of.columns, free, more[c])
    drifts = None if draws.drifts is None else _lines(draws.drifts, of.columns, problem)
    draws = draws._replace(rank=problem.rank, rows=known, unknown=unknown, drifts=drifts)
    held = None if sampled.state is None else sampled.state.held
    if held is not None and len(of.columns) < problem.rank:
        draws = with_constant(draws, held, problem.free, problem.prior)
    return sampled._replace(posterior=draws)


def joined_draws(sampled: Run, flown: list[Flown], of: Sampled, plan: Plan) -> Run | None:
    """The draws of the chains and of the pilots, as many of each as it counts; None where a pilot has none."""
    state: GibbsState = sampled.state
    held: Any = state.held
    settings = plan.settings.get_params()
    n = -(-(plan.max_iter - settings["burn_in"]) // settings["thin"])
    counts = np.zeros(len(plan.pilots))  # those that did not fly count nothing
    counts[[one.number for one in flown]] = held.beside
    sampled = sampled._replace(state=state._replace(held=held._replace(beside=counts)))
    if not held.beside.any():
        return in_all_columns(sampled, of, plan.problem)
    if not len(held.alive):
        n *= settings["n_chains"]  # no chain has draws
    sizes = {i: max(1, round(n * held.beside[i] / held.heaviest)) for i in np.flatnonzero(held.beside)}
    chains, own = state.chains, sampled.posterior if len(held.alive) else None
    sampled = sampled._replace(posterior=None)
    rows: list[np.ndarray] = [] if own is None else list(own.rows.reshape(-1, *own.rows.shape[2:]))
    if own is not None and chains.kept:  # the same, of which one copy is enough
        rows = [chains.kept[d][c] for d, c in taken(chains, held.weights[held.alive] / held.heaviest)]
        unknown = None if own.unknown is None else own.unknown.copy()  # parts of one array
        own = own._replace(rows=own.rows[:, :0].copy(), unknown=unknown)
    draws = _in_one_chain(own, rows, of, [(flown[i], size) for i, size in sizes.items()], plan, held.noise_ratio)
    if draws is None:
        return None
    draws = with_constant(draws, held, plan.problem.free, plan.problem.prior)
    return sampled._replace(posterior=with_factors(draws, state.noise_law))


def _in_one_chain(
    own: Draws | None,
    rows: list[np.ndarray],
    of: Sampled,
    flown: list[tuple[Flown, int]],
    plan: Plan,
    noise_ratio: float,
) -> Draws | None:
    """The draws of the chains, whose rows are given, and so many of each of these pilots, in one chain."""
    whole, n = plan.problem, len(rows)
    sizes = (1, n + sum(size for _, size in flown), sum(whole.shape), whole.rank)
    dtype = rows[0].dtype if rows else plan.settings.get_params()["dtype"]
    (known,), (unknown,) = room_for_draws(sizes, len(whole.shape), dtype)
    parts = []
    if own is not None:
        free = whole.rows_free
        for row, out in zip(rows, known, strict=False):
            write_in(row[None], of.columns, free, out[None])
        unseen: Any = own.unknown  # of learned priors, without which there are no pilots
        write_in(unseen.reshape(n, len(whole.shape), -1), of.columns, whole.every_free, unknown[:n])
        drifts = None if own.drifts is None else _lines(own.drifts, of.columns, whole)
        parts.append(own._replace(rank=whole.rank, drifts=drifts))
    for one, size in flown:
        draws = _draws_of(one, plan, noise_ratio, known[n : n + size], unknown[n : n + size])
        if draws is None:
            return None
        parts.append(draws)
        n += size
    fields: dict[str, Any] = {"rows": known[None], "unknown": unknown[None]}
    for name in ("theta", "drifts", "uneven"):
        values = [getattr(part, name) for part in parts]
        if values[0] is not None:
            fields[name] = np.concatenate([value.reshape(-1, *value.shape[2:]) for value in values])[None]
    return parts[0]._replace(**fields)


def _draws_of(flown: Flown, plan: Plan, noise_ratio: float, known: np.ndarray, unknown: np.ndarray) -> Draws | None:
    """Draws from a pilot's posterior given all entries, whose rows are written to `known` (n, n_rows, R) and `unknown`.

    None where that posterior leaves the finite numbers.
    """
    pilot, whole = flown.pilot, plan.problem
    posterior = refitted(flown, plan)
    if posterior is None:
        return None
    n, rng = len(known), generator(whole.seed, Stream.PILOT, flown.number)
    modes: Any = posterior.mode_prior
    unseen = Components(modes.mean[None], pack(np.linalg.inv(modes.precision))[None])
    belief = posterior.components(unseen)
    rows = draw_rows(belief.mean[0], belief.cov[0], n, rng)  # type: ignore[index]
    own: Any = belief.theta
    theta: Any = None if own is None else own.draws(np.zeros(n, dtype=int), rng)[None]
    mode = None if own is None else own.mode
    if own is not None and posterior.noise is not None:
        with np.errstate(divide="ignore", over="ignore"):  # a pilot of constant values has no noise
            theta = theta / noise_ratio
    elif own is not None and own.gamma is not None:  # draws of rows go with the mean of a dispersion
        theta = np.repeat(own.values[None], n, axis=1)
    n_rows = len(posterior.eta)
    write_in(rows[:, :n_rows], pilot.columns, whole.rows_free, known)
    write_in(rows[:, n_rows:], pilot.columns, whole.every_free, unknown)
    drifts, clocks, uneven = None, clocks_of(whole.prior), None
    if clocks:
        drifts = _lines(np.repeat(lines_of_modes(modes, clocks)[None, None], n, axis=1), pilot.columns, whole)
    if belief.theta is not None and belief.theta.uneven is not None:
        ratio = 1.0 if posterior.noise is None else noise_ratio
        uneven = np.repeat(belief.theta.uneven / [ratio, 1.0], n, axis=0)[None]
    return Draws(
        shape=whole.shape,
        rank=whole.rank,
        rows=known[None],
        theta=theta,
        theta_mode=mode,
        seen=posterior.seen,
        unknown=unknown[None],
        drifts=drifts,
        uneven=uneven,
        **told_of_theta(whole.likelihood),
    )
