"""One self-contained page about a fitted model: its summary and the figures that it allows."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorcep.core.checks import optional_module
from tensorcep.cp.inputs.coordinates import names_of
from tensorcep.cp.plan.auto import with_numbers
from tensorcep.cp.settings import settings_for
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.plots import components
from tensorcep.plots.checks import plot_gaps, plot_residuals, plot_trace
from tensorcep.plots.fits import plot_convergence
from tensorcep.plots.style import finish

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font-family: sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222; line-height: 1.4 }}
table {{ border-collapse: collapse; margin: 0.4em 0 1.2em 0; font-size: 0.9em }}
th, td {{ text-align: left; padding: 0.15em 1em 0.15em 0; border-bottom: 1px solid #ddd; vertical-align: top }}
figure {{ margin: 1.2em 0 }} img {{ max-width: 100% }} figcaption {{ color: #555; font-size: 0.9em }}
</style></head><body>
{body}
</body></html>
"""
Drawing = Callable[[Any], Any]
Shown = tuple[str, tuple[float, float], Drawing]  # a caption, the size in inches, and what draws on a figure
EXPLAINED = "What each component explains, and all of them together."


def report(model: Any, tensor: Any = None) -> str:
    """Return one HTML page, without links to anything outside, about a fitted model.

    Parameters
    ----------
    model : fitted CP estimator or factor model
    tensor : SparseTensor, or the matrix or matrices of a factor model, optional
        Entries with their values, of the fit or held out: the page then shows their gaps and the residuals.

    Examples
    --------
    >>> from tensorcep import CPRegressor, plots, simulate_cp
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(simulate_cp((8, 6, 4), 1, 120, random_state=0).tensor)
    >>> page = plots.report(model)  # doctest: +SKIP
    """
    body, figures = [model.summary().to_html()], optional_module("matplotlib.figure", "a report", "'tensorcep[plots]'")
    for caption, size, drawing in _figures(model, tensor):
        figure, held = figures.Figure(size, layout="constrained"), io.BytesIO()
        drawing(figure)
        figure.savefig(held, format="png", dpi=110)
        image = f'<img alt="" src="data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}">'
        body.append(f"<figure>{image}<figcaption>{html.escape(caption)}</figcaption></figure>")
    return PAGE.format(title=html.escape(f"{type(model).__name__}: report"), body="\n".join(body))


def _figures(model: Any, data: Any) -> list[Shown]:
    """Captions, sizes and drawings, those that the model and the data allow."""
    explained, of_matrices = model.variance_explained(), not hasattr(model, "column_modes_")
    if of_matrices:
        names, n, rows = model.matrix_names_, min(4, model.n_components_), "Columns of the largest loadings."
        width = len(components.components_of(model).panels)
    else:
        names, rows = names_of(model.labels_), "Rows of the largest weights."
        n = min(4, sum(len(model.column_modes_[r]) > 1 for r in explained["component"]))
        width = len(names)

    def gain(kind: str, ax: Any) -> None:
        components.plot_variance_explained(explained, kind=kind, ax=ax)

    found: list[Shown] = [(EXPLAINED, (11, 4), lambda f: _side_by_side(f, ("bars", "scree"), gain))]
    if n:
        weights = partial(components.plot_components, model, n_components=n)
        found.append(("Weights with 90 % intervals.", (3.6 * width, 0.6 + 2.0 * n), lambda f: weights(figure=f)))
        top = partial(components.plot_top_rows, model)
        found.append((rows, (4.0 * len(names), 5), lambda f: _side_by_side(f, range(len(names)), top)))
    if of_matrices and hasattr(model, "scores_") and model.n_components_ > 1:
        found.append(
            ("Scores of the rows.", (5.5, 4.5), lambda f: components.plot_scores(model.scores_, ax=f.subplots()))
        )
    found.append(("How the fit went.", (11, 4), lambda f: _run(f, model, of_matrices)))
    if data is None:
        return found
    gaps = "Where the data have entries."
    if not of_matrices:
        found.append((gaps, (6, 4.5), lambda f: plot_gaps(data, ax=f.subplots())))
        if not hasattr(model, "predict_proba") and model.has_uncertainty():
            modes = [(data, k, 0) for k in range(len(names))]
            found.append(("Residuals by row.", (4.0 * len(names), 5), lambda f: _residuals(f, model, [modes])))
        return found
    parts = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else [data]
    real = [m for m, part in enumerate(model.parts_) if part.kind != "labels"]
    found.append((gaps, (5.0 * len(parts), 4.5), lambda f: _side_by_side(f, parts, plot_gaps)))
    if real:
        size, modes_of = (8.0, 4.5 * len(real)), [[(parts[m], mode, m) for mode in (0, 1)] for m in real]
        found.append(("Residuals by row and by column.", size, lambda f: _residuals(f, model, modes_of)))
    return found


def _side_by_side(figure: Any, items: Sequence[Any], draw: Callable[..., Any]) -> None:
    """Draw each of the items on axes of its own, side by side."""
    for item, ax in zip(items, figure.subplots(1, len(items), squeeze=False)[0], strict=True):
        draw(item, ax=ax)


def _residuals(figure: Any, model: Any, panels: Sequence[Sequence[tuple[Any, int, int]]]) -> None:
    """Residuals of these entries by the rows of this mode of this matrix, in each panel of a grid."""
    for row, axes in zip(panels, figure.subplots(len(panels), len(panels[0]), squeeze=False), strict=True):
        for (entries, mode, m), ax in zip(row, axes, strict=True):
            plot_residuals(model, entries, mode=mode, matrix=m, max_rows=25, ax=ax)


def _run(figure: Any, model: Any, of_matrices: bool) -> None:
    """Convergence and what it led to, or the chains of a sampler at the cell in the middle of the tensor or matrix."""
    (left, right), part = figure.subplots(1, 2), model.parts_[0]
    if model.n_chains_:
        cell: Any = np.array([[n // 2 for n in part.shape]])
        if not of_matrices:
            seen = np.array([[int(rows[len(rows) // 2]) for rows in part.seen]])
            cell = SparseTensor(seen, np.zeros(1), model.shape_, model.labels_)
        plot_trace(model, cell, ax=left)
        plot_trace(model, cell, kind="ranks", ax=right)
        return
    settings, anneal = None if of_matrices else settings_for(model.method, model.method_), None
    if settings is not None and hasattr(settings, "anneal"):  # sweeps at the start in which messages count more
        numbers = with_numbers(settings, model.likelihood_, model.prior_ == "learned", model.max_iter_)
        anneal = int(numbers.get_params()["anneal"])
    plot_convergence(model.trace_, tol=model.tol, anneal=anneal, ax=left)
    if of_matrices:
        values, title, unit = model.trace_["lower_bound"], "Lower bound of the log evidence", ""
    else:
        values, title, unit = model.trace_["train_score"], "Fit of the training entries", "mean log likelihood"
    right.plot(np.arange(1, len(values) + 1), np.asarray(values), linewidth=1.2)
    finish(right, title, "sweep", unit)
