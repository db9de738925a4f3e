"""One self-contained page about a fitted model: its summary and the figures that it allows."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorcep.cp.estimators.modes import names_of
from tensorcep.cp.estimators.options import with_numbers
from tensorcep.cp.settings.names import SETTINGS, checked_method
from tensorcep.entries.interop import optional_module
from tensorcep.entries.tensor import SparseTensor
from tensorcep.plots.checks import plot_gaps, plot_residuals, plot_trace
from tensorcep.plots.components import plot_components, plot_top_rows, plot_variance_explained
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


def report(model: Any, tensor: SparseTensor | None = None) -> str:
    """Return one HTML page, without links to anything outside, about a fitted CP estimator.

    Parameters
    ----------
    model : fitted CP estimator
    tensor : SparseTensor, optional
        Entries with their values, of the fit or held out: the page then shows their gaps and the residuals.
    """
    body = [model.summary().to_html()]
    for caption, size, drawing in _figures(model, tensor):
        body.append(f"<figure>{_image(drawing, size)}<figcaption>{html.escape(caption)}</figcaption></figure>")
    return PAGE.format(title=html.escape(f"{type(model).__name__}: report"), body="\n".join(body))


def _image(drawing: Drawing, size: tuple[float, float]) -> str:
    """A drawing as an image that the page holds."""
    figure = optional_module("matplotlib.figure", "a report", "'tensorcep[plots]'").Figure(size, layout="constrained")
    drawing(figure)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=110)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}">'


def _figures(model: Any, tensor: SparseTensor | None) -> list[tuple[str, tuple[float, float], Drawing]]:
    """Captions, sizes and drawings, those that the model and the data allow."""
    names, explained = names_of(model.labels_), model.variance_explained()
    several = [len(model.column_modes_[r]) > 1 for r in explained["component"]]
    found: list[tuple[str, tuple[float, float], Drawing]] = [
        ("What each component explains, and all of them together.", (11, 4), lambda f: _explained(f, explained)),
    ]
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


def _explained(figure: Any, explained: Any) -> None:
    left, right = figure.subplots(1, 2)
    plot_variance_explained(explained, ax=left)
    plot_variance_explained(explained, kind="scree", ax=right)


def _top_rows(figure: Any, model: Any, names: list[Any]) -> None:
    for k, ax in enumerate(figure.subplots(1, len(names))):
        plot_top_rows(model, k, ax=ax)


def _residuals(figure: Any, model: Any, tensor: SparseTensor, names: list[Any]) -> None:
    for k, ax in enumerate(figure.subplots(1, len(names))):
        plot_residuals(model, tensor, mode=k, max_rows=25, ax=ax)


def _run(figure: Any, model: Any) -> None:
    """Convergence, or the chains of a sampler at the cell in the middle of the tensor."""
    left, right = figure.subplots(1, 2)
    if model._fitted_belief().n_chains:
        layout = model._layout()
        seen = [int(rows[len(rows) // 2] - own.start) for rows, own in zip(layout.seen, layout.rows, strict=True)]
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
    name, given = checked_method(model.method)
    settings = given if given is not None and name == model.method_ else SETTINGS[model.method_]()
    if not hasattr(settings, "anneal"):
        return None
    numbers = with_numbers(settings, model._likelihood().name, model.prior_ == "learned", model.max_iter_)
    return int(numbers.get_params()["anneal"])
