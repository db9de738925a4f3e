"""The state of a stream some of whose modes are series: its beginning, its new rows, and its rows after a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.core.belief import ModePrior
from tensorcep.core.mode_laws import RowSites
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.stream.drifting import (
    Chain,
    first_chain,
    learned_on,
    rows_together,
    with_phases,
    with_rows,
)
from tensorcep.cp.stream.slopes import sound_lines
from tensorcep.priors.coupled import Known
from tensorcep.priors.fixed import FixedPrior
from tensorcep.priors.learned import Expected

if TYPE_CHECKING:
    from tensorcep.cp.stream.adf import BatchProblem, ModeRows, StreamState


# Shares of messages that are tried, until all rows together are a Gaussian.
SHARES = (1.0, 0.5, 0.25, 0.0)


def chain_of(state: StreamState, k: int) -> Chain | None:
    """What is known of mode k as a series; None where it is none."""
    return state.chains[k] if state.chains else None


def sites_of(mode: ModeRows, n: int) -> Natural:
    """What the entries say of the first n rows of a series."""
    return Natural(mode.Lam[:n] - mode.prior_Lam[:n], mode.eta[:n] - mode.prior_eta[:n])


def with_chains(
    state: StreamState,
    prior: ModePrior | None,
    clocks: Sequence[Any],
    expected: Expected | None,
    free: np.ndarray,
    sites: Sequence[RowSites | None],
) -> StreamState:
    """The state that goes on with the series of a fit, `free` (K, R) bool its free columns.

    `sites` are what its entries say of their rows. The prior of these rows is changed in place.
    """
    if prior is None or expected is None or all(clock is None for clock in clocks):
        return state
    chains: list[Chain | None] = [None] * len(clocks)
    for k, (clock, mode, n) in enumerate(zip(clocks, state.modes, state.sizes, strict=True)):
        if clock is None or not free[k].any():
            continue
        chains[k] = first_chain(expected, k, free[k], prior, clock)
        own, seen = sites[k] if sites else None, mode.seen[:n]
        if own is not None:
            told = Natural(own.Lam, own.eta)
            nothing = Natural(*(0.0 * part for part in told))
            said = (x - y for x, y in zip(*(in_all(w, free[k]) for w in (told, nothing)), strict=True))
            mode.prior_Lam[:n], mode.prior_eta[:n] = mode.Lam[:n], mode.eta[:n]
            for lines, site in zip((mode.prior_Lam, mode.prior_eta), said, strict=True):
                lines[own.place] -= site
        else:  # rows that were not learned together
            for lines, rows in ((mode.prior_Lam, mode.Lam), (mode.prior_eta, mode.eta)):
                lines[:n][~seen] = rows[:n][~seen]
    return state._replace(chains=tuple(chains), clocks=tuple(clocks))


def with_new_rows(
    state: StreamState, before: Sequence[int], labels: Sequence[Sequence[Any] | None], names: Sequence[Any]
) -> StreamState:
    """The state whose new rows of series, those from `before` on, are forecast from the others.

    Only their lines are changed in place. `labels` are those of the new rows of each mode, None where it has none;
    errors call the modes by `names`.

    Raises
    ------
    ValueError
        If a new row has no place on the axis of its mode.
    """
    clocks, chains = list(state.clocks), list(state.chains)
    for k, known in enumerate(state.chains):
        first, n = before[k], state.sizes[k]
        if known is None or n == first:
            continue
        clocks[k] = with_rows(state.clocks[k], first, n, labels[k], names[k])
        chains[k] = known = with_phases(known, clocks[k])
        mode = state.modes[k]
        sites = sites_of(mode, n)
        for part in sites:
            part[first:] = 0.0
        forecast = rows_together(known, clocks[k], sites)
        for own, prior, line in zip((mode.Lam, mode.eta), (mode.prior_Lam, mode.prior_eta), forecast, strict=True):
            own[first:n] = prior[first:n] = line[first:]
    return state._replace(clocks=tuple(clocks), chains=tuple(chains))


def _messages(batch: BatchProblem, k: int, posterior: Any, free: np.ndarray) -> Natural:
    """What a batch with this posterior said of the free columns (R,) bool of its rows of mode k; the others are 1."""
    own, prior = slice(*offsets(batch.problem.shape)[k : k + 2].tolist()), batch.problem.prior
    Lam, eta = unpack(posterior.Lam[own] - prior.Lam[own], len(free)), posterior.eta[own] - prior.eta[own]
    return Natural(pack(Lam * np.outer(free, free)), (eta - Lam[:, :, ~free].sum(axis=2)) * free)


def _with_messages(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, more: Natural
) -> tuple[Natural, Natural]:
    """What entries say of all rows after messages to some, and the rows then; of unsound messages a share counts.

    Messages need not be positive. Each row of a batch is a Gaussian with those to it, but all together may not be.
    """
    for share in SHARES:
        told = Natural(*(part.copy() for part in sites))
        for part, new in zip(told, more, strict=True):
            part[rows] += share * new
        with contextlib.suppress(FloatingPointError):
            return told, rows_together(known, clock, told)
    raise FloatingPointError("the rows of a series are no Gaussian any more; use a tighter prior.")


def told_of_others(state: StreamState, batch: BatchProblem, posterior: Any) -> BatchProblem | None:
    """The batch whose rows of series have the prior that its other rows' entries make; None where no two are of one.

    `posterior` is what the batch led to with rows that were independent beforehand.
    """
    first, prior = offsets(batch.problem.shape), batch.problem.prior
    Lam, eta, again = prior.Lam.copy(), prior.eta.copy(), False
    for k, rows in enumerate(batch.used):
        known = chain_of(state, k)
        if known is None or len(rows) < 2:
            continue
        sites, own, again = sites_of(state.modes[k], state.sizes[k]), slice(*first[k : k + 2].tolist()), True
        new, before = _messages(batch, k, posterior, known.free), Natural(Lam[own], eta[own])
        Lam[own], eta[own] = lines_told(known, state.clocks[k], sites, rows, new, before)
    return batch._replace(problem=batch.problem._replace(prior=FixedPrior(Lam, eta))) if again else None


def lines_told(known: Chain, clock: Known, sites: Natural, rows: np.ndarray, new: Natural, before: Natural) -> Natural:
    """The prior of some rows of a series, `before`, with what new messages to these tell of each other.

    `sites` are what entries say of all rows, before these messages.
    """
    told, whole = _with_messages(known, clock, sites, rows, new)
    said = (site[rows] - old[rows] for site, old in zip(told, sites, strict=True))
    lines = Natural(*(part[rows] - more for part, more in zip(whole, said, strict=True)))
    return sound_lines(lines, before, before)


def learned_rows(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, new: Natural, seen: np.ndarray
) -> tuple[Chain, Natural, Natural]:
    """What is known of a series after new messages to some rows, what entries say of all rows, and the rows then.

    `sites` are what entries said before, `seen` (n,) bool the rows with entries.
    """
    told, whole = _with_messages(known, clock, sites, rows, new)
    with contextlib.suppress(FloatingPointError):  # under the law so far they are sound
        later = learned_on(known, clock, seen, told)
        known, whole = later, rows_together(later, clock, told)
    return known, told, whole


def smoothed(state: StreamState, k: int, batch: BatchProblem, posterior: Any) -> Chain:
    """What is known of mode k, a series, after a batch; all rows of the mode are changed in place."""
    mode, n, rows = state.modes[k], state.sizes[k], batch.used[k]
    known, clock = state.chains[k], state.clocks[k]
    if known is None:
        raise TypeError(f"mode {k} is no series")
    seen = mode.seen[:n].copy()
    seen[rows] = True
    messages = _messages(batch, k, posterior, known.free)
    known, sites, new = learned_rows(known, clock, sites_of(mode, n), rows, messages, seen)
    for own, prior, line, site in zip((mode.Lam, mode.eta), (mode.prior_Lam, mode.prior_eta), new, sites, strict=True):
        own[:n], prior[:n] = line, line - site
    return known
