"""What fitted models say of themselves elsewhere: summaries, ArviZ's containers, scikit-learn's callbacks."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tensorcep import __version__
from tensorcep.core.checks import optional_module, printable

STYLE = "border-collapse:collapse;font-family:sans-serif;font-size:0.9em;margin:0.4em 0 1em 0"


@dataclass(frozen=True, repr=False, eq=False)
class Summary:
    """What a fitted model says of itself, as text and as HTML: facts by name, and tables by title."""

    title: str
    facts: dict[str, str]
    tables: dict[str, pd.DataFrame]

    def __str__(self) -> str:
        width = max(map(len, self.facts), default=0) + 2
        lines = [self.title, ""]
        lines += [f"{name:<{width}}{text}" for name, text in self.facts.items()]
        for title, table in self.tables.items():
            lines += ["", title, table.to_string(index=False, float_format="%.3g", justify="left")]
        return printable("\n".join(lines))

    __repr__ = __str__

    def to_html(self) -> str:
        """A heading, a table of facts and the tables, without a page around them."""
        cell = "<tr><th style='text-align:left;padding-right:1em'>"
        facts = "".join(f"{cell}{_escape(name)}</th><td>{_escape(text)}</td></tr>" for name, text in self.facts.items())
        parts = [f"<h2>{_escape(self.title)}</h2>", f"<table style='{STYLE}'>{facts}</table>"]
        for title, table in self.tables.items():
            drawn = table.to_html(index=False, float_format=lambda x: f"{x:.3g}", border=0, justify="left")
            parts.append(f"<h3>{_escape(title)}</h3>{printable(drawn)}")
        return "\n".join(parts)

    _repr_html_ = to_html


def _escape(text: str) -> str:
    """Text in a page, as a reader sees it: no tags, and no signs that turn or hide others."""
    return html.escape(printable(text))


# Posterior draws in the container of ArviZ: InferenceData of 0.x, or xarray's DataTree, which 1.x takes instead.

APPROXIMATE = "independent draws from an approximate posterior; not a Markov chain, so R-hat and ESS say nothing"
SAMPLED = "draws of Markov chains"

# Per group, per variable: names of the dimensions, and the array.
Groups = Mapping[str, Mapping[str, tuple[tuple[str, ...], np.ndarray]]]


def arviz_container(groups: Groups, coords: Mapping[str, Any], method: str, approximate: bool) -> Any:
    """Return groups, such as "posterior", in the container of the ArviZ that is installed, refused without one."""
    arviz = optional_module("arviz", "to_arviz", "'tensorcep[arviz]'")
    xarray = optional_module("xarray", "to_arviz", "'tensorcep[arviz]'")
    attributes: dict[str, Any] = {"inference_library": "tensorcep", "inference_library_version": __version__}
    # Every group says whether its draws come from an approximation, as 1 or 0: netCDF has no truth values.
    attributes |= {"method": method, "approximate": int(approximate), "draws": APPROXIMATE if approximate else SAMPLED}
    datasets = {}
    for group, variables in groups.items():
        sizes = {name: n for dims, array in variables.values() for name, n in zip(dims, array.shape, strict=True)}
        found = {name: coords.get(name, np.arange(n)) for name, n in sizes.items()}  # labels of dimensions
        datasets[group] = xarray.Dataset(dict(variables), coords=found, attrs=attributes)
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**datasets)
    return xarray.DataTree.from_dict(datasets)


# scikit-learn's callbacks (from its version 1.9 on): a fit is a task, and so is every sweep of it.

try:
    from sklearn import callback as _sklearn
except ImportError:  # an earlier scikit-learn
    _sklearn = None

CONTEXT = "_callback_fit_ctx"
F = TypeVar("F", bound=Callable[..., Any])


CallbackSupportMixin: Any = type("Nothing", (), {}) if _sklearn is None else _sklearn.CallbackSupportMixin


def with_callbacks(method: F) -> F:
    """Return a method that takes care of the callbacks at its end, however it ends."""
    managed: F = method if _sklearn is None else _sklearn.with_callbacks(method)
    return managed


def begin_fit(model: Any, X: Any, y: Any) -> None:
    """Tell scikit-learn's callbacks that a fit begins; how many sweeps it has is not known yet."""
    if _sklearn is not None:
        context = model._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=model, X=X, y=y)


def end_fit(model: Any, X: Any, y: Any) -> None:
    """Tell them that it ended."""
    context = vars(model).get(CONTEXT)
    if context is not None:
        context.call_on_fit_task_end(estimator=model, X=X, y=y, reconstruction_attributes={})  # it has them all


def sweep_callbacks(model: Any) -> tuple[Callable[[int, Any, Any], bool], ...]:
    """What tells them of every sweep, if a fit has begun; a callback that asks for it stops the fit."""
    context = vars(model).get(CONTEXT)
    if context is None:
        return ()

    def told(n: int, sweep: Any, state: Any) -> bool:
        task = context.subcontext(task_name="sweep")
        task.call_on_fit_task_begin(estimator=model)
        return bool(task.call_on_fit_task_end(estimator=model))

    return (told,)
