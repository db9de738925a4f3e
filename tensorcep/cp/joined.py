"""Draws of chains and pilots together, in all columns of the plan that they serve."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.core.components import Components, draw_rows, stacked
from tensorcep.core.loop import Run
from tensorcep.core.packing import pack
from tensorcep.cp.flights import Flown, refitted
from tensorcep.cp.gibbs.chains import taken
from tensorcep.cp.gibbs.noise_law import with_factors
from tensorcep.cp.gibbs.shrinkage import with_constant
from tensorcep.cp.gibbs.state import GibbsState
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import Problem
from tensorcep.priors.ahead import in_columns, lines_of_modes
from tensorcep.priors.record import clocks_of


class Sampled(NamedTuple):
    """The plan that a sampler follows, and which columns of the whole plan are its columns."""

    plan: Plan
    columns: np.ndarray


def embedded(rows: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Rows (C, n, Q) in some columns as rows (C, n, R) in all columns, of which the others are 0.

    Clamped columns, which draws of a pilot's Gaussian hold at 1 to six digits only, are 1.
    """
    free, out = problem.every_free, rows
    if len(columns) < problem.rank:
        out = np.zeros((*rows.shape[:2], problem.rank), dtype=rows.dtype)
        out[:, :, columns] = rows
    clamped = ~np.repeat(free, problem.shape, axis=0) if rows.shape[1] > len(free) else ~free
    out[:, clamped] = 1.0
    return out


def _lines(lines: np.ndarray, columns: np.ndarray, problem: Problem) -> np.ndarray:
    """Parameters of series in some columns as those of all columns, of which the others are 0 for good."""
    free = problem.every_free
    places = [np.where(own[columns], columns, -1) for own in free]
    return in_columns(lines, clocks_of(problem.prior), places, free)


def in_all_columns(sampled: Run, of: Sampled, problem: Problem) -> Run:
    """The run with draws in all columns; of those that say the constant alone the column that holds it may be new."""
    draws: Draws = sampled.posterior

    def whole(rows: np.ndarray) -> np.ndarray:
        return embedded(rows.reshape(-1, *rows.shape[2:]), of.columns, problem).reshape(*rows.shape[:3], -1)

    unknown = None if draws.unknown is None else whole(draws.unknown)
    drifts = None if draws.drifts is None else _lines(draws.drifts, of.columns, problem)
    draws = draws._replace(rank=problem.rank, rows=whole(draws.rows), unknown=unknown, drifts=drifts)
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
    parts, rows = _parts_of_chains(sampled, of, plan) if len(held.alive) else ([], [])
    sampled = sampled._replace(posterior=None)
    for i in np.flatnonzero(held.beside):
        size = max(1, round(n * held.beside[i] / held.heaviest))
        draws = _draws_of(flown[i], size, plan, held.noise_ratio)
        if draws is None:
            return None
        parts.append(draws)
        rows += list(draws.rows[0])
    draws = with_constant(_in_one_chain(parts, rows), held, plan.problem.free, plan.problem.prior)
    return sampled._replace(posterior=with_factors(draws, state.noise_law))


def _parts_of_chains(sampled: Run, of: Sampled, plan: Plan) -> tuple[list[Draws], list[np.ndarray]]:
    """The draws of the chains without their rows, and these."""
    held, chains, own = sampled.state.held, sampled.state.chains, sampled.posterior
    rows = list(own.rows.reshape(-1, *own.rows.shape[2:]))
    if chains.kept:  # the same, of which one copy is enough
        rows = [chains.kept[d][c] for d, c in taken(chains, held.weights[held.alive] / held.heaviest)]
    rows = [embedded(row[None], of.columns, plan.problem)[0] for row in rows]
    unknown = None
    if own.unknown is not None:
        unknown = embedded(own.unknown.reshape(-1, *own.unknown.shape[2:]), of.columns, plan.problem)[None].copy()
    drifts = None if own.drifts is None else _lines(own.drifts, of.columns, plan.problem)
    rank, none = plan.problem.rank, np.empty((1, 0, *rows[0].shape))
    return [own._replace(rank=rank, rows=none, unknown=unknown, drifts=drifts)], rows


def _draws_of(flown: Flown, n: int, plan: Plan, noise_ratio: float) -> Draws | None:
    """Draws from a pilot's posterior given all entries; None where that leaves the finite numbers."""
    pilot, whole = flown.pilot, plan.problem
    posterior = refitted(flown, plan)
    if posterior is None:
        return None
    rng = generator(whole.seed, Stream.PILOT, flown.number)
    modes: Any = posterior.mode_prior
    unseen = Components(modes.mean[None], pack(np.linalg.inv(modes.precision))[None])
    belief = posterior.components(unseen)
    rows = draw_rows(belief.mean[0], belief.cov[0], n, rng)  # type: ignore[index]
    own: Any = belief.theta
    theta: Any = None if own is None else own.draws(np.zeros(n, dtype=int), rng)[None]
    mode = None if own is None else own.mode
    if own is not None and posterior.noise is not None:
        theta = theta / noise_ratio
    elif own is not None and own.gamma is not None:  # draws of rows go with the mean of a dispersion
        theta = np.repeat(own.values[None], n, axis=1)
    n_rows = len(posterior.eta)
    dtype = plan.settings.get_params()["dtype"]
    parts = (rows[:, :n_rows], rows[:, n_rows:])
    known, unknown = (embedded(part, pilot.columns, whole)[None].astype(dtype, copy=False) for part in parts)
    drifts, clocks, uneven = None, clocks_of(whole.prior), None
    if clocks:
        drifts = _lines(np.repeat(lines_of_modes(modes, clocks)[None, None], n, axis=1), pilot.columns, whole)
    if belief.theta is not None and belief.theta.uneven is not None:
        ratio = 1.0 if posterior.noise is None else noise_ratio
        uneven = np.repeat(belief.theta.uneven / [ratio, 1.0], n, axis=0)[None]
    return Draws(
        shape=whole.shape,
        rank=whole.rank,
        rows=known,
        theta=theta,
        theta_mode=mode,
        seen=posterior.seen,
        unknown=unknown,
        drifts=drifts,
        uneven=uneven,
        has_share=whole.likelihood.zeros is not None,
    )


def _in_one_chain(parts: list[Draws], rows: list[np.ndarray]) -> Draws:
    """All draws, one chain after the other, in one; `rows` are theirs."""
    fields: dict[str, Any] = {}
    for name in ("theta", "unknown", "drifts", "uneven"):
        values = [getattr(part, name) for part in parts]
        if values[0] is not None:
            fields[name] = np.concatenate([value.reshape(-1, *value.shape[2:]) for value in values])[None]
    unknown = fields["unknown"][0] if "unknown" in fields else ()
    fields["rows"], fields["unknown"] = stacked(rows, unknown, (1, len(rows)))
    return parts[0]._replace(**fields)
