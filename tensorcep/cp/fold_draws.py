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
from tensorcep.cp.fold_in import Indexed, Natural, NewEntries, given
from tensorcep.cp.fold_posterior import PosteriorRoom, draw_posterior_rows, posterior_room
from tensorcep.cp.fold_zeros import drawn_presence, law_of_share
from tensorcep.cp.gibbs.streams import Stream, stream_key
from tensorcep.cp.gibbs.sweep import ModeColumns, columns_of_mode, draw_rows, room_for
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.record import Likelihood

# Alternations of rows and of which zeros are structural after which a draw counts as one from their joint law.
ZERO_ROUNDS = 10


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
    """One draw (n, R) of the new rows given the draw c of everything else.

    Where some zeros are structural it is the last of `ZERO_ROUNDS` alternations of such draws and of which zeros are.
    """
    law = law_of_share(belief, c, draws.likelihood)
    if law is None:
        return _drawn(belief, c, draws, prior, executor)
    entries, index = draws.entries, _index_of(draws.entries)
    rng, by_row = np.random.default_rng([draws.seed, c]), index.by_row
    products = np.prod(belief.mean[c, index.used][by_row.others], axis=1)
    row_of = np.repeat(np.arange(entries.size), np.diff(by_row.start))
    y, theta = (np.ascontiguousarray(part[by_row.entry]) for part in given(belief, c, draws.likelihood, entries))
    rows = _drawn(belief, c, draws, prior, executor)
    for turn in range(1, ZERO_ROUNDS):
        f = np.einsum("nr,nr->n", products, rows[row_of])
        present = drawn_presence(draws.likelihood, law, y, f, theta, rng)
        rows = _drawn(belief, c, draws, prior, executor, present, turn)
    return rows


def _index_of(entries: NewEntries) -> Indexed:
    if entries.indexed is None:
        raise ValueError("the new entries have no index.")
    return entries.indexed


def _drawn(
    belief: Components,
    c: int,
    draws: RowDraws,
    prior: Natural,
    executor: Executor,
    present: np.ndarray | None = None,
    turn: int = 0,
) -> np.ndarray:
    """One draw of the new rows by the entries that are `present`, in the order of the rows' lists."""
    entries, free = draws.entries, draws.free
    index = _index_of(entries)
    used, by_row, order, others = index.used, index.by_row, index.by_row.entry, index.by_row.others
    columns = columns_of_mode(np.flatnonzero(free), np.flatnonzero(~free))
    mean = np.ascontiguousarray(belief.mean[c, used], dtype=np.float64)
    if present is not None:  # what an entry that is absent says of its row: nothing, as its other rows are 0
        others = np.where(present[:, None], others, np.int32(len(mean)))
        mean = np.vstack([mean, np.zeros_like(mean[:1])])
    source, out = lane_zeros((len(mean), len(columns.order))), np.ones((entries.size, len(free)))
    executor.run(arrange, 0, len(mean), mean, columns.order, source)
    y, theta = (np.broadcast_to(part, len(order)) for part in given(belief, c, draws.likelihood, entries))
    key, lists = stream_key(draws.seed, c, turn, Stream.FOLDED), (by_row.start, by_row.end, others)
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
