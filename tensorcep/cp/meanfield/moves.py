"""Moves of rows that are held back or foreseen, where what entries say is matched to the log likelihood.

Such updates need not be an ascent: the Gaussian of an entry is good near its present latent value. With weights of many
sizes in a row, as of counts of 0 and of a million, the update can carry the light entries far beyond what it knows, and
the next one farther yet.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.meanfield.rows import refresh_numbers
from tensorcep.cp.meanfield.sites import Sites
from tensorcep.cp.meanfield.state import MeanFieldState
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.subsets import tells
from tensorcep.kernels.rows import packed_products

# The latent values of counts are logs: none that float64 counts one by one lies farther than this from another.
FARTHEST = math.log(2.0**53)


class Before(NamedTuple):
    """A mode before its update: its number, the means of its rows (n_k, Q), and the latent values (n_blocks, LANES)."""

    mode: int
    means: np.ndarray
    f: np.ndarray


def before_move(k: int, state: MeanFieldState) -> Before:
    """What `hold_back` has to know of the present rows of mode k."""
    chunks = state.by_row.chunks[k]
    return Before(k, state.rows.mean[chunks[0] : chunks[-1]].copy(), state.f)


def hold_back(before: Before, state: MeanFieldState, problem: Problem, executor: Executor) -> bool:
    """Shorten the moves of the rows of a mode, in place, until no latent value moves by more than FARTHEST.

    Returns whether a row was held back; latent values are then to be computed again.
    """
    n, first = len(problem.entries.permutation), int(state.by_row.chunks[before.mode][0])
    moved = np.abs(state.f - before.f).ravel()[:n]
    weight = weights_of_entries(problem)
    if weight is not None and moved.max(initial=0.0) > FARTHEST:  # what weighs nothing holds no row back
        moved[~tells(weight)] = 0.0
    if moved.max(initial=0.0) <= FARTHEST:
        return False
    farthest = np.full(len(before.means), FARTHEST)
    np.maximum.at(farthest, problem.entries.rows[:, before.mode].ravel()[:n] - first, moved)
    mine = state.rows.mean[first : first + len(farthest)]
    mine[:] = before.means + (FARTHEST / farthest)[:, None] * (mine - before.means)
    packed_products(first, first + len(farthest), state.rows.Lam, state.rows.mean, state.rows.eta)
    refresh_numbers(first, first + len(farthest), state, executor)
    return True


def shifted(state: MeanFieldState, log_ratio: np.ndarray) -> Sites:
    """The sites at the latent values f to which rows will move: f plus that, one for each dispersion or for all.

    Entries tell the mean count r e^f: as log r rises, rows will take f down. At where f still is the weights of matched
    Gaussians would be wrong, and with them the next r, which then swings.
    """
    sites, learned = state.sites, state.learned
    by_mode = learned is not None and learned.groups.mode is not None
    shift = learned.groups.per_entry(log_ratio) if by_mode else log_ratio[0]  # type: ignore[union-attr]
    return sites._replace(f=sites.f + shift, square=sites.square + shift * (2.0 * sites.f + shift))
