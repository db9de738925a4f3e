"""Figures 1 and 2 of the CEP paper: KL to the NUTS posterior against time, and seconds of each method."""

from __future__ import annotations

from typing import Any

import numpy as np

# Sampled moments can collapse; what is worse than this leaves the panel.
HIGHEST_KL = 1e5


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def draw_curves(curves: dict[tuple[str, str], np.ndarray], path: str) -> None:
    """KL against seconds (above) and sweeps (below) for each simulation; curves hold (seconds, sweep, KL)."""
    plt = _pyplot()
    names = list(dict.fromkeys(name for name, _ in curves))
    methods = list(dict.fromkeys(method for _, method in curves))
    figure, axes = plt.subplots(2, len(names), figsize=(3.6 * len(names), 6.6), squeeze=False)
    for (name, method), curve in curves.items():
        for line, label in ((0, "seconds"), (1, "sweeps")):
            panel = axes[line, names.index(name)]
            panel.loglog(curve[:, line], curve[:, 2], label=method, color=f"C{methods.index(method)}", lw=1.5)
            panel.set_xlabel(label)
            panel.set_title(name if line == 0 else "")
    for panel in axes.flat:
        lowest = min(line.get_ydata().min() for line in panel.get_lines())
        panel.set_ylim(0.5 * lowest, min(panel.get_ylim()[1], HIGHEST_KL))
    for panel in axes[:, 0]:
        panel.set_ylabel("KL(NUTS || q)")
    handles = [plt.Line2D([], [], color=f"C{j}", label=method) for j, method in enumerate(methods)]
    figure.legend(handles=handles, loc="upper center", ncols=len(methods), fontsize=8)
    figure.tight_layout(rect=(0.0, 0.0, 1.0, 0.95))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_seconds(rows: list[dict[str, Any]], path: str) -> None:
    """Mean seconds of a fit on each data set, a panel for each link, from the folds' means at published settings."""
    plt = _pyplot()
    found = {(r["link"], r["data"], r["method"], r["setting"]): r["seconds"] for r in rows}
    links, names, methods = (list(dict.fromkeys(key[j] for key in found)) for j in range(3))
    figure, axes = plt.subplots(1, len(links), figsize=(5.0 * len(links), 3.6), squeeze=False)
    width = 0.8 / len(methods)
    for panel, link in zip(axes[0], links, strict=True):
        for j, method in enumerate(methods):
            both = [[found.get((link, name, method, s)) for s in ("published", "converged")] for name in names]
            seconds = [np.nan if pair == [None, None] else next(s for s in pair if s is not None) for pair in both]
            panel.bar(np.arange(len(names)) + (j - 0.5 * (len(methods) - 1)) * width, seconds, width, label=method)
        panel.set_yscale("log")
        panel.set_xticks(range(len(names)), names)
        panel.set_title(link)
        panel.set_ylabel("seconds of a fit")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="upper center", ncols=len(methods), fontsize=8)
    figure.tight_layout(rect=(0.0, 0.0, 1.0, 0.93))
    figure.savefig(path, dpi=120)
    plt.close(figure)
