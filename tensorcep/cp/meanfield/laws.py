"""The laws of what is learned of the likelihood, given the rows and what the entries say: a precision, dispersions."""

from __future__ import annotations

import numpy as np

from tensorcep.cp.meanfield.sites import squared_targets, total_weight
from tensorcep.cp.meanfield.state import MeanFieldState
from tensorcep.cp.model.parameters import Learned, sampled_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.likelihoods.parameter import Gamma


def law_of_precision(k: int, state: MeanFieldState, problem: Problem) -> Gamma:
    """The optimal q(tau), by the sums of mode k, which was updated last."""
    chunks, (a, b), sites = state.by_row.chunks[k], state.learned.prior, state.sites  # type: ignore[union-attr]
    mine, y, n, Q = slice(chunks[0], chunks[-1]), sites.target, total_weight(problem), state.small.rank
    if state.augmentation is not None:  # targets have changed since the sums were taken
        cross = float(np.einsum("bl,bl->", y, state.f)) - 0.5 * float(sites.spread.sum())
    else:
        cross = float(np.einsum("ir,ir->", state.rows.mean[mine], state.sum_yz[mine, :Q]))
        cross += float(state.sum_yz[mine, Q:].sum())
    squared = squared_targets(sites, problem) if state.stored is None else state.stored.squares
    squares = squared - 2.0 * cross + state.square
    return Gamma(np.array([a + 0.5 * n]), np.array([b + 0.5 * max(0.0, squares)]))


def laws_of_dispersions(state: MeanFieldState, problem: Problem) -> tuple[Learned, Gamma]:
    """What rows have in common, and the laws of the dispersions."""
    learned, sites, present = state.learned, state.sites, problem.entries.weight
    present = present if state.share is None else sites.present
    if state.matched:
        index = sampled_entries(problem, learned.groups)  # type: ignore[union-attr]
        f, square, used = (part.ravel()[index] for part in (sites.f, sites.square, present))
        law = learned.law_of_marginals(state.law, problem, index, f, np.maximum(square - f * f, 0.0), used)  # type: ignore[union-attr]
    else:
        counting, groups, prior = learned.parameter.counting, learned.groups, learned.prior  # type: ignore[union-attr]
        rate = groups.totals(lambda at: present[at] * counting.softplus(sites.f[at], sites.square[at]))  # type: ignore[union-attr]
        law = learned.parameter.law_of_counts(prior, state.law, rate, state.counts)  # type: ignore[union-attr]
    return learned.pooled(law)  # type: ignore[union-attr]
