"""Draws the figures of the pages, each once: a figure is kept until the code that draws it changes."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "figures"
# Okabe and Ito's colours, which colour-blind readers tell apart; styles of lines differ as well.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"


def names() -> list[str]:
    """All figures: ``figures/MODULE.py`` draws those that its FIGURES names."""
    return sorted(name for path in sorted(FOLDER.glob("*.py")) for name in _figures(path.stem))


def draw(name: str, cache: Path) -> Path:
    """The file of a figure, drawn if it is not there yet.

    Raises
    ------
    KeyError
        If no module draws a figure of this name.
    """
    for path in sorted(FOLDER.glob("*.py")):
        found = _figures(path.stem)
        if name in found:
            key = hashlib.sha256(path.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
            file = cache / f"{name}-{key}.svg"
            if not file.exists():
                cache.mkdir(parents=True, exist_ok=True)
                save(found[name](), file)
            return file
    raise KeyError(f"no module of {FOLDER} draws {name!r}")


def _figures(module: str) -> dict[str, Any]:
    return importlib.import_module(f"scripts.docs.figures.{module}").FIGURES


def save(figure: Any, file: Path) -> None:
    """Write a figure as svg, the same bytes every time."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "tensorcep", "svg.fonttype": "path"}):
        figure.savefig(file, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def panels(n: int = 1, width: float = 7.0, height: float = 3.2, **options: Any) -> Any:
    """A figure of n panels side by side, and its axes."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, n, figsize=(width, height), layout="constrained", **options)
    for ax in axes if n > 1 else [axes]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes
