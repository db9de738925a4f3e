"""Rows of unseen labels of one mode, everything else frozen: the conditional posterior that the method would give them.

With z the product of the other modes' rows, of which the belief has first and second moments, the row's entries say

    Gaussian in f:  precision w E[z z'],  natural mean t E[z]    with weight w and target t, times the noise precision,

which is CEP's message (eqs 14-15) and the mean-field update at once; for points it is the conditional of a Gibbs step.
Where entries are not Gaussian in f mean-field methods iterate their auxiliary variables, methods that pass messages
sweep over the new entries with messages to the new rows alone (`message_rows`), and samplers draw
(`tensorcep.cp.fitted.new_row_draws`). Columns that are clamped to 1 in the mode are taken as known. In a result with
these rows (`with_new_rows`) the rows that were there keep their bits.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws, GammaNoise, Mixture, PointEstimate, Posterior, Result
from tensorcep.core.betas import Beta
from tensorcep.core.components import Components
from tensorcep.core.executor import Executor
from tensorcep.core.loop import AnyMethod
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.cep.sweep import cep_chunks
from tensorcep.cp.laplace.method import LAPLACE
from tensorcep.cp.laplace.sweep import laplace_chunks
from tensorcep.cp.messages.passes import settle_mode
from tensorcep.cp.messages.state import Pace
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.cp.model.entries import EntriesByRow, pack_entries, sum_products
from tensorcep.cp.model.latent import latent_moments
from tensorcep.cp.model.parameters import theta_of
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import diagonal
from tensorcep.kernels.rows import row_moments
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.zeros import weigh
from tensorcep.priors.fixed import FixedPrior


def with_new_rows(result: Result, mode: int, parts: list[Any]) -> Result:
    """A result with rows added at the end of a mode.

    Parameters
    ----------
    parts : list
        For every component (member of a mixture, draw, or the only one) the new rows: `fold_in.Natural` in all columns
        for posteriors, values (n, R) for draws and estimates.
    """
    end = int(offsets(result.shape)[mode + 1])
    if isinstance(result, Mixture):
        members = [_posterior(member, mode, end, own) for member, own in zip(result.members, parts, strict=True)]
        return Mixture(tuple(members))
    if isinstance(result, Posterior):
        return _posterior(result, mode, end, parts[0])
    n = len(parts[0])
    seen = _joined(result.seen, np.ones(n, dtype=bool), end)
    changed: dict[str, Any] = {"shape": _longer(result.shape, mode, n), "seen": seen}
    if isinstance(result, PointEstimate):
        return result._replace(rows=_joined(result.rows, parts[0], end), **changed)
    new = np.stack(parts).reshape(*result.rows.shape[:2], n, result.rank).astype(result.rows.dtype)
    theta = result.theta
    if theta is not None and result.theta_mode == mode:
        new_theta = theta.mean(axis=2, keepdims=True) if result.uneven is None else result.uneven[..., :1]
        theta = np.concatenate([theta, np.repeat(new_theta, n, axis=2)], axis=2)
    rows = np.concatenate([result.rows[:, :, :end], new, result.rows[:, :, end:]], axis=2)
    return Draws(**{**result._asdict(), **changed, "rows": rows, "theta": theta})


def _posterior(member: Posterior, mode: int, end: int, new: Any) -> Posterior:
    n, dispersion = len(new.eta), member.dispersion
    if dispersion is not None and dispersion.mode == mode:
        dispersion = dispersion.of_new(n)
    return member._replace(
        shape=_longer(member.shape, mode, n),
        Lam=_joined(member.Lam, new.Lam, end),
        eta=_joined(member.eta, new.eta, end),
        seen=_joined(member.seen, np.ones(n, dtype=bool), end),
        dispersion=dispersion,
    )


def _longer(shape: tuple[int, ...], mode: int, n: int) -> tuple[int, ...]:
    return tuple(size + n * (k == mode) for k, size in enumerate(shape))


def _joined(rows: np.ndarray, new: np.ndarray, end: int) -> np.ndarray:
    """Rows with new ones before row `end`."""
    return np.concatenate([rows[:end], new, rows[end:]])


# The Beta law of a share that is one number counts so many entries.
SURE = 1e9


def dispersion_beside(belief: Components, c: int, likelihood: Likelihood) -> float:
    """The dispersion of the other counts in component c."""
    given = likelihood.parameter is None or belief.theta is None
    return float(likelihood.default_theta if given else belief.theta.values[c, 0])  # type: ignore[union-attr]


def law_of_share(belief: Components, c: int, likelihood: Likelihood) -> Beta | None:
    """What component c knows of the share of structural zeros; None where there are none."""
    if likelihood.zeros is None or belief.theta is None:
        return None
    if belief.theta.shares is None:
        share = float(belief.theta.values[c, -1])
        return Beta(SURE * share, SURE * (1.0 - share))
    a, b = belief.theta.shares
    return Beta(float(a[c, 0]), float(b[c, 0]))


# Rounds of the auxiliary variables: at most, and the relative change of the latent values at which they end.
ROUNDS, SETTLED = 100, 1e-6


class NewEntries(NamedTuple):
    """Entries of the new rows.

    Attributes
    ----------
    mode : int
    row : (N,) int64
        Which of the new rows each entry is of, counted from 0.
    others : (N, K - 1) int64
        Packed rows of the other modes, as the belief has them.
    y : (N,) float64
        Values as the likelihood has them.
    size : int
        How many new rows there are.
    indexed : Indexed or None
        What all components share, once it is found (`with_index`).
    """

    mode: int
    row: np.ndarray
    others: np.ndarray
    y: np.ndarray
    size: int
    indexed: Indexed | None = None


class Indexed(NamedTuple):
    """The entries by new row, with the rows of the other modes counted among those that occur, `used` (m,)."""

    used: np.ndarray
    by_row: EntriesByRow


def with_index(entries: NewEntries) -> NewEntries:
    """The entries with their index, which costs two sorts of them."""
    by_row = by_new_row(entries)
    used, index = np.unique(by_row.others, return_inverse=True)
    others = np.ascontiguousarray(index.reshape(by_row.others.shape), dtype=np.int32)
    return entries._replace(indexed=Indexed(used, by_row._replace(others=others)))


class Natural(NamedTuple):
    """Natural parameters of rows, all columns: Lam (n, P) and eta (n, R)."""

    Lam: np.ndarray
    eta: np.ndarray


def by_new_row(entries: NewEntries) -> EntriesByRow:
    """The entries of every new row."""
    order = np.argsort(entries.row, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(entries.row, minlength=entries.size))])
    others = np.ascontiguousarray(entries.others[order], dtype=np.int32)
    return EntriesByRow(start, start[1:], order.astype(np.int32), np.zeros(0), others, ())


def second_moments(mean: np.ndarray, cov: np.ndarray | None) -> np.ndarray:
    """Packed second moments (n, P) of rows."""
    i, j = np.tril_indices(mean.shape[1])
    square = mean[:, i] * mean[:, j]
    return square if cov is None else square + cov


class Sources(NamedTuple):
    """What the entries of new rows are summed from, of one component: the rows of the other modes that occur.

    Attributes
    ----------
    by_row : EntriesByRow
        Its rows are those below.
    mean, second : (m, R), (m, P) float64
    free : (R,) bool
        Columns that are not clamped in the mode.
    """

    by_row: EntriesByRow
    mean: np.ndarray
    second: np.ndarray
    free: np.ndarray


def sources(belief: Components, c: int, entries: NewEntries, free: np.ndarray) -> Sources:
    """The moments of component c."""
    found = entries.indexed or with_index(entries).indexed
    if found is None:
        raise ValueError("the new entries have no index.")
    mean = np.ascontiguousarray(belief.mean[c, found.used], dtype=np.float64)
    second = second_moments(mean, None if belief.cov is None else belief.cov[c, found.used])
    return Sources(found.by_row, mean, np.ascontiguousarray(second), free)


def updated(prior: Natural, have: Sources, weight: np.ndarray, target: np.ndarray, executor: Executor) -> Natural:
    """Prior x entries, in the free columns, for entries that say N(target / weight; f, 1 / weight)."""
    n, R = len(have.by_row.start) - 1, have.mean.shape[1]
    Z2, z = np.empty((n, have.second.shape[1])), np.empty((n, R))
    for of_entry, source, out in ((weight, have.second, Z2), (target, have.mean, z)):
        room = partial(_room, source.shape[1])
        executor.run(sum_products, 0, n, have.by_row, of_entry, source, out, scratch=room)
    f, eta = np.flatnonzero(have.free), z
    if not have.free.all():
        full = unpack(Z2, R)
        eta = z[:, f] - full[:, f][:, :, ~have.free].sum(axis=2)
        Z2 = pack(full[:, f[:, None], f[None, :]])
    return Natural(prior.Lam + Z2, prior.eta + eta)


def _room(width: int) -> tuple[np.ndarray]:
    """Work space of one thread."""
    return (np.empty(width),)


def in_free(prior_mean: np.ndarray, prior_cov: np.ndarray, free: np.ndarray) -> Natural:
    """Natural parameters (1, P), (1, R) of a prior N(mean (R,), cov (R, R)) in the free columns."""
    precision = np.linalg.inv(prior_cov[np.ix_(free, free)])
    return Natural(pack(0.5 * (precision + precision.T))[None], (precision @ prior_mean[free])[None])


def in_all(rows: Natural, free: np.ndarray, clamped: float = CLAMPED) -> Natural:
    """Rows in all columns; the others are clamped to 1, by a precision of 0 not at all."""
    R, f = len(free), np.flatnonzero(free)
    Lam, eta = np.zeros((len(rows.eta), R * (R + 1) // 2)), np.full((len(rows.eta), R), clamped)
    Lam[:, diagonal(R)] = clamped
    i, j = np.tril_indices(len(f))
    Lam[:, f[i] * (f[i] + 1) // 2 + f[j]] = rows.Lam
    eta[:, f] = rows.eta
    return Natural(Lam, eta)


def moments(rows: Natural, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, R) and packed covariance (n, P)."""
    Lam, eta = map(np.ascontiguousarray, rows)  # the kernel takes rows one after the other in memory
    mean, cov, good = np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta))
    executor.run(row_moments, 0, len(good), Lam, eta, mean, cov, good)
    if not good.all():
        raise FloatingPointError("the precision of a new row is not positive definite; the model may be damaged.")
    return mean, cov


def gaussian_rows(
    belief: Components, c: int, likelihood: Likelihood, entries: NewEntries, prior: Natural, free: np.ndarray,
    augmentation: Augmentation | None, executor: Executor,
) -> Natural:  # fmt: skip
    """The new rows under component c, for entries that are Gaussian in f given their auxiliary variables, if any."""
    have = sources(belief, c, entries, free)
    y, theta = given(belief, c, likelihood, entries)
    precision = theta if likelihood.parameter is not None and likelihood.parameter.is_precision else np.ones_like(theta)
    if augmentation is None:
        return updated(prior, have, precision, precision * y, executor)
    rows = Natural(*(np.repeat(part, entries.size, axis=0) for part in prior))
    before, parts = np.zeros(len(entries.y)), [np.zeros(len(entries.y)) for _ in range(4)]
    law = law_of_share(belief, c, likelihood)
    for _ in range(ROUNDS):
        mean, variance = _latent(belief, c, entries, in_all(rows, free), executor)
        square = mean * mean + variance if augmentation.weighted or augmentation.matched else mean
        augmentation.expected(y, mean, square, theta, *parts)
        if law is not None:
            weigh(y, (mean, square), law, tuple(parts))
        rows = updated(prior, have, precision * parts[0], precision * parts[1], executor)
        change = np.linalg.norm(mean - before) / max(np.linalg.norm(mean), np.finfo(float).tiny)
        if change < SETTLED:
            break
        before = mean
    return rows


def given(belief: Components, c: int, likelihood: Likelihood, entries: NewEntries) -> tuple[np.ndarray, np.ndarray]:
    """What kernels take as y and theta of the new entries in component c, (N,); a new row's is the mean over rows."""
    own, theta = c if belief.theta is not None else 0, theta_of(belief, likelihood)
    if likelihood.levels is not None:
        return likelihood.levels.between(entries.y, theta.values[own])
    if likelihood.zeros is not None:
        return entries.y, np.full(len(entries.y), dispersion_beside(belief, own, likelihood))
    if theta.mode is None:
        return entries.y, np.full(len(entries.y), theta.values[own, 0])
    rows = np.insert(entries.others, entries.mode, -1, axis=1)
    return entries.y, np.ascontiguousarray(theta.of(rows)[own])


def _latent(
    belief: Components, c: int, entries: NewEntries, rows: Natural, executor: Executor
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (N,) of the new entries' latent values."""
    used, index = np.unique(entries.others, return_inverse=True)
    mean, cov = moments(rows, executor)
    known = belief.mean[c, used].astype(np.float64)
    spread = np.zeros((len(used), cov.shape[1])) if belief.cov is None else belief.cov[c, used]
    at = np.insert(index.reshape(entries.others.shape) + len(mean), entries.mode, entries.row, axis=1)
    f, v = np.empty(len(at)), np.empty(len(at))
    latent_moments(np.ascontiguousarray(at), np.concatenate([mean, known]), np.concatenate([cov, spread]), f, v)
    return f, v


# New rows by methods that pass messages, where entries are not Gaussian in f: sweeps over the new entries alone. The
# rows that are known get no messages from them, so that the moments of the other modes, cavity or posterior, are those
# of the fit.

KERNELS: dict[str, tuple[AnyMethod, Any]] = {"cep": (CEP, cep_chunks), "laplace": (LAPLACE, laplace_chunks)}
SWEEPS, TOL, STEP = 200, 1e-7, 0.5


def message_rows(
    belief: Components, c: int, likelihood: Likelihood, theta: float, entries: NewEntries, prior: Natural,
    free: np.ndarray, settings: Any, executor: Executor,
) -> Natural:  # fmt: skip
    """The new rows under the Gaussian c of a belief.

    Parameters
    ----------
    theta : float
        The likelihood's parameter.
    prior : Natural
        Of a new row, in all columns.
    free : (K, R) bool
        Columns that are not clamped to 1, of every mode.
    settings : CEP or Laplace
    """
    if belief.cov is None:
        raise TypeError("messages need Gaussian rows")
    method, kernel = KERNELS[settings.name]
    K, R = free.shape
    if settings.name == "cep":
        settings = dataclasses.replace(settings, messages="full")
    settings = dataclasses.replace(settings, damping=0.0, anneal=0)
    rows, coords, shape = _rows_of_problem(belief.mean[c], belief.cov[c], entries, prior, K)
    gaussian = likelihood.parameter is not None and likelihood.parameter.is_precision
    noise = GammaNoise(1e12 * theta, 1e12) if gaussian else None
    known = likelihood._replace(default_theta=theta, parameter=likelihood.parameter if gaussian else None)
    problem = Problem(
        pack_entries(coords, entries.y, shape), tuple(shape), R, known, FixedPrior(*rows), None, noise, 0,
        None if free.all() else free,
    )  # fmt: skip
    state = method.init(problem, settings, executor)
    step = 1.0 if gaussian else STEP
    rule = state.rule._replace(step=step, power=1.0, theta=theta)
    if settings.name == "cep":
        rule = rule._replace(order=settings.order)
    for sent in (state.messages.a, state.messages.b):
        sent[:] = 0.0
    state = state._replace(rule=rule, pace=Pace(step), noise=(0.0, 1.0) if noise is None else tuple(noise))
    state = settle_mode(state, problem, entries.mode, kernel, executor, SWEEPS, TOL)
    first, n_free = int(problem.entries.offsets[entries.mode]), int(free[entries.mode].sum())
    new, P = slice(first, first + entries.size), n_free * (n_free + 1) // 2
    return Natural(state.rows.Lam[new, :P].copy(), state.rows.eta[new, :n_free].copy())


def _rows_of_problem(
    mean: np.ndarray, cov: np.ndarray, entries: NewEntries, prior: Natural, K: int
) -> tuple[Natural, np.ndarray, tuple[int, ...]]:
    """The new rows at their prior between the rows of the other modes that occur; coordinates among them; the shape."""
    parts, coords, R = [], np.empty((len(entries.y), K), dtype=np.int64), mean.shape[1]
    others = iter(entries.others.T)
    for k in range(K):
        if k == entries.mode:
            coords[:, k] = entries.row
            parts.append(Natural(*(np.repeat(part, entries.size, axis=0) for part in prior)))
            continue
        used, coords[:, k] = np.unique(next(others), return_inverse=True)
        precision = np.linalg.inv(unpack(cov[used], R))
        parts.append(Natural(pack(precision), np.einsum("nij,nj->ni", precision, mean[used])))
    rows = Natural(np.concatenate([part.Lam for part in parts]), np.concatenate([part.eta for part in parts]))
    return rows, coords, tuple(len(part.eta) for part in parts)
