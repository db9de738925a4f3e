"""The state of a mean-field method, and the update of the rows of a mode.

q = Gaussian rows x auxiliary variables of the entries x laws of the parameters. The precision of a row is its prior's
plus the sum over its entries of weight times E[z z'], z being the elementwise product of the other modes' rows; its
natural mean is the prior's plus the sum of target E[z] - weight E[z c], c the sum over the columns that are clamped to
1 in the mode.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.meanfield.sites import ExpectedSites, targets_of_rows
from tensorcep.cp.model.columns import FreeColumns, Orders, arranged
from tensorcep.cp.model.entries import EntriesByRow, sum_chunks, sum_products
from tensorcep.cp.model.memmap import sum_rows, taken_off
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.row_prior import PriorFactor, rows_together
from tensorcep.cp.model.rows import RowState, refresh_rows, times_in_sum
from tensorcep.kernels.rows import arrange, row_moments, second_moments
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameters.base import Parameter
from tensorcep.priors.base import of_mode

# Rows that are updated at a time: their numbers stay in the cache. Whole groups of LANES.
ROWS_AT_A_TIME = 64 * LANES


class Setup(NamedTuple):
    """What follows from the problem.

    Attributes
    ----------
    small : Problem
        The problem in the free columns.
    augmentation : Augmentation
        Without `expected` where no entry has an auxiliary variable.
    parameters : tuple of Parameter
        What is learned of the likelihood.
    squares : float or None
        Of entries on scratch, of which no latent values are kept, the sum of the squares of the values.
    """

    small: Problem
    columns: FreeColumns
    orders: Orders
    augmentation: Augmentation
    parameters: tuple[Parameter[Any], ...]
    by_row: EntriesByRow
    squares: float | None

    @property
    def auxiliary(self) -> bool:
        """Whether entries have auxiliary variables, or are matched."""
        return self.augmentation.expected is not None

    @property
    def noise(self) -> int:
        """The place of a precision among the parameters; -1 where there is none."""
        return next((i for i, one in enumerate(self.parameters) if one.is_precision), -1)

    @property
    def on_scratch(self) -> bool:
        """Whether latent values are computed piece by piece."""
        return self.squares is not None


class MeanFieldSums(NamedTuple):
    """What follows from rows and parameters.

    Attributes
    ----------
    numbers : (n_rows, P), or (n_rows, P + Q + 1) with clamped columns
        Second moments of the rows; their means, and 1.
    sum_Z2, sum_yz : (n_rows, W), (n_rows, Q + C)
        Sums over the entries of a row, as of its last update (see `Orders`; W = P and C = 0 for the CP model).
    square : float
        E[sum of f^2] over the entries; of no meaning where entries have weights.
    first_summed : bool
        Whether the sums of the first mode are those of the next sweep already.
    """

    setup: Setup
    sites: ExpectedSites
    numbers: np.ndarray
    sum_Z2: np.ndarray
    sum_yz: np.ndarray
    square: float = 0.0
    first_summed: bool = False


class MeanFieldState(NamedTuple):
    """Between two sweeps; rows have the free columns alone, Q of them, and `parameters` are laws."""

    rows: RowState
    hyper: PriorFactor
    parameters: tuple[Any, ...]
    own: MeanFieldSums
    sweeps: int

    @property
    def setup(self) -> Setup:
        """What follows from the problem."""
        return self.own.setup

    @property
    def f(self) -> np.ndarray:
        """E[f] of every entry, (n_blocks, LANES)."""
        return self.own.sites.f

    def put(self, **changes: Any) -> MeanFieldState:
        """The state with some of its sums, or its sites, changed."""
        return self._replace(own=self.own._replace(**changes))

    def learn(self, i: int, law: Any) -> MeanFieldState:
        """The state with another law of parameter i."""
        return self._replace(parameters=tuple(law if i == j else old for j, old in enumerate(self.parameters)))

    def precision(self, power: float = 1.0) -> float:
        """E[tau] of the entries, by which their weights are multiplied, times `power`."""
        i: Any = self.setup.noise
        return power if i < 0 else self.setup.parameters[i].precision(self.parameters[i], power)


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


def offsets_of(sum_Z2: np.ndarray, Q: int, n_clamped: int) -> np.ndarray:
    """Sums over the entries of weight E[z c], (n, Q), from sums (n, P + C Q)."""
    offset: np.ndarray = sum_Z2[:, -n_clamped * Q :].reshape(len(sum_Z2), n_clamped, Q).sum(axis=1)
    return offset


def linear_sums(sum_Z2: np.ndarray, sum_yz: np.ndarray, Q: int, n_clamped: int) -> np.ndarray:
    """Sums over the entries of target E[z] - weight E[z c], (n, Q)."""
    return sum_yz[:, :Q] - offsets_of(sum_Z2, Q, n_clamped) if n_clamped else sum_yz


def update_natural(update: Update, sum_Z2: np.ndarray, sum_yz: np.ndarray, Lam: np.ndarray, eta: np.ndarray) -> None:
    """Set Lam (n, P) and eta (n, Q) of all rows of a mode, or of those that the update is of, from their sums."""
    P, Q = Lam.shape[1], eta.shape[1]
    for a in range(0, len(Lam), ROWS_AT_A_TIME):
        b = min(len(Lam), a + ROWS_AT_A_TIME)
        prior = update.of(a, b)
        linear = linear_sums(sum_Z2[a:b], sum_yz[a:b], Q, update.n_clamped)
        for sums, line, out in ((sum_Z2[a:b, :P], prior.Lam, Lam[a:b]), (linear, prior.eta, eta[a:b])):
            np.multiply(sums, update.precision, out=out)
            out += line


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


def update_mode(k: int, state: MeanFieldState, power: float, problem: Problem, executor: Executor) -> MeanFieldState:
    """The optimal q of every row of mode k, every entry counting `power` times."""
    rows, own, chunks, precision = state.rows, state.own, state.setup.by_row.chunks[k], state.precision(power)
    first, last, n_clamped = int(chunks[0]), int(chunks[-1]), state.setup.orders.n_clamped
    mine, (P, Q), series = slice(first, last), (rows.Lam.shape[1], rows.eta.shape[1]), state.hyper.of_series(k)
    prior, now = state.hyper, state.hyper.now
    Lam, eta, mean = (of_mode(part, k, problem.shape) for part in (now.Lam, now.eta, prior.mean))
    update, before = Update(precision, Lam, eta, mean, n_clamped), rows.mean[mine].copy()
    at_once = executor.updates_rows and series is None and not state.setup.on_scratch
    if not (k == 0 and own.first_summed):
        _sum_mode(k, state, update if at_once else None, problem, executor)
    # what the square owes to the columns that are clamped in this mode stays
    rest = own.square - _square_of_rows(mine, before, own) if n_clamped else 0.0
    if series is not None:
        linear = linear_sums(own.sum_Z2[mine], own.sum_yz[mine], Q, n_clamped)
        marginals = rows_together(series.links, own.sum_Z2[mine, :P], linear, first, rows, precision)
        state = state._replace(hyper=prior.with_rows(k, marginals))
    elif not at_once:
        update_natural(update, own.sum_Z2[mine], own.sum_yz[mine], rows.Lam[mine], rows.eta[mine])
        refresh_rows(rows, first, last, executor)
    refresh_numbers(first, last, state, executor)
    square = rest + _square_of_rows(mine, rows.mean[mine], own)
    return state.put(square=square, first_summed=own.first_summed and k != 0)


def _sum_mode(k: int, state: MeanFieldState, update: Update | None, problem: Problem, executor: Executor) -> None:
    """Sums over the entries of the rows of mode k, in place, and with an `update` what follows of them for the rows."""
    own, setup, (seconds, means) = state.own, state.setup, sources(k, state, executor)
    chunks, width = setup.by_row.chunks[k], own.sum_Z2.shape[1]
    if setup.on_scratch:
        sums: tuple[Any, ...] = ((False, seconds, own.sum_Z2), (True, means, own.sum_yz))
        sum_rows(chunks, setup.by_row, taken_off(problem.likelihood), sums, executor)
        return
    target = targets_of_rows(own.sites, problem).ravel()
    sums = ((own.sites.weight.ravel(), seconds, own.sum_Z2), (target, means, own.sum_yz))
    kernel, more = (sum_chunks, ()) if update is None else (update_chunks, (update, state.rows))
    record = (chunks, setup.by_row, sums, *more)
    executor.run(kernel, 0, len(chunks) - 1, *record, scratch=lambda: (np.empty(width),))


def sources(k: int, state: MeanFieldState, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """What the sums of mode k take of the rows of the other modes, for the elements of z z' and of z."""
    numbers, orders, first = state.own.numbers, state.setup.orders, state.setup.small.entries.offsets
    if not orders.n_clamped:
        return numbers, state.rows.mean
    return tuple(arranged(k, order, numbers, first, executor) for order in (orders.products, orders.means))  # type: ignore[return-value]


def all_second_moments(state: MeanFieldState, executor: Executor) -> np.ndarray:
    """Packed second moments of all columns of the rows."""
    numbers, orders, first = state.own.numbers, state.setup.orders, state.setup.small.entries.offsets
    if not orders.n_clamped:
        return numbers
    out = np.empty((len(numbers), orders.second.shape[1]))
    for k, order in enumerate(orders.second):
        executor.run(arrange, int(first[k]), int(first[k + 1]), numbers, order, out)
    return out


def refresh_numbers(first: int, last: int, state: MeanFieldState, executor: Executor) -> None:
    """Second moments, and means, of the packed rows first:last."""
    rows, numbers, P = state.rows, state.own.numbers, state.rows.cov.shape[1]
    if numbers.shape[1] > P:
        numbers[first:last, P:-1] = rows.mean[first:last]
    executor.run(second_moments, first, last, rows.mean, rows.cov, numbers, align=LANES)


def _square_of_rows(mine: slice, mean: np.ndarray, own: MeanFieldSums) -> float:
    """E[sum of f^2] over the entries but for c^2, from the sums of the rows and their means (n, Q)."""
    sum_Z2, Q, n_clamped = own.sum_Z2[mine], mean.shape[1], own.setup.orders.n_clamped
    P = Q * (Q + 1) // 2
    square = np.einsum("ip,ip->p", own.numbers[mine, :P], sum_Z2[:, :P]) @ times_in_sum(Q)
    return float(square + 2.0 * np.einsum("iq,iq->", mean, offsets_of(sum_Z2, Q, n_clamped)) if n_clamped else square)


def first_square(state: MeanFieldState, problem: Problem, executor: Executor) -> float:
    """E[sum of f^2] over the entries from all elements of the first mode."""
    setup, orders = state.setup, state.setup.orders
    chunks, ones, sums = setup.by_row.chunks[0], problem.weights.ravel(), []
    for order in (orders.products, orders.squares):
        source = arranged(0, order, state.own.numbers, problem.entries.offsets, executor)
        out, scratch = np.zeros((len(source), source.shape[1])), np.empty(source.shape[1])
        if setup.on_scratch:
            sum_rows(chunks, setup.by_row, taken_off(problem.likelihood), ((False, source, out),), executor)
        else:
            sum_products(chunks[0], chunks[-1], setup.by_row, ones, source, out, scratch)
        sums.append(out)
    mine = slice(chunks[0], chunks[-1])
    clamped = float((sums[1] @ times_in_sum(orders.n_clamped)).sum())
    return _square_of_rows(mine, state.rows.mean[mine], state.own._replace(sum_Z2=sums[0])) + clamped
