"""Results of methods with more rows in one mode; the rows that were there keep their bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.belief import Draws, Mixture, PointEstimate, Posterior, Result
from tensorcep.core.packing import offsets


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
