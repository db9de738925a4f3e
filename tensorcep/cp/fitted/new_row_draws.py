"""New rows of a sampler: one draw of each for every draw of everything else (`tensorcep.cp.fitted.new_rows`).

Entries that are Gaussian in f ask for one Gibbs step of the rows; of others a row's posterior is drawn from directly,
by a compiled kernel (`draw_posterior_rows`), without auxiliary variables, which take tens of steps to forget where they
began.

The row's posterior is p(u) = N(u; prior) prod_n p(y_n | z_n'u + c_n), log-concave for every likelihood that samplers
take. Newton's steps find its mode and the precision there; a draw from the multivariate t distribution about it starts
a chain of independence Metropolis-Hastings steps with the same proposals (Tierney 1994, "Markov chains for exploring
posterior distributions", sec. 2.3). The t distribution has heavier tails than the posterior, whose tails are not above
those of the prior: the chain converges at a geometric rate whatever the entries say, and most proposals are taken.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.betas import Beta
from tensorcep.core.components import Components
from tensorcep.core.executor import Executor
from tensorcep.core.jit import LOGLIK_SIGNATURE, address_of, block_kernel, call_loglik
from tensorcep.cp.fitted.new_rows import Indexed, Natural, NewEntries, given, law_of_share
from tensorcep.cp.gibbs.streams import Stream, stream_key
from tensorcep.cp.gibbs.sweep import ModeColumns, columns_of_mode, draw_rows, product_of_others, room_for
from tensorcep.kernels.outer import add_outer_products, dot_row, padded
from tensorcep.kernels.rows import arrange
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.kernels.streams import gamma, new_stream, normal, start_stream, uniform
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.zeros import presence

# Newton's steps, at most, the halvings of all of them, and the squared length of a step, in standard deviations, that
# is the last one: the proposals, not the draws, depend on it.
NEWTON, HALVINGS, SETTLED = 30, 20, 1e-4
# Steps of the chain after the first draw, and degrees of freedom of the proposals beyond the number of columns.
STEPS, MORE_DF = 6, 4.0


class PosteriorRoom(NamedTuple):
    """Work space of one thread, for rows of at most n entries.

    Attributes
    ----------
    z, weighted : (n, W)
        Products of the other modes' rows, and the same times the curvature of the entry's log likelihood.
    rest : (n,)
        Sums of the columns that are clamped.
    f, value, d1, d2 : (n,)
        Latent values, and the log likelihood there with its derivatives.
    gram : (S + 1, S)
    lower : (S, S)
        The Cholesky factor of the precision.
    mode, before, step, now : (1, W)
    stream : (4,) uint64
    """

    z: np.ndarray
    weighted: np.ndarray
    rest: np.ndarray
    f: np.ndarray
    value: np.ndarray
    d1: np.ndarray
    d2: np.ndarray
    gram: np.ndarray
    lower: np.ndarray
    mode: np.ndarray
    before: np.ndarray
    step: np.ndarray
    now: np.ndarray
    stream: np.ndarray


def posterior_room(n: int, columns: ModeColumns) -> PosteriorRoom:
    """Work space for rows of at most n entries."""
    W, S = len(columns.order), padded(len(columns.free))
    return PosteriorRoom(
        z=lane_zeros((n, W)),
        weighted=lane_zeros((n, W)),
        rest=np.zeros(n),
        f=np.zeros(n),
        value=np.zeros(n),
        d1=np.zeros(n),
        d2=np.zeros(n),
        gram=lane_zeros((S + 1, S)),
        lower=lane_zeros((S, S)),
        mode=lane_zeros((1, W)),
        before=lane_zeros((1, W)),
        step=lane_zeros((1, W)),
        now=lane_zeros((1, W)),
        stream=new_stream(),
    )


@block_kernel
def _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room):
    """Log density of the row u (1, W) but for a constant; leaves f and the derivatives of the entries in the room."""
    W, R = room.z.shape[1], len(prior_eta)
    for q in range(n):
        room.f[q] = room.rest[q] + dot_row(room.z, q * W, u, 0, W)
    call_loglik(loglik, y, room.f[:n], theta, room.value[:n], room.d1[:n], room.d2[:n])
    total, p = 0.0, 0
    for q in range(n):
        total += room.value[q]
    for a in range(R):
        total += u[0, a] * prior_eta[a]
        for b in range(a):
            total -= u[0, a] * prior_Lam[p + b] * u[0, b]
        total -= 0.5 * prior_Lam[p + a] * u[0, a] * u[0, a]
        p += a + 1
    return total


@block_kernel
def _newton_step(n, prior_Lam, prior_eta, u, room):
    """Newton's step from u to `room.step`, the precision's factor to `room.lower`; gives the squared length of it."""
    W, R, gram, lower, step = room.z.shape[1], len(prior_eta), room.gram, room.lower, room.step
    S = gram.shape[1]
    gram[:] = 0.0
    for q in range(n):
        weight = max(0.0, -room.d2[q])
        for a in range(W):
            room.weighted[q, a] = weight * room.z[q, a]
    add_outer_products(n, R, room.weighted, room.z, room.d1, gram)
    for a in range(R):
        total = prior_eta[a] + gram[S, a]
        for b in range(R):
            total -= prior_Lam[a * (a + 1) // 2 + b if b <= a else b * (b + 1) // 2 + a] * u[0, b]
        step[0, a] = total
    for a in range(R):
        for b in range(a + 1):
            total = gram[a, b] + prior_Lam[a * (a + 1) // 2 + b]
            for c in range(b):
                total -= lower[a, c] * lower[b, c]
            lower[a, b] = total / lower[b, b] if b < a else math.sqrt(total)
    size = 0.0
    for a in range(R):
        total = step[0, a]
        for b in range(a):
            total -= lower[a, b] * step[0, b]
        step[0, a] = total / lower[a, a]
        size += step[0, a] * step[0, a]
    _solve_upper(R, lower, step)
    return size


@block_kernel
def _solve_upper(R, lower, x):
    """x = lower^-T x."""
    for a in range(R - 1, -1, -1):
        total = x[0, a]
        for b in range(a + 1, R):
            total -= lower[b, a] * x[0, b]
        x[0, a] = total / lower[a, a]


@block_kernel
def _find_mode(n, loglik, y, theta, prior_Lam, prior_eta, room):
    """Move `room.mode` to the mode of the posterior."""
    u, before, R = room.mode, room.before, len(prior_eta)
    best, halvings = _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room), 0
    for _ in range(NEWTON):
        size = _newton_step(n, prior_Lam, prior_eta, u, room)
        for a in range(R):
            before[0, a] = u[0, a]
            u[0, a] += room.step[0, a]
        found = _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room)
        while not found >= best - SETTLED and halvings < HALVINGS:
            halvings += 1
            for a in range(R):
                u[0, a] = 0.5 * (u[0, a] + before[0, a])
            found = _log_posterior(n, loglik, y, theta, prior_Lam, prior_eta, u, room)
        best = found
        if size < SETTLED:
            break


@block_kernel
def _propose(R, room):
    """A proposal to `room.now`; gives the log of its density, but for a constant."""
    s, now, df = room.stream, room.now, MORE_DF + R
    square = 0.0
    for a in range(R):
        now[0, a] = normal(s)
        square += now[0, a] * now[0, a]
    scale = df / (2.0 * gamma(s, 0.5 * df))
    _solve_upper(R, room.lower, now)
    for a in range(R):
        now[0, a] = room.mode[0, a] + math.sqrt(scale) * now[0, a]
    return -0.5 * (df + R) * math.log1p(square * scale / df)


@block_kernel
def draw_posterior_rows(first, last, lists, source, columns, loglik, y, theta, prior, key, modes, out, room):
    """Draw the rows first:last of `out` (n, R), whose clamped columns stay.

    `lists` and `source` are those of `gibbs.sweep.draw_rows`; y and theta (N,) are in the order of the lists, and
    `loglik` is the address of the likelihood's kernel. `prior` is (Lam (P,), eta (Q,)), packed, of the free columns;
    `modes` (n, Q) is where Newton's steps start, and becomes where they end. `key` is (seed, sweep, part).
    """
    start, end, others = lists
    prior_Lam, prior_eta = prior
    R, s = len(prior_eta), room.stream
    for i in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + i)
        a, b = start[i], end[i]
        n = b - a
        for q in range(n):
            room.rest[q] = product_of_others(q, R, others[a + q], source, columns.clamped, room.z)
        for r in range(R):
            room.mode[0, r] = modes[i, r]
        _find_mode(n, loglik, y[a:b], theta[a:b], prior_Lam, prior_eta, room)
        for r in range(R):
            modes[i, r] = room.mode[0, r]
        weight = -np.inf
        for step in range(STEPS + 1):
            log_t = _propose(R, room)
            new = _log_posterior(n, loglik, y[a:b], theta[a:b], prior_Lam, prior_eta, room.now, room) - log_t
            if step == 0 or math.log(uniform(s)) < new - weight:
                weight = new
                for r in range(R):
                    out[i, columns.free[r]] = room.now[0, r]


def drawn_presence(
    likelihood: Likelihood, law: Beta, y: np.ndarray, f: np.ndarray, theta: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A draw of which new entries are no structural zeros, (N,) bool."""
    log_mass = np.empty_like(f)
    likelihood.loglik(y, f, theta, log_mass, np.empty_like(f), np.empty_like(f))
    return rng.random(len(f)) < presence(y, log_mass, law.mean)


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
