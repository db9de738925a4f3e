"""One self-contained page about a fitted model: its summary and the figures that it allows."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorcep.core.checks import optional_module
from tensorcep.cp.inputs.coordinates import names_of
from tensorcep.cp.plan.auto import with_numbers
from tensorcep.cp.settings.registry import settings_for
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.plots.checks import plot_gaps, plot_residuals, plot_trace
from tensorcep.plots.components import (
    components_of,
    plot_components,
    plot_scores,
    plot_top_rows,
    plot_variance_explained,
)
from tensorcep.plots.fits import plot_convergence

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
# A caption, the size in inches, and what draws on a figure.
Shown = tuple[str, tuple[float, float], Drawing]
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
    >>> import pandas as pd
    >>> from tensorcep import CPRegressor, plots
    >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
    >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
    >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
    >>> page = plots.report(model)  # doctest: +SKIP
    """
    body = [model.summary().to_html()]
    figures = _figures if hasattr(model, "column_modes_") else _figures_of_matrices
    for caption, size, drawing in figures(model, tensor):
        body.append(f"<figure>{_image(drawing, size)}<figcaption>{html.escape(caption)}</figcaption></figure>")
    return PAGE.format(title=html.escape(f"{type(model).__name__}: report"), body="\n".join(body))


def _image(drawing: Drawing, size: tuple[float, float]) -> str:
    """A drawing as an image that the page holds."""
    figure = optional_module("matplotlib.figure", "a report", "'tensorcep[plots]'").Figure(size, layout="constrained")
    drawing(figure)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=110)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}">'


def _figures(model: Any, tensor: SparseTensor | None) -> list[Shown]:
    """Captions, sizes and drawings, those that the model and the data allow."""
    names, explained = names_of(model.labels_), model.variance_explained()
    several = [len(model.column_modes_[r]) > 1 for r in explained["component"]]
    found: list[Shown] = [(EXPLAINED, (11, 4), lambda f: _explained(f, explained))]
    if any(several):
        n = min(4, sum(several))
        size = (3.6 * len(names), 0.6 + 2.0 * n)
        found.append(("Weights with 90 % intervals.", size, lambda f: plot_components(model, n_components=n, figure=f)))
        found.append(("Rows of the largest weights.", (4.0 * len(names), 5), lambda f: _top_rows(f, model, names)))
    found.append(("How the fit went.", (11, 4), lambda f: _run(f, model)))
    if tensor is not None:
        found.append(("Where the data have entries.", (6, 4.5), lambda f: plot_gaps(tensor, ax=f.subplots())))
        if not hasattr(model, "predict_proba") and model.has_uncertainty():
            found.append(("Residuals by row.", (4.0 * len(names), 5), lambda f: _residuals(f, model, tensor, names)))
    return found


def _figures_of_matrices(model: Any, data: Any) -> list[Shown]:
    """The same of a factor model, and the scores of its rows."""
    explained, names, n = model.variance_explained(), model.matrix_names_, min(4, model.n_components_)
    width = len(components_of(model).panels)
    found: list[Shown] = [
        (EXPLAINED, (11, 4), lambda f: _explained(f, explained)),
        ("Weights with 90 % intervals.", (3.6 * width, 0.6 + 2.0 * n),
         lambda f: plot_components(model, n_components=n, figure=f)),
        ("Columns of the largest loadings.", (4.0 * len(names), 5), lambda f: _top_rows(f, model, names)),
    ]  # fmt: skip
    if hasattr(model, "scores_") and model.n_components_ > 1:
        found.append(("Scores of the rows.", (5.5, 4.5), lambda f: plot_scores(model.scores_, ax=f.subplots())))
    found.append(("How the fit went.", (11, 4), lambda f: _run_of_matrices(f, model)))
    if data is None:
        return found
    parts = data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else [data]
    given = list(parts)
    real = [m for m, part in enumerate(model.parts_) if part.kind != "labels"]
    found.append(("Where the data have entries.", (5.0 * len(given), 4.5), lambda f: _gaps(f, given)))
    if real:
        size = (8.0, 4.5 * len(real))
        found.append(("Residuals by row and by column.", size, lambda f: _residuals_of_matrices(f, model, given, real)))
    return found


def _gaps(figure: Any, given: list[Any]) -> None:
    for matrix, ax in zip(given, figure.subplots(1, len(given), squeeze=False)[0], strict=True):
        plot_gaps(matrix, ax=ax)


def _residuals_of_matrices(figure: Any, model: Any, given: list[Any], which: list[int]) -> None:
    for m, axes in zip(which, figure.subplots(len(which), 2, squeeze=False), strict=True):
        for mode, ax in enumerate(axes):
            plot_residuals(model, given[m], mode=mode, matrix=m, max_rows=25, ax=ax)


def _run_of_matrices(figure: Any, model: Any) -> None:
    """Convergence and the lower bound, or the draws of a sampler of the cell in the middle of the first matrix."""
    left, right = figure.subplots(1, 2)
    if model.n_chains_:
        cell = np.array([[n // 2 for n in model.parts_[0].shape]])
        plot_trace(model, cell, ax=left)
        plot_trace(model, cell, kind="ranks", ax=right)
        return
    plot_convergence(model.trace_, tol=model.tol, ax=left)
    bound = np.asarray(model.trace_["lower_bound"])
    right.plot(np.arange(1, len(bound) + 1), bound, linewidth=1.2)
    right.spines[["top", "right"]].set_visible(False)
    right.set(title="Lower bound of the log evidence", xlabel="sweep", ylabel="")


def _explained(figure: Any, explained: Any) -> None:
    left, right = figure.subplots(1, 2)
    plot_variance_explained(explained, ax=left)
    plot_variance_explained(explained, kind="scree", ax=right)


def _top_rows(figure: Any, model: Any, names: list[Any]) -> None:
    for k, ax in enumerate(figure.subplots(1, len(names), squeeze=False)[0]):
        plot_top_rows(model, k, ax=ax)


def _residuals(figure: Any, model: Any, tensor: SparseTensor, names: list[Any]) -> None:
    for k, ax in enumerate(figure.subplots(1, len(names))):
        plot_residuals(model, tensor, mode=k, max_rows=25, ax=ax)


def _run(figure: Any, model: Any) -> None:
    """Convergence, or the chains of a sampler at the cell in the middle of the tensor."""
    left, right = figure.subplots(1, 2)
    if model.n_chains_:
        seen = [int(rows[len(rows) // 2]) for rows in model.parts_[0].seen]
        cell = SparseTensor(np.array([seen]), np.zeros(1), model.shape_, model.labels_)
        plot_trace(model, cell, ax=left)
        plot_trace(model, cell, kind="ranks", ax=right)
        return
    plot_convergence(model.trace_, tol=model.tol, anneal=annealed_sweeps(model), ax=left)
    right.plot(np.arange(1, len(model.trace_["train_score"]) + 1), model.trace_["train_score"], linewidth=1.2)
    right.spines[["top", "right"]].set_visible(False)
    right.set(title="Fit of the training entries", xlabel="sweep", ylabel="mean log likelihood")


def annealed_sweeps(model: Any) -> int | None:
    """Sweeps at the start of a fit in which messages count more; None for methods without."""
    settings = settings_for(model.method, model.method_)
    if not hasattr(settings, "anneal"):
        return None
    numbers = with_numbers(settings, model.likelihood_, model.prior_ == "learned", model.max_iter_)
    return int(numbers.get_params()["anneal"])
