"""The gallery: every figure with the ten lines that draw it.

A figure is kept until its lines, or the functions that draw, change.

Each file of plots/ is one: the first line of its docstring is the title, the rest says what is to be seen (the text for
those who cannot see it), then come at most ten lines.
"""

from __future__ import annotations

import ast
import hashlib
import runpy
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from scripts.docs.drawing import save

FOLDER = Path(__file__).resolve().parent / "plots"
PLOTS = Path(__file__).resolve().parents[2] / "tensorcep" / "plots"


class Item(NamedTuple):
    """One figure of the gallery."""

    name: str
    title: str
    seen: str
    code: str
    path: Path


def items() -> list[Item]:
    """All figures, in the order of the names of their files."""
    found = []
    for path in sorted(FOLDER.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        title, _, seen = str(ast.get_docstring(tree)).partition("\n\n")
        lines = source.splitlines()[tree.body[0].end_lineno :]
        found.append(Item(path.stem, title.rstrip("."), seen.replace("\n", " "), "\n".join(lines).strip(), path))
    return found


def figure_of(item: Item) -> Any:
    """Run the lines and return the figure that they leave."""
    from matplotlib import pyplot as plt

    plt.close("all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits say that they are short
        runpy.run_path(str(item.path))
    return plt.gcf()


def write_gallery(folder: Path, cache: Path) -> None:
    """Write the page and its figures below the folder of the site's sources."""
    target = folder / "figures" / "gallery"
    target.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    drawing = b"".join(path.read_bytes() for path in sorted(PLOTS.glob("*.py")))
    text = "# Gallery\n\nEvery figure with the lines that draw it. Each function takes `ax=` and returns its axes.\n"
    for item in items():
        key = hashlib.sha256(item.path.read_bytes() + drawing).hexdigest()[:12]
        kept = cache / f"gallery-{item.name}-{key}.svg"
        if not kept.exists():
            save(figure_of(item), kept)
        shutil.copy(kept, target / f"{item.name}.svg")
        text += f"\n## {item.title}\n\n![{item.seen}](figures/gallery/{item.name}.svg)\n\n```python\n{item.code}\n```\n"
    (folder / "gallery.md").write_text(text, encoding="utf-8")
