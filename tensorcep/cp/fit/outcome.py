"""The attributes of a fitted estimator, all made before the first one is set."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.belief import Draws, Result, first_member
from tensorcep.core.checks import warn_user
from tensorcep.core.components import Components
from tensorcep.core.loop import Run
from tensorcep.core.packing import pack
from tensorcep.core.scratch import on_scratch
from tensorcep.core.sums import LEAF
from tensorcep.cp.inputs.coordinates import coords_to_predict
from tensorcep.cp.model.entries import all_coords
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.resolve import FitPlan
from tensorcep.entries.tensor import SparseTensor
from tensorcep.priors.fixed import Prior

# What is said of a run that ended at its last sweep.
STOPPED = "stopped after max_iter="


def fitted_attributes(plan: FitPlan, result: Run) -> dict[str, Any]:
    """All attributes that a fit sets.

    Raises
    ------
    FloatingPointError
        If the result is not finite.
    """
    posterior = result.posterior
    unseen_mean, unseen_cov = unseen_moments(posterior, plan.prior)
    return {
        **plan.attributes,
        "labels_": plan.labels,
        "shape_": posterior.shape,
        "n_features_in_": len(posterior.shape),
        "_unseen_mean": unseen_mean,
        "_unseen_cov": unseen_cov,
        **moment_attributes(posterior, unseen_mean, unseen_cov),
        "n_iter_": result.n_iter,
        "converged_": result.converged,
        "trace_": result.trace,
        "n_samples_seen_": len(plan.work.problem.entries.permutation),
        "n_batches_": 1,
    }


def fitted_cells(plan: FitPlan) -> np.ndarray | None:
    """The distinct cells of a fit, (n, K) int32, in order; None of entries on scratch, which are too many to keep."""
    entries = plan.work.problem.entries
    if on_scratch(entries.y):
        return None
    cells = all_coords(entries)
    n = len(cells)
    new = np.ones(n, dtype=bool)
    for first in range(1, n, LEAF):
        last = min(n, first + LEAF)
        moved = [column[first:last] != column[first - 1 : last - 1] for column in cells.T]
        new[first:last] = np.logical_or.reduce(moved)
    return cells if new.all() else cells[new]


def sampled_cells(source: SparseTensor, labels: tuple[Any, ...]) -> np.ndarray:
    """The cells (m, K), among rows with these labels, of a tensor that hold sampled zeros."""
    if source.sampled is None:
        return np.zeros((0, source.order), dtype=np.int32)
    return coords_to_predict(source.select(source.sampled), labels).astype(np.int32)


def lines_among(coords: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Which lines of coordinates (N, m) are among the cells (n, m), (N,) bool."""
    both = np.concatenate([coords, cells])
    _, key = np.unique(both, axis=0, return_inverse=True)
    key = key.ravel()
    return np.isin(key[: len(coords)], key[len(coords) :])


def unseen_moments(posterior: Result, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Mean (K, R) and covariance (K, R, R) of a row of each mode that has no entries; the mean over the mode's rows."""
    learned = getattr(first_member(posterior), "mode_prior", None)
    if learned is not None:
        prior = Prior(learned.mean, learned.precision)
    means = [np.asarray(m, dtype=float) for m in prior.mean]
    unseen_mean = np.stack([np.broadcast_to(_average(m, 1), (posterior.rank,)) for m in means])
    precision = [np.asarray(p, dtype=float) for p in prior.precision]
    unseen_cov = np.stack(
        [np.linalg.inv(np.eye(posterior.rank) * p if p.ndim < 2 else _average(p, 2)) for p in precision]
    )
    return unseen_mean, unseen_cov


def _average(values: np.ndarray, item_dims: int) -> np.ndarray:
    """Mean over rows of per-row values (item_dims dimensions each); shared values as they are."""
    return values.mean(axis=0) if values.ndim > item_dims else values


def moment_attributes(posterior: Result, unseen_mean: np.ndarray, unseen_cov: np.ndarray) -> dict[str, Any]:
    """A posterior, and what predictions need of it and of the prior of unknown rows.

    Raises
    ------
    FloatingPointError
        If the posterior is not finite.
    """
    belief = posterior.components(Components(unseen_mean[None], pack(unseen_cov)[None]))
    arrays = (array for array in (belief.mean, belief.cov) if array is not None)
    if not all(np.isfinite(of_draw).all() for array in arrays for of_draw in array):
        raise FloatingPointError("the fit produced values that are not finite; add damping or a tighter prior.")
    return {"_belief": belief, "posterior_": posterior.within(belief) if isinstance(posterior, Draws) else posterior}


def warn_of_no_convergence(plan: Plan, result: Run) -> None:
    """Warn if a run ended at its last sweep and not at its tolerance."""
    if plan.method.sampler or result.converged or result.stopped:
        return
    member = result.trace.get("member", np.zeros(result.n_iter, dtype=int))
    ends = np.append(np.flatnonzero(np.diff(member)), result.n_iter - 1)
    last = max(result.trace["change"][ends])
    cures = ", raise tol, or add damping" if "damping" in plan.settings.get_params() else " or raise tol"
    warn_user(
        f"{plan.method.name} {STOPPED}{plan.max_iter} sweeps with a relative change of {last:.2g} "
        f"> tol={plan.tol:g}; increase max_iter{cures}.",
        ConvergenceWarning,
    )
