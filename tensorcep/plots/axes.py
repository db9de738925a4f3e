"""Axes to draw on, and what all figures have in common."""

from __future__ import annotations

from typing import Any

from tensorcep.entries.interop import optional_module

# Two colours that stay apart in grey and for colour-blind readers, and a quiet one for what is only a guide.
MAIN, ACCENT, GUIDE = "#1f5a96", "#d1662a", "#8a8a8a"


def axes_of(ax: Any) -> Any:
    if ax is not None:
        return ax
    pyplot = optional_module("matplotlib.pyplot", "tensorcep.plots", "'tensorcep[plots]'")
    return pyplot.subplots(layout="constrained")[1]


def new_figure(size: tuple[float, float]) -> Any:
    """A new figure of this size in inches."""
    pyplot = optional_module("matplotlib.pyplot", "tensorcep.plots", "'tensorcep[plots]'")
    return pyplot.figure(figsize=size, layout="constrained")


def finish(ax: Any, title: str, x: str, y: str) -> Any:
    ax.set(title=title, xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
