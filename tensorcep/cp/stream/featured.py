"""Rows of a stream at a time, and the prior that follows from their features: what it is by now, what batches tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.core.belief import ModePrior
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.stream.slopes import (
    MapOfFeatures,
    first_map,
    learned_on,
    prior_lines,
    sound_lines,
    told,
    with_root,
)
from tensorcep.priors.design import Design
from tensorcep.priors.learned import Expected

if TYPE_CHECKING:
    from tensorcep.cp.stream.adf import ModeRows, StreamState


def at_time(
    mode: ModeRows, rows: Any, keep: float, time: float, prior: Natural | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of some rows at a time, w = keep^(time since the last update): posterior^w prior^(1 - w).

    `prior` takes the place of the one that they had.
    """
    if keep == 1.0 and prior is None:
        return mode.Lam.take(rows, axis=0), mode.eta.take(rows, axis=0)
    old_Lam, old_eta = mode.prior_Lam[rows], mode.prior_eta[rows]
    new_Lam, new_eta = (old_Lam, old_eta) if prior is None else prior
    weight = keep ** np.maximum(0.0, time - mode.time[rows])[:, None]
    return new_Lam + weight * (mode.Lam[rows] - old_Lam), new_eta + weight * (mode.eta[rows] - old_eta)


def rows_at(state: StreamState, k: int, rows: np.ndarray, keep: float, time: float) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of some rows of mode k at a time, with the prior that their features give them by now."""
    return at_time(state.modes[k], rows, keep, time, prior_now(state, k, rows))


def prior_now(state: StreamState, k: int, rows: np.ndarray) -> Natural | None:
    """The prior that features give some rows of mode k by now; None where the mode has none."""
    known = state.maps[k] if state.maps else None
    design = state.designs[k] if state.designs else None
    if known is None or design is None:
        return None
    mode = state.modes[k]
    lines = prior_lines(known, design, rows, mode.seen[rows])
    before = Natural(mode.prior_Lam[rows], mode.prior_eta[rows])
    return sound_lines(lines, before, Natural(mode.Lam[rows], mode.eta[rows]))


def map_after(state: StreamState, k: int, rows: np.ndarray, new: Natural) -> MapOfFeatures:
    """The map of the features of mode k after some of its rows got new natural parameters."""
    known: Any = state.maps[k]
    design: Any = state.designs[k]
    mode, seen = state.modes[k], state.modes[k].seen[rows]
    for some, is_seen in ((rows[seen], True), (rows[~seen], False)):
        own = Natural(*(part[seen == is_seen] for part in new))
        old = Natural(mode.Lam[some], mode.eta[some]) if is_seen else None
        known = told(known, design, some, own, old) if len(some) else known
    return learned_on(known, design)


def with_maps(
    state: StreamState,
    prior: ModePrior | None,
    designs: tuple[Design | None, ...],
    expected: Expected | None,
    free: np.ndarray,
) -> StreamState:
    """The state that goes on learning the maps of features that a fit found, `free` (K, R) bool its free columns.

    The rows of modes with features are changed in place: each gets the prior that its features give it.
    """
    if prior is None or expected is None or not any(prior.slopes):
        return state
    maps: list[MapOfFeatures | None] = [None] * len(designs)
    for k, (design, mode, n) in enumerate(zip(designs, state.modes, state.sizes, strict=True)):
        if design is None or not free[k].any():
            continue
        rows, seen = np.arange(n), mode.seen[:n]
        known = first_map(design, expected, k, free[k], prior)
        own = Natural(mode.Lam[:n][seen], mode.eta[:n][seen])
        maps[k] = known = with_root(told(known, design, rows[seen], own, None))
        mode.prior_Lam[:n], mode.prior_eta[:n] = prior_lines(known, design, rows, seen)
        mode.Lam[:n][~seen], mode.eta[:n][~seen] = mode.prior_Lam[:n][~seen], mode.prior_eta[:n][~seen]
    return state._replace(maps=tuple(maps), designs=designs)
