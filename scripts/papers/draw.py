"""Draw rows that a script wrote by --json: lines or points of each line's rows, a panel for each data set.

python -m scripts.papers.draw rows.json --metric rmse,auc --line method --panel data,rank -o curves.png
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from scripts.benchmarks.common import Row, grouped, words
from tensorcep.core.persist.archive import atomic_write


def groups(rows: list[Row], names: list[str]) -> dict[str, list[Row]]:
    """Rows by the values of some columns, as they are shown."""
    found = grouped(rows, names)
    return {" ".join(str(word) for word in key if word is not None): some for key, some in found.items()}


def draw(rows: list[Row], options: Any) -> None:
    """A panel for each value of --panel; numbers on logarithmic axes, words as they come."""
    from matplotlib.figure import Figure

    kept = [item for item in rows if item["metric"] in options.metric and {options.x, options.y} <= item.keys()]
    means = [item for item in kept if item.get("fold") == "mean"]
    panels = groups(means or kept, options.panel)
    figure = Figure(figsize=(3.6 * len(panels), 3.4), layout="constrained", dpi=110)
    for ax, (title, some) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for label, line in groups(some, options.line).items():
            ax.plot([item[options.x] for item in line], [item[options.y] for item in line], ".-", label=label)
        ax.set(title=title, xlabel=options.x, ylabel=", ".join(options.metric) if options.y == "value" else options.y)
        if not isinstance(some[0][options.x], str):
            ax.set_xscale("log")
        if options.log:
            ax.set_yscale("log")
        ax.legend(fontsize=8, frameon=False)
    with atomic_write(options.out) as handle:
        figure.savefig(handle, format=os.path.splitext(options.out)[1][1:] or "png")


def main(arguments: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows", type=Path, help="what --json wrote")
    p.add_argument("--metric", type=words(), required=True, help="between commas")
    for name, default in (("line", "method"), ("panel", "data")):
        p.add_argument(f"--{name}", type=words(), default=default, help="columns between commas (default: %(default)s)")
    p.add_argument("--x", default="sweep", help="column (default: %(default)s)")
    p.add_argument("--y", default="value", help="column (default: %(default)s)")
    p.add_argument("--log", action="store_true", help="a logarithmic y axis")
    p.add_argument("-o", "--out", required=True, help="where the figure goes")
    options = p.parse_args(arguments)
    draw(json.loads(options.rows.read_text(encoding="utf-8")), options)


if __name__ == "__main__":
    main()
