"""Mean-field inference for the CP model: coordinate ascent on a lower bound, one R x R block per row.

q = Gaussian rows x auxiliary variables of the entries, where the likelihood is not Gaussian in f, x laws of the
parameters. The precision of a row is its prior's plus the sum over its entries of weight times E[z z'], z being the
elementwise product of the other modes' rows; its natural mean is the prior's plus the sum of target E[z] - weight
E[z c], c the sum over the columns that are clamped to 1 in the mode; weights and targets are expectations. Modes are
updated in turn, the auxiliary variables and a precision of the entries after each, a dispersion or thresholds after
all. A learned prior is a factor of q too (`tensorcep.cp.model.rows`), updated before the rows in every sweep that is
not annealed. The lower bound of the log evidence cannot fall.

Two methods differ in the auxiliary variable alone. VMP has normal latent values: real values, censored or not, and
labels with the probit link; to counts it matches a Gaussian per entry, with which the best Gaussian rows are a fixed
point but the bound may fall. PG-VB has Polya-Gamma variables: labels with the logit link, negative-binomial counts.

Source: the batch VMP that the CEP paper (Wang and Zhe, sec. 6) compares with, for the same model and priors; Klami
(2014), "Polya-Gamma augmentations for factor models" (PG) sec. 3-4. Where we differ from PG: any order; full R x R
covariances; for counts the bound is kept exact with a random r: E[r] stands where the paper takes
q(omega) = PG(y + <r>, .) (an approximation there), as the tangent at xi bounds the likelihood for every r.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import copy_near, empty_near, on_scratch
from tensorcep.core.executor import Executor, Pass
from tensorcep.core.loop import Method, Sweep
from tensorcep.cp import settings
from tensorcep.cp.model import parameters as of_likelihood
from tensorcep.cp.model import rows as cp_rows
from tensorcep.cp.model.columns import FreeColumns, Orders, encode_columns, free_problem, orders_of, posterior_of_rows
from tensorcep.cp.model.entries import SQUARES, EntriesByRow, room_for_products, sum_chunks, sum_products
from tensorcep.cp.model.latent import latent_of_entries, relative_change
from tensorcep.cp.model.memmap import by_row_of, change_and_score, sum_rows, value_offset
from tensorcep.cp.model.parameters import Laws, Parameters, kernel_arguments, shared_arguments
from tensorcep.cp.model.problem import USUAL, Problem, weights_of_entries
from tensorcep.cp.model.subsets import tells
from tensorcep.cp.posterior import Posterior
from tensorcep.kernels.rows import packed_products, row_divergences, row_moments, second_moments
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Augmentation
from tensorcep.likelihoods.parameters import base
from tensorcep.priors.base import of_mode

# Rows that are updated at a time: their numbers stay in the cache. Whole groups of LANES.
ROWS_AT_A_TIME = 64 * LANES
# Of fewer entries, rows have too few for variances that change slowly, and a sweep takes little time.
MANY = 20_000
# The latent values of counts are logs: none that float64 counts one by one lies farther than this from another. Where
# what entries say is matched to the log likelihood, updates need not be an ascent: the Gaussian of an entry is good
# near its present latent value. With weights of many sizes in a row, as of counts of 0 and of a million, the update can
# carry the light entries far beyond what it knows, and the next one farther yet: moves are held back.
FARTHEST = math.log(2.0**53)
Move = tuple[int, np.ndarray, np.ndarray]  # a mode before its update: see `hold_back`


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

    def update(self, setup: Setup, laws: Laws, problem: Problem, executor: Executor) -> None:
        """Set the best laws of the auxiliary variables at the latent values, in place."""
        augmentation, parameters = setup.augmentation, setup.parameters
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
    some_present = any(one.stage == base.DrawStage.PRESENCE for one in parameters)
    return sites._replace(present=copy_near(weight)) if some_present else sites


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
    parameters: tuple[base.Parameter[Any], ...]  # what is learned of the likelihood
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


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> MeanFieldState:
    """Rows at the starting means with the prior's covariances; `kind` names the likelihood's augmentation."""
    small, columns = cp_rows.with_seen_rows(free_problem(problem)), encode_columns(problem.every_free)
    augmentation = cp_rows.augmentation_in_use(getattr(problem.likelihood, kind), problem) or Augmentation()
    y, weight = problem.entries.y, problem.entries.weight
    stored = on_scratch(y) and augmentation.expected is None
    in_order = sorted(of_likelihood.parameters_of(problem, options), key=lambda one: one.stage)
    parameters = tuple(one.with_observations(y, weight) for one in in_order)
    setup = Setup(
        small,
        columns,
        orders=orders_of(columns),
        augmentation=augmentation,
        parameters=parameters,
        noise=next((i for i, one in enumerate(parameters) if one.is_precision), -1),
        by_row=problem.of_entries or by_row_of(problem, values=stored, executor=executor),
        squares=float(np.einsum("bl,bl->", y, y)) if stored else None,
    )
    rows = cp_rows.rows_at_prior(small)
    n_rows = len(rows.good)
    cp_rows.refresh_rows(rows, 0, n_rows, executor)
    prior = cp_rows.first_prior(small, rows)
    if small.start is not None:
        rows.mean[:] = small.start
    if small.fixed is not None:
        cp_rows.fix_rows(rows, small)
        cp_rows.refresh_rows(rows, 0, n_rows, executor)
        if small.start is not None:
            rows.mean[:] = np.where(small.rows_of_fixed[:, None], rows.mean, small.start)
    P, Q, C = rows.cov.shape[1], small.rank, setup.orders.n_clamped
    sums = MeanFieldSums(
        setup,
        sites=as_observed(problem, setup.augmentation, setup.parameters),
        numbers=np.ones((n_rows, P + Q + 1 if C else P)),
        sum_Z2=np.zeros((n_rows, P + Q * C)),
        sum_yz=np.zeros((n_rows, Q + C)),
    )
    laws = tuple(one.first_law(len(problem.entries.permutation)) for one in setup.parameters)
    state = MeanFieldState(rows, prior, laws, sums, 0)
    refresh_numbers(0, n_rows, state, executor)
    if C:
        state = state.put(square=first_square(state, problem, executor))
    state = _with_latent(state, problem, executor)
    return _with_sites(state, problem, executor) if setup.augmentation.weighted else state


def _with_latent(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The latent values at the present rows; of entries on scratch none are kept."""
    if state.own.setup.on_scratch:
        return state
    f = latent_of_entries(problem.entries, state.rows.mean, executor, state.own.setup.columns.groups)
    return state.put(sites=state.own.sites._replace(f=f))


def _with_sites(
    state: MeanFieldState, problem: Problem, executor: Executor, before: Move | None = None, more: bool = False
) -> MeanFieldState:
    """The best laws of the auxiliary variables at the present rows, whose moves from `before` are not too large."""
    # Matched Gaussians of MANY entries take the variances of the latent values from the sweep before where `more` modes
    # follow: these are half the time of a sweep, change slowly after the first one, and no bound depends on them.
    augmentation, old = state.own.setup.augmentation, state.own.sites
    if not state.own.setup.auxiliary:
        return state
    if augmentation.matched or not augmentation.weighted or len(problem.entries.known):
        state = _with_latent(state, problem, executor)
    if before is not None and hold_back(*before, state, problem, executor):
        state = _with_latent(state, problem, executor)
    if augmentation.matched and more and state.sweeps and len(problem.entries.permutation) >= MANY:
        square = old.square + (state.f - old.f) * (state.f + old.f)
        state = state.put(sites=state.own.sites._replace(square=square))
    elif augmentation.weighted:
        square = latent_squares(problem, all_second_moments(state), executor, state.f)
        state = state.put(sites=state.own.sites._replace(square=square))
    state.own.sites.update(state.own.setup, state.parameters, problem, executor)
    return state


def step(state: MeanFieldState, problem: Problem, options: Any, executor: Executor) -> tuple[MeanFieldState, Sweep]:
    """One sweep: every mode once, with the auxiliary variables and a precision after each; then the rest."""
    setup, annealed = state.own.setup, state.sweeps < options.anneal
    old = state.rows.mean.copy() if setup.on_scratch else state.f
    if not annealed:
        state = state._replace(hyper=cp_rows.update_prior(state.hyper, setup.small, state.rows))
    modes = [k for k in range(len(problem.shape)) if not problem.is_fixed(k)]
    for k in modes:
        own = state.rows.mean[setup.by_row.chunks[k][0] : setup.by_row.chunks[k][-1]]
        before = (k, own.copy(), state.f) if setup.augmentation.matched else None
        state = update_mode(k, state, options.anneal_power if annealed else 1.0, problem, executor)
        state = _with_sites(state, problem, executor, before, more=k != modes[-1])
        state = _with_precision(k, state, problem)
    if not setup.auxiliary or setup.augmentation.weighted:
        state = _with_latent(state, problem, executor)
    state = _with_laws(state, problem, executor)
    if not annealed:
        state = _with_uneven_noise(state, problem, executor)
    # the change of the latent values, relative to them, and the mean log likelihood of the entries; of entries on
    # scratch at the old row means and the new ones, with the sums of the first mode for the next sweep
    parameters, laws = setup.parameters, state.parameters
    theta = shared_arguments(parameters, laws)[0]
    if setup.on_scratch:
        seconds, means = (one.made(executor) for one in sources(0, state))
        sums = ((False, seconds, state.own.sum_Z2), (True, means, state.own.sum_yz))
        known = (setup.columns.groups, setup.by_row, sums, theta)
        change, score = change_and_score((state.rows.mean, old), *known, problem, executor)
        state = state.put(first_summed=True)
    else:
        differs = setup.auxiliary or any(one.uneven for one in parameters)
        y, each = kernel_arguments(parameters, laws, problem) if differs else (problem.entries.y, theta)
        score = cp_rows.train_score(problem, state.f, each, y, partial(of_likelihood.mix_densities, parameters, laws))
        change = relative_change(state.f, old, problem.power)
    noise = state.precision() if setup.noise >= 0 else np.nan
    bound = np.nan if annealed else lower_bound(state, problem, executor)
    sweep = Sweep(change=change, noise_precision=noise, train_score=score, lower_bound=bound)
    return state._replace(sweeps=state.sweeps + 1), sweep


def _with_precision(k: int, state: MeanFieldState, problem: Problem) -> MeanFieldState:
    """The best law of a precision, by the sums of mode k, which was updated last."""
    own, setup, i = state.own, state.own.setup, state.own.setup.noise
    if i < 0:
        return state
    chunks, sites, Q = setup.by_row.chunks[k], own.sites, state.rows.eta.shape[1]
    mine = slice(chunks[0], chunks[-1])
    if setup.auxiliary:  # targets have changed since the sums were taken
        cross = float(np.einsum("bl,bl->", sites.target, state.f)) - 0.5 * float(sites.spread.sum())
    else:
        cross = float(np.einsum("ir,ir->", state.rows.mean[mine], own.sum_yz[mine, :Q]))
        cross += float(own.sum_yz[mine, Q:].sum())
    y, weight, squared = sites.target, problem.power if problem.uneven is None else sites.weight, setup.squares
    if squared is None:  # the sum of weight times the square of the target of one entry
        used = slice(None) if weight is None else weight > 0.0
        squared = float(np.einsum("bl,bl->", y, y) if weight is None else (y[used] ** 2 / weight[used]).sum())
    stats = base.PrecisionStats(problem.total_weight, max(0.0, squared - 2.0 * cross + own.square))
    return state.learn(i, setup.parameters[i].expect(state.parameters[i], stats))


def _with_laws(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The laws that latent values tell, and the auxiliary variables that go with them."""
    # where Gaussians are matched these are at the latent values f to which rows will move (`Parameter.shift`); at where
    # f still is their weights would be wrong, and with them the next law, which then swings
    setup, sites = state.own.setup, state.own.sites
    shift: np.ndarray | float = 0.0
    told = [i for i, one in enumerate(setup.parameters) if one.by_latent]
    if not told:
        return state
    (f, square), power, entries = sites[:2], problem.power, problem.entries

    def marginals(place: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        m, second = (part if place is None else part.ravel()[place] for part in (f, square))
        return m, np.maximum(second - m * m, 0.0)

    laws = state.parameters
    stats = base.EntryStats(
        y=entries.y,
        used=sites.present if len(sites.present) else entries.weight,
        f=f,
        n=len(entries.permutation),
        theta=lambda: kernel_arguments(setup.parameters, laws, problem)[1],
        executor=executor,
        square=square,
        marginals=marginals if setup.augmentation.matched else None,
        power=np.zeros(0) if power is None else power,
    )
    for i in told:
        before = state.parameters[i]
        state = state.learn(i, setup.parameters[i].expect(before, stats))
        if setup.augmentation.matched:
            shift = shift + setup.parameters[i].shift(before, state.parameters[i])
    if np.any(shift):
        sites = sites._replace(f=sites.f + shift, square=sites.square + shift * (2.0 * sites.f + shift))
    sites.update(setup, state.parameters, problem, executor)
    return state


def _with_uneven_noise(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The best factors of noise that differs, with their precision and shape, and what entries then say, in place."""
    # The factors of rows or entries are integrated out exactly given the precision tau and the shape of their prior,
    # which are points: the maximum of the bound given the rows, found after every sweep that is not annealed. The rows
    # see the factors by their means, as weights of the entries.
    setup, sites, f, i = state.own.setup, state.own.sites, state.f, state.own.setup.noise
    if i < 0 or not setup.parameters[i].uneven:
        return state
    power, second = problem.weights, latent_squares(problem, all_second_moments(state), executor)
    target, spread = problem.entries.y, np.zeros((1, 1))
    if setup.auxiliary:
        used = sites.weight > 0.0
        target, spread = (np.divide(part, sites.weight, where=used, out=np.zeros(f.shape)) for part in sites[3:5])
    squares = (target - f) ** 2 + spread + np.maximum(second - f * f, 0.0)
    law = setup.parameters[i].expect(state.parameters[i], base.ExpectedSquares(power, squares))
    sites.weight[:] = power * law.mean
    sites.target[:] = sites.weight * target
    if len(sites.spread):
        sites.spread[:] = sites.weight * spread
    return state.learn(i, law).put(square=float(np.einsum("bl,bl->", sites.weight, second)))


def lower_bound(state: MeanFieldState, problem: Problem, executor: Executor) -> float:
    """The evidence lower bound: what the entries say in expectation, minus the divergences of rows and parameters."""
    sites, setup = state.own.sites, state.own.setup
    bound = cp_rows.rows_bound(state.hyper, state.rows, problem.shape, executor)
    # with a learned precision, whose law is optimal given the rest, entries and precision together give the log
    # normaliser of q(tau) minus that of its prior, minus N log(2 pi) / 2, plus the entropies of auxiliary variables
    if setup.noise >= 0:
        noise, law = setup.parameters[setup.noise], state.parameters[setup.noise]
        return bound + noise.bound(law) + noise.log_normaliser(problem.total_weight) + float(sites.constant.sum())
    weighted = setup.augmentation.weighted
    square = float(np.einsum("bl,bl->", sites.weight, sites.square)) if weighted else state.own.square
    bound += float(sites.constant.sum()) + float(np.einsum("bl,bl->", sites.target, sites.f)) - 0.5 * square
    for one, law in zip(setup.parameters, state.parameters, strict=True):
        bound += one.bound(law)
    return bound


def finish(state: MeanFieldState, problem: Problem) -> Posterior:
    """The posterior q of the rows and of what was learned of the likelihood."""
    prior, setup = state.hyper, state.own.setup
    small, learned = setup.small, of_likelihood.results(setup.parameters, state.parameters)
    axes = [None if own is None else small.prior.axis(k) for k, own in enumerate(prior.marginals)]
    for of, first in zip(axes, small.entries.offsets.tolist(), strict=False):
        if of is not None:
            cp_rows.natural_again(of, first, state.rows)
    sites = cp_rows.sites_by_mode(axes, prior.marginals)
    rows = cp_rows.with_unseen_rows(state.rows, small, prior.now, prior.marginals)
    return posterior_of_rows(rows, problem, prior.now.modes, sites=sites, **learned)


def hold_back(
    k: int, means: np.ndarray, f: np.ndarray, state: MeanFieldState, problem: Problem, executor: Executor
) -> bool:
    """Hold back rows of mode k, in place, until no latent value moves by more than FARTHEST; gives whether any was."""
    # before its update the rows had these means, (n_k, Q), and f were the latent values, (n_blocks, LANES), which are
    # to be computed again if a row was held back
    n, first = len(problem.entries.permutation), int(state.own.setup.by_row.chunks[k][0])
    moved, weight = np.abs(state.f - f).ravel()[:n], weights_of_entries(problem)
    if weight is not None and moved.max(initial=0.0) > FARTHEST:  # what weighs nothing holds no row back
        moved[~tells(weight)] = 0.0
    if moved.max(initial=0.0) <= FARTHEST:
        return False
    farthest = np.full(len(means), FARTHEST)
    np.maximum.at(farthest, problem.entries.rows[:, k].ravel()[:n] - first, moved)
    mine = state.rows.mean[first : first + len(farthest)]
    mine[:] = means + (FARTHEST / farthest)[:, None] * (mine - means)
    packed_products(first, first + len(farthest), state.rows.Lam, state.rows.mean, state.rows.eta)
    refresh_numbers(first, first + len(farthest), state, executor)
    return True


VMP = Method(
    name="vmp",
    needs=("mean_field",),
    options=settings.VMP,
    init=partial(init, "mean_field"),
    step=step,
    finish=finish,
    source="Wang & Zhe, Conditional Expectation Propagation, sec. 6; Albert & Chib (1993)",
    capabilities=USUAL._replace(
        quick=True,
        censors_spikes=True,
        structural_zeros=True,
        heteroscedastic=("noise", "dispersion"),
        weights=lambda problem: True,
        stores=lambda likelihood: likelihood.extent != "trials",
        streams=True,
    ),
    trial_sweeps=lambda options: options.anneal,
    resume=_with_latent,
    of_entries=lambda state: state.own.setup.by_row,
)
PG_VB = replace(
    VMP,
    name="pg-vb",
    needs=("pg",),
    options=settings.PGVB,
    capabilities=VMP.capabilities._replace(heteroscedastic=("dispersion",), streams=False),
    init=partial(init, "pg"),
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4",
)
