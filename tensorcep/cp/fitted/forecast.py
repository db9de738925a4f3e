"""Rows of series at times that the model does not know: forecasts, and what lies between its rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.packing import offsets
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.inputs.coordinates import column_of, coords_to_predict
from tensorcep.cp.posterior import Components, Draws, Mixture
from tensorcep.entries.tables import as_frame
from tensorcep.priors.graph import Net
from tensorcep.priors.ou_process import draw_at, laws_of, laws_of_mode, moments_at, n_lines
from tensorcep.priors.series import Clock


class Placed(NamedTuple):
    """Where entries are among the rows of a belief with rows at other times."""

    belief: Components  # known rows, one unknown row of each mode, and then rows at other times
    coords: np.ndarray  # (n, K) int64, with a row that the model knows in place of each at another time
    later: np.ndarray  # (n, K) int64, the row of the belief of each at another time; -1 of others

    def rows(self, known: np.ndarray) -> np.ndarray:
        """The rows of the belief, of the packed rows (n, K) of `coords`."""
        return np.where(self.later >= 0, self.later, known)


def placed(model: FittedModel, X: Any, joint: bool = False) -> Placed:
    """The entries X among the rows of the belief; those of a mode at other times are drawn together if `joint`."""
    fit = model.fit
    X = fit.observation.without_extent(X)
    belief, coords = fit.belief, coords_to_predict(X, fit.labels)
    later, shape = np.full(coords.shape, -1), fit.posterior.shape
    if not any(clock is not None for clock in fit.series):
        return Placed(belief, coords, later)
    coords, seen = coords.copy(), fit.posterior.seen
    for k, clock in enumerate(fit.series):
        unknown = np.flatnonzero((coords[:, k] < 0) | (coords[:, k] >= shape[k]))
        if clock is None or isinstance(clock, Net) or not len(unknown):
            continue
        laws = _laws(fit, k, clock)
        if laws is None:
            continue
        # labels that have none are at nan
        known = fit.labels[k] is not None
        times = clock.times_of(pd.Index(column_of(as_frame(X), fit.labels, k))) if known else coords[:, k] / clock.step
        times = times[unknown]
        unknown, times = unknown[np.isfinite(times)], times[np.isfinite(times)]
        distinct, which = np.unique(times, return_inverse=True)
        later[unknown, k] = belief.mean.shape[1] + which.ravel()
        coords[unknown, k] = int(np.argmax(seen[slice(*offsets(shape)[k : k + 2])]))
        belief = _extended(belief, fit, k, clock, laws, distinct, joint)
        if belief.deviations is not None:
            along = belief.deviations.modes[1] == k
            belief = belief._replace(later=np.append(belief.later, distinct if along else distinct * np.nan))
    return Placed(belief, coords, later)


def _laws(fit: FitResult, k: int, clock: Clock) -> Any:
    """What the fit learned of how the rows of mode k depend on each other: of all draws, or a list by member."""
    result = fit.posterior
    if isinstance(result, Draws):
        if result.drifts is None:
            return None
        first, lines = sum(n_lines(one) for one in fit.series[:k] if one is not None), np.asarray(result.drifts)
        return laws_of(lines.reshape(-1, *lines.shape[2:])[:, first : first + n_lines(clock)])
    members = result.members if isinstance(result, Mixture) else (result,)
    priors: list[Any] = [getattr(member, "mode_prior", None) for member in members]
    learned = all(prior is not None and prior.drifts and prior.drifts[k] is not None for prior in priors)
    return [laws_of_mode(prior, k) for prior in priors] if learned else None


def _extended(
    belief: Components, fit: FitResult, k: int, clock: Clock, laws: Any, times: np.ndarray, joint: bool
) -> Components:
    """The belief with the rows of mode k at these times."""
    own, cov = slice(*offsets(fit.posterior.shape)[k : k + 2]), belief.cov
    rows = belief.mean[:, own]
    if cov is None:
        # the noise of a time is always the same, so that a row does not depend on what else is asked for
        keys = [int(np.float64(time + 0.0).view(np.uint64)) for time in times]
        size = (len(rows), rows.shape[2])
        noise = np.stack([np.random.default_rng([key, k]).standard_normal(size) for key in keys], axis=1)
        drawn = draw_at(clock, clock.times, rows, laws, times, noise, joint).astype(belief.mean.dtype)
        return belief._replace(mean=np.concatenate([belief.mean, drawn], axis=1))
    found = [moments_at(clock, clock.times, *one, times) for one in zip(rows, cov[:, own], laws, strict=True)]
    mean, new_cov = (np.stack(part) for part in zip(*found, strict=True))
    return belief._replace(mean=np.concatenate([belief.mean, mean], axis=1), cov=np.concatenate([cov, new_cov], axis=1))
