"""The draws of a fitted CP model as the groups that ArviZ knows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tensorcep.core.arviz import arviz_container
from tensorcep.core.checks import check_values
from tensorcep.core.components import EntryTheta
from tensorcep.core.packing import offsets
from tensorcep.entries.interop import column_names
from tensorcep.entries.tensor import SparseTensor

DRAWS = ("chain", "draw")


def export_draws(
    model: Any, X: Any, y: Any, n_samples: int | None, rng: np.random.Generator, extent: Any = None
) -> Any:
    """Return posterior draws, predictive ones at X, and the data y there, in the container of ArviZ.

    ``n_samples`` is None for a sampler, all of whose draws are taken, chain by chain.
    """
    chains = max(1, model._fitted_belief().n_chains)
    modes = column_names([None if labels is None else labels.name for labels in model.labels_], "component")
    cells = np.zeros((0, len(modes)), dtype=np.int64) if X is None else X
    values, theta, f, rows = model._row_draws(n_samples, cells, rng)

    def by_chain(draws: np.ndarray) -> np.ndarray:
        return draws.reshape(chains, -1, *draws.shape[1:])

    factors = model._aligned_draws(values[:, : sum(model.shape_)])
    posterior: dict[str, Any] = {
        f"factor_{k}": ((*DRAWS, modes[k], "component"), by_chain(factors[:, a:b]))
        for k, (a, b) in enumerate(itertools.pairwise(offsets(model.shape_)))
    }
    likelihood = model._likelihood()
    name = None if likelihood.parameter is None else likelihood.parameter.name
    if likelihood.levels is not None and likelihood.levels.learned:
        posterior["thresholds"] = ((*DRAWS, "threshold"), by_chain(theta.values))
    if likelihood.zeros is not None:
        posterior["zero_share"] = (DRAWS, by_chain(theta.values[:, -1]))
    if name is not None:
        dims, drawn = _parameter(theta, len(values), modes)
        posterior[name] = (dims, by_chain(drawn))
    groups: dict[str, Any] = {"posterior": posterior}
    if X is not None:
        new = model._observations(f, rows, theta, rng, extent)
        groups["posterior_predictive"] = {"y": ((*DRAWS, "entry"), by_chain(new))}
        y = X.values if y is None and isinstance(X, SparseTensor) else y
    if y is not None:
        groups["observed_data"] = {"y": (("entry",), check_values(model._coded(y), len(rows), name="y"))}
    coords = {
        mode: np.asarray(labels.index) for mode, labels in zip(modes, model.labels_, strict=True) if labels is not None
    }
    return arviz_container(groups, coords, model.method_, approximate=n_samples is not None)


def _parameter(theta: EntryTheta, n_draws: int, modes: list[Any]) -> tuple[tuple[str, ...], np.ndarray]:
    """Dimensions and draws of the likelihood's parameter: one number, or one per row of a mode."""
    drawn = np.broadcast_to(theta.values, (n_draws, theta.values.shape[1]))
    if theta.mode is None:
        return DRAWS, drawn[:, 0]
    return (*DRAWS, modes[theta.mode]), drawn
