"""The state of a mean-field method, what entries say, and the update of the rows of a mode.

q = Gaussian rows x auxiliary variables of the entries x laws of the parameters. The precision of a row is its prior's
plus the sum over its entries of weight times E[z z'], z being the elementwise product of the other modes' rows; its
natural mean is the prior's plus the sum of target E[z] - weight E[z c], c the sum over the columns that are clamped to
1 in the mode.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import copy_near, empty_near
from tensorcep.core.executor import Executor, Pass
from tensorcep.cp.model import rows as cp_rows
from tensorcep.cp.model.columns import FreeColumns, Orders
from tensorcep.cp.model.entries import SQUARES, EntriesByRow, room_for_products, sum_chunks, sum_products
from tensorcep.cp.model.memmap import sum_rows, value_offset
from tensorcep.cp.model.parameters import Laws, Parameters, kernel_arguments
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.rows import row_divergences, row_moments, second_moments
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Augmentation
from tensorcep.likelihoods.parameters.base import DrawStage, Parameter
from tensorcep.priors.base import of_mode

# Rows that are updated at a time: their numbers stay in the cache. Whole groups of LANES.
ROWS_AT_A_TIME = 64 * LANES


# What the entries say of their latent values: where a likelihood is Gaussian in f as it is, that is weight 1 and target
# y. Elsewhere an auxiliary variable per entry makes it so (`tensorcep.likelihoods.augmentation`), whose best law given
# the rows follows from E[f], and E[f^2] where weights do.


class ExpectedSites(NamedTuple):
    """Every entry's latent value and what it says of it, (n_blocks, LANES) each, 0 in padding lanes."""

    f: np.ndarray  # E[f]
    square: np.ndarray  # E[f^2]; no blocks where nothing depends on it
    weight: np.ndarray  # these four: see `Augmentation.expected`
    target: np.ndarray
    spread: np.ndarray
    constant: np.ndarray
    # of counts with structural zeros, the probability that the entry is none; no blocks for others
    present: np.ndarray = np.zeros((0, LANES))

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it is made before it is read."""
        return ("f", "square", "spread", "constant", "present")

    def update(
        self, augmentation: Augmentation, parameters: Parameters, laws: Laws, problem: Problem, executor: Executor
    ) -> None:
        """Set the best laws of the auxiliary variables at the latent values, in place."""
        y, theta = kernel_arguments(parameters, laws, problem)
        square = self.square if augmentation.weighted else self.f
        results = (self.weight, self.target, self.spread, self.constant)
        cp_rows.per_entry((y, self.f, square, theta), results, augmentation.expected, problem, executor)
        for parameter, law in zip(parameters, laws, strict=True):
            present = parameter.weigh_expected(law, y, (self.f, self.square), results)
            if present is not None:
                used = problem.entries.weight
                np.multiply(present, used, out=self.present)
                self.constant[-1:] *= used[-1:]  # only the last block may have padding lanes
        if problem.power is not None:
            for part in results:
                part *= problem.power
        for parameter, law in zip(parameters, laws, strict=True):
            for part in results[:3] if parameter.uneven else ():
                part *= law.mean


def as_observed(problem: Problem, augmentation: Augmentation, parameters: Parameters) -> ExpectedSites:
    """Weight 1 and target y, times the entry's power; latent values are not set yet."""
    y, weight, none = problem.entries.y, problem.entries.weight, np.zeros((0, LANES))
    if problem.power is not None:
        y, weight = problem.power * y, problem.power
    if augmentation.expected is None:
        weight, y = (weight, y) if problem.uneven is None else (weight.copy(), y.copy())
        return ExpectedSites(none, none, weight, y, none, none)
    spread, constant = empty_near(problem.entries.y), empty_near(problem.entries.y)
    spread[:], constant[:] = 0.0, 0.0
    sites = ExpectedSites(none, none, copy_near(weight), copy_near(y), spread, constant)
    some_present = any(one.stage == DrawStage.PRESENCE for one in parameters)
    return sites._replace(present=copy_near(weight)) if some_present else sites


def squared_targets(sites: ExpectedSites, problem: Problem) -> float:
    """The sum of weight times the square of the target of one entry."""
    y, weight = sites.target, problem.power if problem.uneven is None else sites.weight
    if weight is None:
        return float(np.einsum("bl,bl->", y, y))
    used = weight > 0.0
    return float((y[used] ** 2 / weight[used]).sum())


def latent_squares(
    problem: Problem, second: cp_rows.RowSource, executor: Executor, f: np.ndarray | None = None
) -> np.ndarray:
    """E[f^2] of the entries, (n_blocks, LANES), from packed second moments of all columns; with what is known, by f."""
    rows, twice, square = problem.entries.rows, cp_rows.times_in_sum(problem.rank), empty_near(problem.entries.y)
    executor.run(SQUARES, 0, len(square), rows, second, twice, square, scratch=partial(room_for_products, len(twice)))
    square *= problem.entries.weight
    known = problem.entries.known
    if len(known) and f is not None:
        square += known * (2.0 * f - known)
    return np.maximum(square, 0.0, out=square)  # rounding can take one of a row with little variance below


# What the engine knows between two sweeps.


class Setup(NamedTuple):
    """What follows from the problem."""

    small: Problem  # the problem in the free columns
    columns: FreeColumns
    orders: Orders
    augmentation: Augmentation  # without `expected` where no entry has an auxiliary variable
    parameters: tuple[Parameter[Any], ...]  # what is learned of the likelihood
    noise: int  # the place of a precision among the parameters; -1 where there is none
    by_row: EntriesByRow
    squares: float | None  # of entries on scratch, of which no latent values are kept, the sum of the squares of values

    @property
    def auxiliary(self) -> bool:
        """Whether entries have auxiliary variables, or are matched."""
        return self.augmentation.expected is not None

    @property
    def on_scratch(self) -> bool:
        """Whether latent values are computed piece by piece."""
        return self.squares is not None


class MeanFieldSums(NamedTuple):
    """What follows from rows and parameters; sums are over the entries of a row, as of its last update (`Orders`)."""

    setup: Setup
    sites: ExpectedSites
    numbers: np.ndarray  # (n_rows, P), second moments of rows; with clamped columns (n_rows, P + Q + 1): means, and 1
    sum_Z2: np.ndarray  # (n_rows, W), with W = P for the CP model
    sum_yz: np.ndarray  # (n_rows, Q + C), with C = 0 for the CP model
    square: float = 0.0  # E[sum of f^2] over the entries; of no meaning where entries have weights
    first_summed: bool = False  # whether the sums of the first mode are those of the next sweep already

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it follows from the problem, or is made before it is read."""
        return ("setup", "sum_Z2", "sum_yz", *(() if self.setup.auxiliary else ("sites",)))


class MeanFieldState(NamedTuple):
    """Between two sweeps; rows have the free columns alone, Q of them, and `parameters` are laws."""

    rows: cp_rows.RowState
    hyper: cp_rows.PriorFactor
    parameters: tuple[Any, ...]
    own: MeanFieldSums
    sweeps: int

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
        i: Any = self.own.setup.noise
        return power if i < 0 else self.own.setup.parameters[i].precision(self.parameters[i], power)


class Update(NamedTuple):
    """How the rows of a mode follow from their sums; of the prior a line for each row, or one for all."""

    precision: float  # by which the sums are multiplied
    Lam: np.ndarray  # (1 or n, P) float64, natural parameters of the prior of the rows
    eta: np.ndarray  # (1 or n, Q) float64
    mean: np.ndarray  # (1 or n, Q) float64, its means
    n_clamped: int = 0  # columns that are clamped to 1, of which sums have products, too

    def of(self, first: int, last: int) -> Update:
        """That of some rows of the mode."""
        Lam, eta, mean = (one if len(one) == 1 else one[first:last] for one in (self.Lam, self.eta, self.mean))
        return Update(self.precision, Lam, eta, mean, self.n_clamped)


def offsets_of(sum_Z2: np.ndarray, Q: int, n_clamped: int) -> np.ndarray:
    """Sums over the entries of weight E[z c], (n, Q), from sums (n, P + C Q)."""
    return sum_Z2[:, -n_clamped * Q :].reshape(len(sum_Z2), n_clamped, Q).sum(axis=1)


def linear_sums(sum_Z2: np.ndarray, sum_yz: np.ndarray, Q: int, n_clamped: int) -> np.ndarray:
    """Sums over the entries of target E[z] - weight E[z c], (n, Q)."""
    return sum_yz[:, :Q] - offsets_of(sum_Z2, Q, n_clamped) if n_clamped else sum_yz


def update_natural(update: Update, sum_Z2: np.ndarray, sum_yz: np.ndarray, Lam: np.ndarray, eta: np.ndarray) -> None:
    """Set Lam (n, P) and eta (n, Q) of all rows of a mode, or of those that the update is of, from their sums."""
    P, Q = Lam.shape[1], eta.shape[1]
    for a in range(0, len(Lam), ROWS_AT_A_TIME):
        b = min(len(Lam), a + ROWS_AT_A_TIME)
        prior, linear = update.of(a, b), linear_sums(sum_Z2[a:b], sum_yz[a:b], Q, update.n_clamped)
        for sums, line, out in ((sum_Z2[a:b, :P], prior.Lam, Lam[a:b]), (linear, prior.eta, eta[a:b])):
            np.multiply(sums, update.precision, out=out)
            out += line


def update_parts(
    first: int,
    last: int,
    cuts: np.ndarray,
    offset: int,
    by_row: EntriesByRow,
    weight: np.ndarray,
    seconds: np.ndarray,
    sum_Z2: np.ndarray,
    target: np.ndarray,
    means: np.ndarray,
    sum_yz: np.ndarray,
    update: Update,
    mean: np.ndarray,
    cov: np.ndarray,
    good: np.ndarray,
    divergence: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """Sums of z z' and of z over the entries of the rows cuts[first]:cuts[last]; their moments, and divergences."""
    (a, b), (P, Q) = (int(cuts[first]), int(cuts[last])), (cov.shape[1], mean.shape[1])
    own, mine, Lam, eta = update.of(a, b), slice(offset + a, offset + b), np.empty((b - a, P)), np.empty((b - a, Q))
    sum_products(mine.start, mine.stop, by_row, weight, seconds, sum_Z2, scratch)
    sum_products(mine.start, mine.stop, by_row, target, means, sum_yz, scratch)
    update_natural(own, sum_Z2[mine], sum_yz[mine], Lam, eta)
    rows = cp_rows.RowState(Lam, eta, mean[mine], cov[mine], good[mine])
    row_moments(0, b - a, *rows)
    row_divergences(0, b - a, rows, own.Lam, own.mean, divergence[mine])


# The sums of the rows of a mode, which take long, and what follows of them.
ROW_UPDATES = Pass(
    update_parts,
    over="rows",
    reads=("seconds", "means"),
    lines=("update.Lam", "update.eta", "update.mean"),
    gives=("mean", "cov", "sum_Z2", "sum_yz", "good", "divergence"),
    also=(
        cp_rows.DIVERGENCES,
        {"rows.mean": "mean", "prior_Lam": "update.Lam", "prior_mean": "update.mean", "out": "divergence"},
    ),
)


def update_mode(k: int, state: MeanFieldState, power: float, problem: Problem, executor: Executor) -> MeanFieldState:
    """The optimal q of every row of mode k, every entry counting `power` times."""
    rows, own, chunks, precision = state.rows, state.own, state.own.setup.by_row.chunks[k], state.precision(power)
    first, last, n_clamped = int(chunks[0]), int(chunks[-1]), state.own.setup.orders.n_clamped
    mine, (P, Q), series = slice(first, last), (rows.Lam.shape[1], rows.eta.shape[1]), state.hyper.of_series(k)
    prior, now = state.hyper, state.hyper.now
    Lam, eta, mean = (of_mode(part, k, problem.shape) for part in (now.Lam, now.eta, prior.mean))
    update = Update(precision, Lam, eta, mean, n_clamped)
    before = rows.mean[mine].copy() if n_clamped else rows.mean[mine]
    at_once = executor.updates_rows and series is None and not state.own.setup.on_scratch
    if not (k == 0 and own.first_summed):
        _sum_mode(k, state, update if at_once else None, problem, executor)
    # what the square owes to the columns that are clamped in this mode stays
    rest = own.square - _square_of_rows(mine, before, own) if n_clamped else 0.0
    if series is not None:
        linear = linear_sums(own.sum_Z2[mine], own.sum_yz[mine], Q, n_clamped)
        marginals = cp_rows.rows_together(series.links, own.sum_Z2[mine, :P], linear, first, rows, precision)
        every = (*prior.marginals[:k], marginals, *prior.marginals[k + 1 :])
        state = state._replace(hyper=prior._replace(marginals=every))
    else:
        update_natural(update, own.sum_Z2[mine], own.sum_yz[mine], rows.Lam[mine], rows.eta[mine])
        if not at_once:
            cp_rows.refresh_rows(rows, first, last, executor)
    refresh_numbers(first, last, state, executor)
    square = rest + _square_of_rows(mine, rows.mean[mine], own)
    return state.put(square=square, first_summed=own.first_summed and k != 0)


def _sum_mode(k: int, state: MeanFieldState, update: Update | None, problem: Problem, executor: Executor) -> None:
    """Sums over the entries of the rows of mode k, in place, and with an `update` what follows of them for the rows."""
    own, setup, rows, (seconds, means) = state.own, state.own.setup, state.rows, sources(k, state)
    chunks, scratch = setup.by_row.chunks[k], partial(room_for_products, own.sum_Z2.shape[1])
    if setup.on_scratch:
        sums = (False, seconds.made(executor), own.sum_Z2), (True, means.made(executor), own.sum_yz)
        sum_rows(chunks, setup.by_row, value_offset(problem.likelihood), sums, executor)
        return
    weight, target, known = own.sites.weight.ravel(), own.sites.target, problem.entries.known
    target = (target - own.sites.weight * known if len(known) else target).ravel()
    if update is None:
        both = (weight, seconds.made(executor), own.sum_Z2), (target, means.made(executor), own.sum_yz)
        executor.run(sum_chunks, 0, len(chunks) - 1, chunks, setup.by_row, both, scratch=scratch)
        return
    stays = not setup.auxiliary and problem.power is None and not len(problem.entries.known)
    work = ROW_UPDATES.of_mode(k, ("weight", "target"), stays)
    entries = setup.by_row, weight, seconds, own.sum_Z2, target, means, own.sum_yz
    record = (chunks - chunks[0], int(chunks[0]), *entries, update, rows.mean, rows.cov, rows.good)
    executor.run(work, 0, len(chunks) - 1, *record, np.empty(len(rows.good)), scratch=scratch)


def sources(k: int, state: MeanFieldState) -> tuple[cp_rows.RowSource, cp_rows.RowSource]:
    """What the sums of mode k take of the rows of the other modes, for the elements of z z' and of z."""
    orders, mean = state.own.setup.orders, state.rows.mean
    if not orders.n_clamped:
        return _numbers(state), cp_rows.RowSource("means", mean, {"mean": mean})
    return _numbers(state, orders.products[k]), _numbers(state, orders.means[k])


def all_second_moments(state: MeanFieldState) -> cp_rows.RowSource:
    """Packed second moments of all columns of the rows."""
    orders = state.own.setup.orders
    return _numbers(state, tuple(orders.second) if orders.n_clamped else None)


def _numbers(state: MeanFieldState, order: Any = None) -> cp_rows.RowSource:
    rows = state.rows
    first, of = state.own.setup.small.entries.offsets, {"mean": rows.mean, "cov": rows.cov}
    return cp_rows.RowSource("numbers", state.own.numbers, of, numbers_of, order, first)


def numbers_of(first: int, last: int, mean: np.ndarray, cov: np.ndarray, numbers: np.ndarray) -> None:
    """Second moments of the rows first:last, and, where there is room, their means, and 1."""
    if numbers.shape[1] > cov.shape[1]:
        numbers[first:last, cov.shape[1] : -1], numbers[first:last, -1] = mean[first:last], 1.0
    second_moments(first, last, mean, cov, numbers)


def refresh_numbers(first: int, last: int, state: MeanFieldState, executor: Executor) -> None:
    """The numbers of the packed rows first:last."""
    executor.run(numbers_of, first, last, state.rows.mean, state.rows.cov, state.own.numbers, align=LANES)


def _square_of_rows(mine: slice, mean: np.ndarray, own: MeanFieldSums) -> float:
    """E[sum of f^2] over the entries but for c^2, from the sums of the rows and their means (n, Q)."""
    sum_Z2, Q, n_clamped = own.sum_Z2[mine], mean.shape[1], own.setup.orders.n_clamped
    P = Q * (Q + 1) // 2
    square = np.einsum("ip,ip->p", own.numbers[mine, :P], sum_Z2[:, :P]) @ cp_rows.times_in_sum(Q)
    return float(square + 2.0 * np.einsum("iq,iq->", mean, offsets_of(sum_Z2, Q, n_clamped)) if n_clamped else square)


def first_square(state: MeanFieldState, problem: Problem, executor: Executor) -> float:
    """E[sum of f^2] over the entries from all elements of the first mode."""
    setup, orders = state.own.setup, state.own.setup.orders
    chunks, ones, sums = setup.by_row.chunks[0], problem.weights.ravel(), []
    for order in (orders.products, orders.squares):
        source = _numbers(state, order[0]).made(executor)
        out, scratch = np.zeros((len(source), source.shape[1])), np.empty(source.shape[1])
        if setup.on_scratch:
            sum_rows(chunks, setup.by_row, value_offset(problem.likelihood), ((False, source, out),), executor)
        else:
            sum_products(chunks[0], chunks[-1], setup.by_row, ones, source, out, scratch)
        sums.append(out)
    mine = slice(chunks[0], chunks[-1])
    clamped = float((sums[1] @ cp_rows.times_in_sum(orders.n_clamped)).sum())
    return _square_of_rows(mine, state.rows.mean[mine], state.own._replace(sum_Z2=sums[0])) + clamped
