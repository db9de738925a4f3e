"""A latent value as the sum of its parts: level, main effects, pairs of modes, components.

Constants wander between main effects and pairs, so parts are centred over the rows that have entries: with the means
a and b of its two sides a pair (u, v) is (u - a)'(v - b), what it loses, u'b and a'v, joins the main effects, and the
means of these the level. Components of all modes stay as they are. In every component of a belief the parts add up to
the latent value, and so do their means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.checks import fail_value
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.fitted.alignment import ColumnBlock, RowLayout, best_order
from tensorcep.cp.fitted.model import FittedModel
from tensorcep.cp.fitted.predict import latent, pairs_at
from tensorcep.cp.inputs.coordinates import by_mode, names_of, rows_of
from tensorcep.cp.posterior.components import Components
from tensorcep.priors.deviations import moments


class LatentTerm(NamedTuple):
    """One term of a latent value: its modes (none for the level), the number of a component, mean and deviation.

    `along`: it is what a row of the first mode deviates by along the second one.
    """

    modes: tuple[int, ...]
    component: int | None
    mean: float
    sd: float
    along: bool = False

    def title(self, names: Sequence[Any]) -> str:
        """What it is called where modes have these names."""
        if self.component is not None:
            return f"component {self.component}"
        return (" along " if self.along else " x ").join(str(names[k]) for k in self.modes) or "level"


def parts_of_entry(belief: Components, layout: RowLayout, rows: np.ndarray, reference: np.ndarray) -> list[LatentTerm]:
    """The parts of the latent value at packed rows (K,).

    Components of all modes of the rows `reference` (n_rows, R) say which of each component of the belief is which.
    """
    several = belief.size > 1
    names: list[tuple[tuple[int, ...], int | None]] = [((), None)]
    means, variances = [], []
    for c in range(belief.size):
        centre = _centres(belief.mean[c], layout)
        found = _parts(belief.mean[c], None if belief.cov is None else belief.cov[c], layout, rows, centre)
        for block in layout.blocks:
            if len(block.modes) > 2 and several:
                order = best_order(belief.mean[c], reference, layout, block)
                own = [(block.modes, r) for r in range(block.columns.start, block.columns.stop)]
                found |= dict(zip(own, [found[own[i]] for i in order], strict=True))
        names = list(found)
        means.append([mean for mean, _ in found.values()])
        variances.append([variance for _, variance in found.values()])
    mean = np.mean(means, axis=0)
    sd = np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))
    parts = [LatentTerm(*name, float(m), float(s)) for name, m, s in zip(names, mean, sd, strict=True)]
    if belief.deviations is None:
        return parts
    each, spread = moments(belief.deviations, *pairs_at(belief, rows[None]))
    sd_of_both = float(np.sqrt(spread.mean() + each.var()))
    return [*parts, LatentTerm(belief.deviations.modes, None, float(each.mean()), sd_of_both, along=True)]


Found = dict[tuple[tuple[int, ...], int | None], tuple[float, float]]


def _centres(mean: np.ndarray, layout: RowLayout) -> list[np.ndarray]:
    """Means (R,) over the rows of each mode that have entries; 0 in columns of more than two modes."""
    centres = [mean[seen].mean(axis=0, dtype=np.float64) for seen in layout.seen]
    for block in layout.blocks:
        for k in range(len(centres)):
            if len(block.modes) > 2 or k not in block.modes:
                centres[k][block.columns] = 0.0
    return centres


def _parts(
    mean: np.ndarray, cov: np.ndarray | None, layout: RowLayout, rows: np.ndarray, centre: list[np.ndarray]
) -> Found:
    """Mean and variance of every part in one component; Gaussian rows are independent."""
    K, R = len(rows), mean.shape[1]
    m = mean[rows].astype(np.float64) - np.stack(centre)
    S = np.zeros((K, R, R)) if cov is None else unpack(cov[rows], R)
    effect, level = np.zeros((K, R)), 0.0
    found: Found = {((), None): (0.0, 0.0)}
    for block in layout.blocks:
        own = block.columns
        if len(block.modes) == 1:
            effect[block.modes[0], own] = 1.0
            level += float(centre[block.modes[0]][own].sum())
        elif len(block.modes) == 2:
            a, b = block.modes
            effect[a, own], effect[b, own] = centre[b][own], centre[a][own]
            level += float(centre[a][own] @ centre[b][own])
    for k in range(K):
        if effect[k].any():
            found[((k,), None)] = (float(effect[k] @ m[k]), float(effect[k] @ S[k] @ effect[k]))
    variance = 0.0  # of the averages over independent rows which make the level
    if cov is not None:
        for weight, seen in zip(effect, layout.seen, strict=True):
            variance += float(weight @ unpack(cov[seen].sum(axis=0), R) @ weight) / max(1, len(seen)) ** 2
    found[((), None)] = (level, variance)
    for block in layout.blocks:
        if len(block.modes) == 2:
            found[(block.modes, None)] = _product(m, S, block, list(range(block.columns.start, block.columns.stop)))
        elif len(block.modes) > 2:
            for r in range(block.columns.start, block.columns.stop):
                found[(block.modes, r)] = _product(m, S, block, [r])
    return found


def _product(m: np.ndarray, S: np.ndarray, block: ColumnBlock, columns: list[int]) -> tuple[float, float]:
    """Mean and variance of the sum over columns of the product over the block's modes."""
    product, D = np.ones(len(columns)), np.zeros((len(columns), len(columns)))
    for k in block.modes:
        own, mine = S[k][np.ix_(columns, columns)], m[k, columns]
        D = D * (own + np.outer(mine, mine)) + np.outer(product, product) * own
        product = product * mine
    return float(product.sum()), float(D.sum())


def explain(model: FittedModel, cell: Any = None, **modes: Any) -> pd.DataFrame:
    """The latent value of one cell as the sum of its parts."""
    belief, names = model.fit.belief, names_of(model.fit.labels)
    if cell is not None and not isinstance(cell, dict):
        if isinstance(cell, (str, pd.DataFrame)) or len(cell) != len(names):
            got = f"a DataFrame of {len(cell)} lines" if isinstance(cell, pd.DataFrame) else repr(cell)
            fail_value(f"explain takes one cell, a row for each of the {len(names)} modes, or a dict; got {got}.")
        cell = dict(zip(range(len(names)), cell, strict=True))
    given = by_mode(model.fit.labels, {**(cell or {}), **modes})
    missing = [names[k] for k in range(len(names)) if k not in given]
    if missing:
        fail_value(f"explain needs a row of every mode; there is none of {', '.join(map(repr, missing))}.")
    first = offsets(model.fit.shape)
    rows = np.array([first[k] + rows_of(model.fit.labels, model.fit.shape, k, given[k])[0] for k in range(len(names))])
    parts = parts_of_entry(belief, model.fit.layout, rows, model.fit.aligned.reference)
    titles = [part.title(names) for part in parts]
    mean, variance = latent(belief, rows[None])
    means = [part.mean + (model.fit.observation.origin if not part.modes else 0.0) for part in parts]
    frame = pd.DataFrame({"part": [*titles, "sum"], "mean": [*means, float(mean[0]) + model.fit.observation.origin]})
    if model.has_uncertainty:
        frame["sd"] = [*(part.sd for part in parts), float(np.sqrt(variance[0]))]
    return frame
