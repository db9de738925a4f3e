"""The mean-field update of the rows of a mode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.packing import offsets
from tensorcep.cp.meanfield.columns import Order, Orders
from tensorcep.cp.meanfield.sites import targets_of_rows
from tensorcep.cp.meanfield.state import MeanFieldState
from tensorcep.cp.meanfield.stored import SweepReport, sum_mode, tell
from tensorcep.cp.model.entries import sum_chunks, sum_products
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.row_prior import rows_together
from tensorcep.cp.model.rows import RowState, refresh_rows, times_in_sum
from tensorcep.kernels.rows import arrange, row_moments, second_moments
from tensorcep.kernels.slots import LANES
from tensorcep.priors.base import of_mode

# What sums over the entries make of the rows of a mode: natural parameters, and moments.

# Rows that are updated at a time: their numbers stay in the cache. Whole groups of LANES.
ROWS_AT_A_TIME = 64 * LANES


class Update(NamedTuple):
    """How the rows of a mode follow from their sums.

    Attributes
    ----------
    precision : float
        By which the sums are multiplied.
    Lam, eta, mean : (1 or n, P), (1 or n, Q), (1 or n, Q) float64
        Natural parameters of the prior of the rows, and its means: a line for each row, or one for all.
    n_clamped : int
        Columns that are clamped to 1, of which sums have products, too.
    """

    precision: float
    Lam: np.ndarray
    eta: np.ndarray
    mean: np.ndarray
    n_clamped: int = 0

    @property
    def lines(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Those of the prior."""
        return self.Lam, self.eta, self.mean

    def of(self, first: int, last: int) -> Update:
        """That of some rows of the mode."""
        Lam, eta, mean = (one if len(one) == 1 else one[first:last] for one in self.lines)
        return Update(self.precision, Lam, eta, mean, self.n_clamped)


def offsets_of(sum_Z2: np.ndarray, P: int, n_clamped: int) -> np.ndarray | None:
    """Sums over the entries of E[z c], (n, Q), from sums (n, P + C Q); None where no column is clamped."""
    if not n_clamped:
        return None
    n, width = sum_Z2.shape
    found: np.ndarray = sum_Z2[:, P:].reshape(n, n_clamped, (width - P) // n_clamped).sum(axis=1)
    return found


def update_natural(update: Update, sum_Z2: np.ndarray, sum_yz: np.ndarray, Lam: np.ndarray, eta: np.ndarray) -> None:
    """Set Lam (n, P) and eta (n, Q) of all rows of a mode, or of those that the update is of, from their sums."""
    P, Q = Lam.shape[1], eta.shape[1]
    for a in range(0, len(Lam), ROWS_AT_A_TIME):
        b = min(len(Lam), a + ROWS_AT_A_TIME)
        own, offset = update.of(a, b), offsets_of(sum_Z2[a:b], P, update.n_clamped)
        linear = sum_yz[a:b, :Q] if offset is None else sum_yz[a:b, :Q] - offset
        for sums, prior, out in ((sum_Z2[a:b, :P], own.Lam, Lam[a:b]), (linear, own.eta, eta[a:b])):
            np.multiply(sums, update.precision, out=out)
            out += prior


def update_chunks(
    first: int,
    last: int,
    chunks: np.ndarray,
    by_row: Any,
    sums: tuple[Any, ...],
    update: Update,
    rows: RowState,
    scratch: np.ndarray,
) -> None:
    """`sum_chunks` of z z' and of z, and what follows of them for the rows chunks[first]:chunks[last], in place."""
    sum_chunks(first, last, chunks, by_row, sums, scratch)
    a, b, begin = int(chunks[first]), int(chunks[last]), int(chunks[0])
    (_, _, sum_Z2), (_, _, sum_yz) = sums
    update_natural(update.of(a - begin, b - begin), sum_Z2[a:b], sum_yz[a:b], rows.Lam[a:b], rows.eta[a:b])
    row_moments(a, b, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)


# The mean-field update of the rows of one mode.
#
# The precision of a row is its prior's plus the sum over its entries of weight times E[z z'], z being the elementwise
# product of the other modes' rows; its natural mean is the prior's plus the sum of target E[z] - weight E[z c], c the
# sum over the columns that are clamped to 1 in the mode.


def update_mode(k: int, state: MeanFieldState, power: float, problem: Problem, executor: Executor) -> MeanFieldState:
    """The optimal q of every row of mode k, every entry counting `power` times."""
    rows, chunks, precision = state.rows, state.by_row.chunks[k], state.precision(power)
    first, last = int(chunks[0]), int(chunks[-1])
    mine, (P, Q) = slice(first, last), (rows.Lam.shape[1], rows.eta.shape[1])
    series, before, at_once = state.prior.of_series(k), rows.mean[mine], False
    update = _update_of(k, precision, state, problem)
    seconds, means = sources(k, state, problem, executor)
    if state.stored is not None:
        state = _with_stored_sums(k, state, (seconds, means), executor)
    else:
        target, width = targets_of_rows(state.sites, problem).ravel(), state.sum_Z2.shape[1]
        both = ((state.sites.weight.ravel(), seconds, state.sum_Z2), (target, means, state.sum_yz))
        at_once, record = executor.updates_rows and series is None, (chunks, state.by_row, both)
        before = before.copy() if at_once and state.orders is not None else before
        kernel, more = (update_chunks, (update, rows)) if at_once else (sum_chunks, ())
        executor.run(kernel, 0, len(chunks) - 1, *record, *more, scratch=lambda: (np.empty(width),))
    # what the square owes to the columns that are clamped in this mode stays
    offset = offsets_of(state.sum_Z2[mine], P, update.n_clamped)
    rest = 0.0 if offset is None else state.square - _square_of_rows(mine, offset, before, state)
    if series is not None:
        linear = state.sum_yz[mine, :Q] if offset is None else state.sum_yz[mine, :Q] - offset
        found = rows_together(series.links, state.sum_Z2[mine, :P], linear, first, rows, precision)
        state = state._replace(found=(*state.found[:k], found, *state.found[k + 1 :]))
    elif not at_once:
        update_natural(update, state.sum_Z2[mine], state.sum_yz[mine], rows.Lam[mine], rows.eta[mine])
        refresh_rows(rows, first, last, executor)
    refresh_numbers(first, last, state, executor)
    return state._replace(square=rest + _square_of_rows(mine, offset, rows.mean[mine], state))


def _update_of(k: int, precision: float, state: MeanFieldState, problem: Problem) -> Update:
    prior, shape = state.prior, problem.shape
    Lam, eta, mean = (of_mode(lines, k, shape) for lines in (prior.now.Lam, prior.now.eta, prior.mean))
    return Update(precision, Lam, eta, mean, 0 if state.orders is None else state.orders.n_clamped)


def sources(k: int, state: MeanFieldState, problem: Problem, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """What the sums of mode k take of the rows of the other modes, for the elements of z z' and of z."""
    if state.orders is None:
        return state.numbers, state.rows.mean
    products, means = state.orders.products, state.orders.means
    return tuple(arranged(k, order, state.numbers, problem, executor) for order in (products, means))  # type: ignore[return-value]


def _with_stored_sums(
    k: int, state: MeanFieldState, given: tuple[np.ndarray, np.ndarray], executor: Executor
) -> MeanFieldState:
    """The sums of mode k, of entries on scratch, if they are not there already."""
    stored: Any = state.stored
    if k == 0 and stored.ahead:
        return state._replace(stored=stored._replace(ahead=False))
    sums = ((False, given[0], state.sum_Z2), (True, given[1], state.sum_yz))
    sum_mode(k, state.by_row, stored.shift, sums, executor)
    return state


def report(
    state: MeanFieldState, old: np.ndarray, problem: Problem, executor: Executor
) -> tuple[MeanFieldState, SweepReport]:
    """What a sweep tells of entries on scratch, whose row means were `old`; the sums of mode 0 are then ahead."""
    seconds, means = sources(0, state, problem, executor)
    sums = ((False, seconds, state.sum_Z2), (True, means, state.sum_yz))
    known = (state.columns, state.by_row, sums, float(state.law.mean[0]))
    told = tell((state.rows.mean, old), *known, problem, executor)
    return state._replace(stored=state.stored._replace(ahead=True)), told  # type: ignore[union-attr]


def arranged(k: int, order: Order, numbers: np.ndarray, problem: Problem, executor: Executor) -> np.ndarray:
    """The numbers of the rows of the other modes in the order of the elements of mode k."""
    first = offsets(problem.shape)
    others = [j for j in range(len(problem.shape)) if j != k]
    out = np.empty((len(numbers), len(order[k, others[0]])))
    for j in others:
        executor.run(arrange, int(first[j]), int(first[j + 1]), numbers, order[k, j], out)
    return out


def whole_second_moments(state: MeanFieldState, problem: Problem, executor: Executor) -> np.ndarray:
    """Packed second moments of all columns of the rows."""
    if state.orders is None:
        return state.numbers
    first, whole = offsets(problem.shape), state.orders.whole
    out = np.empty((len(state.numbers), whole.shape[1]))
    for k, order in enumerate(whole):
        executor.run(arrange, int(first[k]), int(first[k + 1]), state.numbers, order, out)
    return out


def refresh_numbers(first: int, last: int, state: MeanFieldState, executor: Executor) -> None:
    """Second moments, and means, of the packed rows first:last."""
    rows, P = state.rows, state.rows.cov.shape[1]
    if state.orders is not None:
        state.numbers[first:last, P:-1] = rows.mean[first:last]
    executor.run(second_moments, first, last, rows.mean, rows.cov, state.numbers, align=LANES)


def _square_of_rows(mine: slice, offset: np.ndarray | None, mean: np.ndarray, state: MeanFieldState) -> float:
    """E[sum of f^2] over the entries but for c^2, from the sums of the rows and their means (n, Q)."""
    P, Q = state.rows.Lam.shape[1], state.rows.eta.shape[1]
    square = np.einsum("ip,ip->p", state.numbers[mine, :P], state.sum_Z2[mine, :P]) @ times_in_sum(Q)
    return float(square if offset is None else square + 2.0 * np.einsum("iq,iq->", mean, offset))


def first_square(state: MeanFieldState, orders: Orders, problem: Problem, executor: Executor) -> float:
    """E[sum of f^2] over the entries from all elements of the first mode."""
    chunks, ones = state.by_row.chunks[0], problem.entries.weight.ravel()
    ones = ones if problem.power is None else problem.power.ravel()
    sums = []
    for order in (orders.products, orders.squares):
        source = arranged(0, order, state.numbers, problem, executor)
        out, scratch = np.zeros((len(source), source.shape[1])), np.empty(source.shape[1])
        if state.stored is not None:
            sum_mode(0, state.by_row, state.stored.shift, ((False, source, out),), executor)
        else:
            sum_products(chunks[0], chunks[-1], state.by_row, ones, source, out, scratch)
        sums.append(out)
    state = state._replace(sum_Z2=sums[0])
    mine = slice(chunks[0], chunks[-1])
    clamped = float((sums[1] @ times_in_sum(orders.n_clamped)).sum())
    offset = offsets_of(state.sum_Z2[mine], state.rows.Lam.shape[1], orders.n_clamped)
    return _square_of_rows(mine, offset, state.rows.mean[mine], state) + clamped
