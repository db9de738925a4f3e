"""Rows of one mode that deviate along the axis of another: a fit with one more mode, whose rows are the pairs.

A pair of a row and a time is a row of that mode, with a main effect alone, whose prior is a series for each row that
deviates: engines see a mode like others. What they find is then told apart again: the rows of the modes that there are,
and the deviations (`tensorcep.priors.deviations.Deviations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import Run
from tensorcep.core.packing import diagonal, offsets
from tensorcep.cp.fit.run import MultiStart, last_change
from tensorcep.cp.inputs.side_information import Local
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.cp.model.entries import chunk_starts
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.posterior import Draws, Mixture, Posterior, Result
from tensorcep.priors.base import ModePrior
from tensorcep.priors.deviations import Deviations
from tensorcep.priors.ou_process import laws_of, laws_of_mode


class Pairs(NamedTuple):
    """The pairs of a row and a time that occur, in the order of both."""

    of: Local
    row: np.ndarray  # (p,) int64
    time: np.ndarray  # (p,) float64
    of_entry: np.ndarray  # (n_blocks, LANES) int32, the pair of each entry
    scale: float  # standard deviation of a deviation to expect


# Messages move the scale of deviations, which begin small, by little in a sweep: a share of the tolerance ends the fit.
SHARE_OF_TOL = 1.0 / 3.0


@dataclass(frozen=True)
class Deviating(MultiStart):
    """The policy of a plan whose rows deviate along an axis: another one runs it with one more mode, the pairs."""

    local: Any = None  # `Local`
    policy: Any = None  # as this one is, but for the mode

    def run(self, plan: Plan) -> Run:
        problem, pairs = plan.problem, pairs_of(plan.problem, self.local)
        quick = tuple(
            one._replace(problem=with_pairs(one.problem, pairs), columns=np.append(one.columns, problem.rank))
            for one in self.quick_fits
        )
        starts = tuple(_with_start(start, pairs) for start in self.starts)
        how: dict[str, Any] = {name: getattr(self, name) for name in ("members", "spectral", "one_at_a_time")}
        policy = replace(self.policy, starts=starts, quick_fits=quick, **how)
        tol = plan.options.tol
        share = SHARE_OF_TOL if plan.engine.method.capabilities.passes_messages else 1.0
        with_mode = plan._replace(problem=with_pairs(problem, pairs), policy=policy).with_options(tol=share * tol)
        found = policy.run(with_mode)
        if share < 1.0 and not found.stopped:
            found = found._replace(converged=found.converged or last_change(found) < tol)
        return found._replace(posterior=told_apart(found.posterior, problem, pairs))


def pairs_of(problem: Problem, of: Local) -> Pairs:
    """The pairs of a problem's entries."""
    entries, times = problem.entries, of.clock.times
    order, rank = np.argsort(times, kind="stable"), np.empty(len(times), dtype=np.int64)
    rank[order] = np.arange(len(times))
    row, along = (entries.rows[:, k].astype(np.int64) - entries.offsets[k] for k in (of.row, of.along))
    key = row * len(times) + rank[np.where(entries.weight > 0.0, along, 0)]
    used = entries.weight > 0.0
    distinct = np.unique(key[used])
    of_entry = np.where(used, np.searchsorted(distinct, key), 0).astype(np.int32)
    rows, ranks = np.divmod(distinct, len(times))
    plain: Any = problem.prior
    return Pairs(of, rows, times[order[ranks]], of_entry, expected_size(plain.scale, plain.free))


def expected_size(scale: np.ndarray, free: np.ndarray) -> float:
    """The standard deviation of latent values whose rows have these in their free columns, (K, R) each."""
    of_columns = np.where(free, scale, 1.0).prod(axis=0)
    return float(np.sqrt(of_columns @ of_columns))


def with_pairs(problem: Problem, pairs: Pairs) -> Problem:
    """The problem with the pairs as its last mode, whose only free column is the last one."""
    shape = (*problem.shape, len(pairs.row))
    free = np.zeros((len(shape), problem.rank + 1), dtype=bool)
    free[:-1, :-1], free[-1, -1] = problem.every_free, True
    entries, first = problem.entries, offsets(shape)
    rows = np.concatenate([entries.rows, pairs.of_entry[:, None] + entries.offsets[-1:].astype(np.int32)], axis=1)
    rows[entries.weight[:, None].repeat(len(shape), axis=1) == 0.0] = 0
    chunks = chunk_starts(len(entries.permutation), len(shape), len(rows), int(first[-1]))
    prior: Any = problem.prior  # and for the pairs a series for each row that deviates
    R, K = problem.rank, len(problem.shape)
    # deviations begin small, as the law of their scale has it where all are 0: what the rest can explain it finds first
    new_row = np.zeros((R + 1) * (R + 2) // 2), np.append(np.full(R, CLAMPED), 0.0)
    new_row[0][diagonal(R + 1)] = np.append(np.full(R, CLAMPED), len(pairs.row) / pairs.scale**2)
    parts, last_column = [], (np.append(np.zeros(R), CLAMPED), np.array([CLAMPED]))
    for lines, last, own in zip((prior.Lam, prior.eta), last_column, new_row, strict=True):
        whole = np.concatenate([lines, np.tile(last, (len(lines), 1))], axis=1)
        n = 1 if len(lines) == K else len(pairs.row)
        parts.append(np.concatenate([whole, np.tile(own, (n, 1))]))
    mean, scale, clock = np.ones(free.shape), np.full(free.shape, pairs.scale), pairs.of.clock
    mean[:K, :R], scale[:K, :R], mean[-1, -1] = prior.mean, prior.scale, 0.0
    own_clock = clock._replace(times=pairs.time, groups=pairs.row, period=0.0, phases=np.zeros(1), order=())
    known = {"designs": (*prior.designs, None) if prior.designs else (), "clocks": (*prior.clocks, own_clock)}
    return problem._replace(
        entries=entries._replace(rows=rows, offsets=first, chunk_start=chunks),
        shape=shape,
        rank=R + 1,
        prior=replace(prior, Lam=parts[0], eta=parts[1], mean=mean, scale=scale, free=free, **known),
        start=_with_start(problem.start, pairs),
        free=free,
    )


def _with_start(start: np.ndarray | None, pairs: Pairs) -> np.ndarray | None:
    """Row means to start from: deviations begin at 0."""
    if start is None:
        return None
    whole = np.ones((len(start) + len(pairs.row), start.shape[1] + 1))
    whole[: len(start), :-1], whole[len(start) :, -1] = start, 0.0
    return whole


def told_apart(found: Result, problem: Problem, pairs: Pairs) -> Result:
    """The result in the problem's modes and columns, with the deviations."""
    if isinstance(found, Mixture):
        return Mixture(tuple(_posterior(one, problem, pairs) for one in found.members))
    if not isinstance(found, Draws):
        return _posterior(found, problem, pairs)
    n, K, R = sum(problem.shape), len(problem.shape), problem.rank
    lines: Any = found.drifts
    laws = laws_of(lines.reshape(-1, *lines.shape[2:])[:, -3:, -1:])
    mean = found.rows[:, :, n:, R].reshape(-1, len(pairs.row)).astype(np.float64)
    return found._replace(
        shape=problem.shape,
        rank=R,
        rows=found.rows[:, :, :n, :R].copy(),
        seen=found.seen[:n],
        unknown=None if found.unknown is None else found.unknown[:, :, :K, :R].copy(),
        drifts=lines[:, :, :-3, :R].copy(),
        deviations=_deviations(problem, pairs, laws, mean=mean, variance=None),
    )


def _posterior(found: Any, problem: Problem, pairs: Pairs) -> Posterior:
    n, K, R = sum(problem.shape), len(problem.shape), problem.rank
    modes: Any = found.mode_prior
    P, last = R * (R + 1) // 2, diagonal(R + 1)[R]
    variance, laws = 1.0 / found.Lam[n:, last], laws_of_mode(modes, K)
    slopes = tuple(None if s is None else s._replace(coef=s.coef[:, :R]) for s in modes.slopes[:K])
    drifts = tuple(
        None if d is None else d._replace(length=d.length[:R], season=d.season[:, :R]) for d in modes.drifts[:K]
    )
    sites = found.sites[K] if found.sites else None
    told = None if sites is None else np.stack([sites.Lam[:, 0], sites.eta[:, 0]])
    moments = {"mean": (variance * found.eta[n:, R])[None], "variance": variance[None], "told": told}
    return found._replace(
        shape=problem.shape,
        rank=R,
        Lam=found.Lam[:n, :P].copy(),
        eta=found.eta[:n, :R].copy(),
        seen=found.seen[:n],
        sites=found.sites[:K],
        mode_prior=ModePrior(modes.mean[:K, :R], modes.precision[:K, :R, :R], slopes, drifts),
        deviations=_deviations(problem, pairs, laws, **moments),
    )


def _deviations(problem: Problem, pairs: Pairs, laws: Any, **moments: Any) -> Deviations:
    """The deviations with these means, variances, and what entries say of them; their column is the last one."""
    of, law = pairs.of, {"precision": laws.precision[:, -1], "length": laws.length[:, -1]}
    places = {"row": pairs.row, "time": pairs.time, "times": of.clock.times}
    return deviations_of((of.row, of.along), problem.shape, **places, **law, **moments)


def deviations_of(modes: tuple[int, int], shape: Sequence[int], **found: Any) -> Deviations:
    """The deviations of rows of the first of these modes along the second."""
    first = offsets(shape)
    return Deviations(modes, (int(first[modes[0]]), int(first[modes[1]])), shape[modes[0]], **found)
