"""A latent value as the sum of its parts: level, main effects, pairs of modes, components.

Constants wander between main effects and pairs, so parts are centred over the rows that have entries: with the means
a and b of its two sides a pair (u, v) is (u - a)'(v - b), what it loses, u'b and a'v, joins the main effects, and the
means of these the level. Components of all modes stay as they are. In every component of a belief the parts add up to
the latent value, and so do their means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import fail_value
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.fitted.alignment import ColumnBlock, RowLayout, best_order
from tensorcep.cp.fitted.model import FittedModel
from tensorcep.cp.fitted.predict import latent, pairs_at
from tensorcep.cp.inputs.coordinates import by_mode, names_of, rows_of
from tensorcep.cp.posterior import Components
from tensorcep.priors.deviations import moments

# What a term of a latent value is called by: its modes (none for the level), and the number of a component.
Term = tuple[tuple[int, ...], "int | None"]


def terms_of_entry(
    belief: Components, layout: RowLayout, rows: np.ndarray, reference: np.ndarray
) -> tuple[list[Term], np.ndarray, np.ndarray]:
    """The terms of the latent value at packed rows (K,), and their means and standard deviations."""
    terms: list[Term] = []
    means, variances = [], []
    for c in range(belief.size):
        found = _terms(belief.mean[c], None if belief.cov is None else belief.cov[c], layout, rows)
        for block in layout.blocks:
            if len(block.modes) > 2 and belief.size > 1:
                # components of all modes are called as those which they resemble of the rows `reference` (n_rows, R)
                order = best_order(belief.mean[c], reference, layout, block)
                own = [(block.modes, r) for r in range(block.columns.start, block.columns.stop)]
                found |= dict(zip(own, [found[own[i]] for i in order], strict=True))
        terms = list(found)
        means.append([mean for mean, _ in found.values()])
        variances.append([variance for _, variance in found.values()])
    return terms, np.mean(means, axis=0), np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))


def _terms(
    mean: np.ndarray, cov: np.ndarray | None, layout: RowLayout, rows: np.ndarray
) -> dict[Term, tuple[float, float]]:
    """Mean and variance of every term in one component; Gaussian rows are independent."""
    K, R = len(rows), mean.shape[1]
    # means over the rows of each mode that have entries; 0 in columns of more than two modes
    centre = [mean[seen].mean(axis=0, dtype=np.float64) for seen in layout.seen]
    for block in layout.blocks:
        for k in range(K):
            if len(block.modes) > 2 or k not in block.modes:
                centre[k][block.columns] = 0.0
    m = mean[rows].astype(np.float64) - np.stack(centre)
    S = np.zeros((K, R, R)) if cov is None else unpack(cov[rows], R)
    effect, level = np.zeros((K, R)), 0.0
    found: dict[Term, tuple[float, float]] = {((), None): (0.0, 0.0)}
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
        columns = list(range(block.columns.start, block.columns.stop))
        if len(block.modes) == 2:
            found[(block.modes, None)] = _product(m, S, block, columns)
        elif len(block.modes) > 2:
            found |= {(block.modes, r): _product(m, S, block, [r]) for r in columns}
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
    fit, belief, names = model.fit, model.fit.belief, names_of(model.fit.labels)
    if cell is not None and not isinstance(cell, dict):
        if isinstance(cell, (str, pd.DataFrame)) or len(cell) != len(names):
            got = f"a DataFrame of {len(cell)} lines" if isinstance(cell, pd.DataFrame) else repr(cell)
            fail_value(f"explain takes one cell, a row for each of the {len(names)} modes, or a dict; got {got}.")
        cell = dict(zip(range(len(names)), cell, strict=True))
    given = by_mode(fit.labels, {**(cell or {}), **modes})
    missing = [repr(names[k]) for k in range(len(names)) if k not in given]
    if missing:
        fail_value(f"explain needs a row of every mode; there is none of {', '.join(missing)}.")
    first = offsets(fit.shape)
    rows = np.array([first[k] + rows_of(fit.labels, fit.shape, k, given[k])[0] for k in range(len(names))])
    terms, mean, sd = terms_of_entry(belief, fit.layout, rows, fit.aligned.reference)
    titles = [" x ".join(str(names[k]) for k in own) or "level" if r is None else f"component {r}" for own, r in terms]
    if belief.deviations is not None:  # of a row of the first of its modes along the second one
        each, spread = moments(belief.deviations, *pairs_at(belief, rows[None]))
        titles.append(" along ".join(str(names[k]) for k in belief.deviations.modes))
        mean, sd = np.append(mean, each.mean()), np.append(sd, np.sqrt(spread.mean() + each.var()))
    shift = np.zeros(len(mean))
    shift[0] = fit.observation.origin
    total, variance = latent(belief, rows[None])
    frame = pd.DataFrame({"part": [*titles, "sum"], "mean": [*(mean + shift), float(total[0]) + shift[0]]})
    return frame.assign(sd=[*sd, float(np.sqrt(variance[0]))]) if model.has_uncertainty else frame
