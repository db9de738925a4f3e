"""How far a fit of a factor model is to be believed, in lines for its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorcep.core.diagnostics import bulk_size, r_hat
from tensorcep.factor_models.predict import latent_of_draws
from tensorcep.factor_models.relations import Relation, RelationPosterior

# Cells of each matrix at which a sampler's latent values are compared; an R-hat above it is said to be large.
CELLS, ALIKE = 200, 1.05


def sweeps_line(model: Any) -> str:
    """Sweeps, how they ended, and the seconds where they are known."""
    seconds = model.trace_.get("seconds")
    said = f"{model.n_iter_}, {'' if model.converged_ else 'not '}converged"
    return said if seconds is None else f"{said}, {float(np.sum(seconds)):.2g} s"


def noise_lines(posterior: RelationPosterior, relations: Sequence[Relation], names: Sequence[str]) -> dict[str, str]:
    """The noise of the real matrices and the dispersion of the counts: medians over the columns."""
    noise, dispersion = [], []
    for sites, relation, name in zip(posterior.sites, relations, names, strict=True):
        if sites.noise is not None and relation.kind.theta == "noise":
            sd = np.atleast_1d(1.0 / np.sqrt(relation.noise_in_units(sites.noise.mean)))
            noise.append(f"{name} sd {np.median(sd):.3g}{_spread(sd)}")
        if sites.r is not None:
            dispersion.append(f"{name} r {np.median(sites.r.mean):.3g}{_spread(sites.r.mean)}")
    lines = {"noise": ", ".join(noise), "dispersion": ", ".join(dispersion)}
    return {key: line for key, line in lines.items() if line}


def _spread(values: np.ndarray) -> str:
    return f" ({values.min():.3g} to {values.max():.3g})" if len(values) > 1 else ""


def health_line(model: Any, relations: Sequence[Relation]) -> str:
    """Of a sampler whether the halves of its chain agree; of others the bound, and the last change if not converged."""
    draws = model.posterior_.draws
    if draws is None:
        changes = model.trace_.get("change", ())
        told = len(changes) and not model.converged_  # a file may hold no changes
        ending = f", the last sweep changed {changes[-1]:.2g} of the latent values" if told else ""
        return f"lower bound {model.lower_bound_:.6g}{ending}"
    rng, found = np.random.default_rng(0), []
    for relation in relations:
        shape = len(draws.rows[relation.row][0]), len(draws.rows[relation.col][0])
        cells = np.stack([rng.integers(0, n, CELLS) for n in shape], axis=1)
        found.append(latent_of_draws(draws, relation, cells))
    values = np.concatenate(found, axis=1)[None]
    largest, size = float(np.max(r_hat(values))), float(np.median(bulk_size(values)))
    advice = "" if largest <= ALIKE else ": not mixed yet, increase max_iter"
    return f"largest R-hat {largest:.3g} of {values.shape[2]} latent values, effective draws {size:.3g}{advice}"
