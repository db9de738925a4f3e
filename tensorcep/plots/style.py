"""Axes to draw on, and what all figures have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.checks import optional_module, printable

# Two colours that stay apart in grey and for colour-blind readers, and a quiet one for what is only a guide.
MAIN, ACCENT, GUIDE = "#1f5a96", "#d1662a", "#8a8a8a"
# For groups: Okabe and Ito's colours, which colour-blind readers tell apart, and a mark and a line style with each.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKS, STYLES = "os^DvPX", ("-", "--", "-.", ":")
LONGEST = 32  # signs of a label at a tick: longer ones would leave no place for the figure
WIDE = 100  # the ratio of the largest to the least place from which on they lie on a log scale


def pyplot() -> Any:
    return optional_module("matplotlib.pyplot", "tensorcep.plots", "'tensorcep[plots]'")


def axes_of(ax: Any) -> Any:
    return pyplot().subplots(layout="constrained")[1] if ax is None else ax


def line_look(group: int) -> dict[str, Any]:
    """Colour and style of a group's line."""
    return {"color": COLOURS[group % len(COLOURS)], "linestyle": STYLES[group % len(STYLES)]}


def point_look(group: int) -> dict[str, Any]:
    """Colour and mark of a group's points; after all seven it is the next mark that has the first colour."""
    mark = MARKS[(group + group // len(COLOURS)) % len(MARKS)]
    return {"color": COLOURS[group % len(COLOURS)], "marker": mark}


def finish(ax: Any, title: str, x: str, y: str) -> Any:
    ax.set(title=shown(title), xlabel=shown(x), ylabel=shown(y))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def shown(label: Any) -> str:
    """A label or a name, for matplotlib to draw as it is: dollars set no formula, and signs that nobody sees show."""
    return printable(str(label)).replace("$", r"\$")


def text_of(label: Any) -> str:
    """A label as a tick shows it: numbers by four digits, long text by its begin and end."""
    if isinstance(label, (float, np.floating)):
        return f"{label:.4g}"
    text, half = str(label), LONGEST // 2
    return shown(text if len(text) <= LONGEST else f"{text[:half]}\N{HORIZONTAL ELLIPSIS}{text[1 - half :]}")


def log_if_wide(ax: Any, places: Any) -> None:
    """Positive numbers over two orders of magnitude and more, doses for instance, lie on a log scale."""
    if places.dtype.kind in "iuf" and places.min() > 0 and places.max() >= WIDE * places.min():
        ax.set_xscale("log")
