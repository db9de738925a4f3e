"""The pages of the reference and of the shell, made from the package itself."""

from __future__ import annotations

import argparse
import inspect
import os
from pathlib import Path

from scripts.docs.public import (
    GROUPS,
    MODULES,
    ON_ONE_PAGE,
    SETTINGS,
    Public,
    grouped_methods,
    of_module,
    of_package,
    of_records,
)
from scripts.docs.public import of_settings as settings_of
from tensorcep.cli.main import build_parser

FAMILY = {
    "methods": "of tensors",
    "linear.settings": "linear",
    "factor_models.settings": "of matrices",
    "gaussian_process.settings": "Gaussian processes",
}
ABOUT = {
    "metrics": "Scores of predictions, intervals and probabilities.",
    "datasets": "Published and simulated data sets.",
    "plots": "Figures of fits, predictions and components.",
    "river": "Models of streams for river.",
    "distributed": "Fits and predictions on the workers of a Dask cluster.",
}


def heading(text: str, sign: str = "=") -> str:
    """A heading of reStructuredText."""
    return f"{text}\n{sign * len(text)}\n\n"


def first_line(value: object) -> str:
    """The first sentence of a docstring."""
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def class_pages(item: Public) -> dict[str, str]:
    """The page of a class, and of each group of its methods where they are many."""
    text = heading(item.name) + f".. currentmodule:: {item.module}\n\n.. autoclass:: {item.name}\n"
    groups = grouped_methods(item.value)
    if "" in groups:
        names = ", ".join(groups[""])
        return {item.name: text + (f"   :members: {names}\n   :inherited-members:\n" if names else "")}
    pages = {}
    for group, names in groups.items():
        page = f"{item.name}-{group.split()[0].lower()}"
        pages[page] = heading(f"{item.name}: {group.lower()}") + f".. currentmodule:: {item.module}\n\n"
        pages[page] += "".join(f".. automethod:: {item.name}.{name}\n\n" for name in names)
        text += "\n" + heading(group, "-") + ".. list-table::\n   :widths: 30 70\n\n"
        for name in names:
            about = first_line(getattr(item.value, name))
            text += f"   * - :meth:`~{item.path}.{name}`\n     - {about}\n"
    toc = "\n.. toctree::\n   :hidden:\n\n" + "".join(f"   {page}\n" for page in pages)
    return {item.name: text + toc} | pages


def listed_pages(page: str, title: str, about: str, items: list[Public]) -> dict[str, str]:
    """A page of functions and small records; where they are many, a page each, and one that lists them."""
    text = heading(title) + f"{about}\n\n"
    shown = [f".. {'autoclass' if inspect.isclass(i.value) else 'autofunction'}:: {i.module}.{i.name}\n" for i in items]
    if len(items) <= ON_ONE_PAGE:
        return {page: text + "\n".join(shown)}
    each = {f"{page}-{item.name}": heading(item.name) + own for item, own in zip(items, shown, strict=True)}
    toc = ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in each)
    return {page: text + listing([(f"{page}-{item.name}", item) for item in items]) + toc} | each


def listing(items: list[tuple[str, Public]]) -> str:
    """A table of links and first sentences."""
    text = ".. list-table::\n   :widths: 35 65\n\n"
    for page, item in items:
        text += f"   * - :doc:`{item.name} <{page}>`\n     - {first_line(item.value)}\n"
    return text + "\n"


def reference_pages() -> dict[str, str]:
    """All pages of the reference, by their path below reference/ without an ending."""
    public = {item.name: item for item in of_package()}
    pages, index = {}, heading("Reference")
    index += "Every public object, its parameters in words, what it refuses, and an example that runs.\n\n"
    hidden = []
    for group, names in GROUPS.items():
        items = [(name, public.pop(name)) for name in names]
        for _, item in items:
            pages |= class_pages(item)
        index += heading(group, "-") + listing(items)
        hidden += [name for name, _ in items]
    functions = [item for item in public.values() if not inspect.isclass(item.value)]
    records = [item for item in public.values() if inspect.isclass(item.value)] + of_records()
    lists = [("functions", "Functions", "Names of `tensorcep` itself.", functions)]
    lists += [(name, f"tensorcep.{name}", ABOUT[name], of_module(name)) for name in MODULES]
    for name in SETTINGS:
        title = f"Settings of methods: {FAMILY[name]}"
        about = f"From ``tensorcep.{name}``: ``method=Record(...)`` where a name is not enough."
        lists.append((name.replace(".", "-"), title, about, settings_of(name)))
    lists.append(("records", "Records", "What methods return, and what is made by hand now and then.", records))
    for page, title, about, items in lists:
        own = listed_pages(page, title, about, items)
        pages |= own
        index += heading(title, "-")
        index += listing([(f"{page}-{item.name}" if len(own) > 1 else page, item) for item in items])
    hidden += [page for page, *_ in lists]
    pages["index"] = index + ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in hidden)
    return pages


def shell_page() -> str:
    """The page of the command line: every command's own --help."""
    os.environ["COLUMNS"] = "96"  # the width that argparse writes for
    parser = build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    text = (
        "# Shell\n\nResults go to stdout, everything else to stderr. The exit code is 0 when done, 1 after an error "
        "that you can mend, told in one sentence, 2 after wrong usage, 130 after Ctrl-C. No file is ever left "
        "half-written. This page is made of each command's own `--help`.\n\n"
    )
    text += f"```text\n{parser.format_help()}```\n\n"
    for name, command in commands.choices.items():
        text += f"## {name}\n\n```text\n{command.format_help()}```\n\n"
    return text


def write_reference(folder: Path) -> None:
    """Write the generated pages below the folder of the site's sources."""
    target = folder / "reference"
    target.mkdir(exist_ok=True)
    for name, text in reference_pages().items():
        (target / f"{name}.rst").write_text(text, encoding="utf-8")
    (folder / "shell.md").write_text(shell_page(), encoding="utf-8")
