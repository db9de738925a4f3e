"""The figure of the default: what a fit decides by rule, by entries left out, and how it is then run."""

from __future__ import annotations

from typing import Any

from scripts.docs.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, panels


def default_fit() -> Any:
    """From entries to the policy that runs a fit."""
    from matplotlib.patches import FancyBboxPatch

    figure, ax = panels(width=9.0, height=5.6)
    ax.set(xlim=(0, 100), ylim=(0, 62))
    ax.axis("off")

    def box(x: float, y: float, width: float, text: str, colour: str, height: float = 10.0) -> None:
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9, linespacing=1.4)
        corners = {"boxstyle": "round,pad=0,rounding_size=1.2", "facecolor": "none", "edgecolor": colour}
        ax.add_patch(FancyBboxPatch((x, y), width, height, linewidth=1.6, **corners))

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0})
        if text:
            ax.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 1.0, text, fontsize=8, color=GREY, ha="center")

    box(0, 50, 26, "entries, and what\nthe user said", GREY)
    box(36, 50, 28, "by rule: method, rank, prior,\ncolumns, sweeps", BLUE)
    box(72, 50, 28, "quick fits without some entries:\ncolumns, noise, power", ORANGE)
    arrow((26, 55), (36, 55))
    arrow((64, 55), (72, 55), "open")
    columns = [(0, PURPLE), (27, GREEN), (54, BLUE), (81, GREY)]
    policies = [
        ("gibbs, pg-gibbs", "three quick fits;\nchains start at the best;\nburn-in in fewer columns?"),
        ("vmp, pg-vb, cep, laplace", "one quick fit;\nthe method goes on from it,\ntried without a tenth first"),
        ("prior or init of the user", "spectra and random starts;\nthe best goes on"),
        ("wopt", "spectra; weight of\nthe prior by\nentries left out"),
    ]
    for (x, colour), (name, what) in zip(columns, policies, strict=True):
        width = 19 if x == 81 else 25
        arrow((86 if x == 81 else min(86, 78 + x / 8), 50), (x + width / 2, 39))
        box(x, 20, width, f"{name}\n\n{what}", colour, height=19)
        arrow((x + width / 2, 20), (min(max(x + width / 2, 24), 76), 11))
    box(20, 1, 60, "posterior, and a record of what decided: rank_, interactions_, noise_, power_,\n"
        "diagnostics_ (weights of chains and quick fits, scores of entries left out)", GREY)  # fmt: skip
    return figure


FIGURES = {"default_fit": default_fit}
