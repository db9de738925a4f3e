"""New rows of a sampler: one draw of each for every draw of everything else (`tensorcep.cp.fold_in`).

Entries that are Gaussian in f ask for one Gibbs step of the rows; of others a row's posterior is drawn from directly
(`fold_posterior`), without auxiliary variables, which take tens of steps to forget where they began.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.components import Components
from tensorcep.core.executor import Executor
from tensorcep.core.jit import LOGLIK_SIGNATURE, address_of
from tensorcep.cp.fold_in import Natural, NewEntries, given
from tensorcep.cp.fold_posterior import PosteriorRoom, draw_posterior_rows, posterior_room
from tensorcep.cp.gibbs.streams import Stream, stream_key
from tensorcep.cp.gibbs.sweep import ModeColumns, columns_of_mode, draw_rows, room_for
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.record import Likelihood


class RowDraws(NamedTuple):
    """What one draw after the other needs.

    Attributes
    ----------
    likelihood : Likelihood
    entries : NewEntries
    free : (R,) bool
        Columns that are not clamped in the mode.
    gaussian : bool
        Whether the entries are Gaussian in f.
    modes : (n, Q) float64
        Where the last draw found the modes of the rows' posteriors: those of the next one are not far.
    seed : int
    """

    likelihood: Likelihood
    entries: NewEntries
    free: np.ndarray
    gaussian: bool
    modes: np.ndarray
    seed: int


def row_draws(likelihood: Likelihood, entries: NewEntries, free: np.ndarray, gaussian: bool, seed: int) -> RowDraws:
    """What the draws of these rows need, the first of which starts at the origin."""
    modes = np.zeros((entries.size, int(free.sum())))
    return RowDraws(likelihood, entries, free, gaussian, modes, abs(seed))


def drawn_rows(belief: Components, c: int, draws: RowDraws, prior: Natural, executor: Executor) -> np.ndarray:
    """One draw (n, R) of the new rows given the draw c of everything else."""
    entries, free = draws.entries, draws.free
    if entries.indexed is None:
        raise ValueError("the new entries have no index.")
    used, by_row, order = entries.indexed.used, entries.indexed.by_row, entries.indexed.by_row.entry
    columns = columns_of_mode(np.flatnonzero(free), np.flatnonzero(~free))
    mean = np.ascontiguousarray(belief.mean[c, used], dtype=np.float64)
    source, out = lane_zeros((len(used), len(columns.order))), np.ones((entries.size, len(free)))
    executor.run(arrange, 0, len(used), mean, columns.order, source)
    y, theta = (np.broadcast_to(part, len(order)) for part in given(belief, c, draws.likelihood, entries))
    key, lists = stream_key(draws.seed, c, 0, Stream.FOLDED), (by_row.start, by_row.end, by_row.others)
    if not draws.gaussian:
        room = partial(_posterior_room, int(np.diff(by_row.start).max()), columns)
        address = address_of(draws.likelihood.loglik, LOGLIK_SIGNATURE)
        known = (address, y[order], theta[order], (prior.Lam[0], prior.eta[0]), key, draws.modes, out)
        executor.run(draw_posterior_rows, 0, entries.size, lists, source, columns, *known, scratch=room)
        if not np.isfinite(out).all():
            raise FloatingPointError("the posterior of a new row leaves the finite numbers; the model may be damaged.")
        return out
    alike = len(theta) == 0 or bool(np.ptp(theta) == 0.0)
    says = (0, np.zeros(0), y[order]) if alike else (0, theta[order], (theta * y)[order])
    precision = theta[:1].copy() if alike else np.ones(1)
    record = (0, lists, source, columns, says, prior.Lam, prior.eta, precision, key, np.zeros(entries.size), out)
    rows_room: Any = partial(room_for, len(columns.free), columns)
    executor.run(draw_rows, 0, entries.size, *record, align=LANES, scratch=rows_room)
    return out


def _posterior_room(n: int, columns: ModeColumns) -> tuple[PosteriorRoom]:
    """Work space of one thread."""
    return (posterior_room(n, columns),)
