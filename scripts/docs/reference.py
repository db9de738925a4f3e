"""The pages of the reference and of the shell, made from the package itself."""

from __future__ import annotations

import argparse
import inspect
import os
from pathlib import Path

from scripts.docs.public import GROUPS, MODULES, SETTINGS, Public, methods_of, of_module, of_package, of_records
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


def class_page(item: Public) -> str:
    """The page of one class: its text, then its methods."""
    text = heading(item.name) + f".. currentmodule:: {item.module}\n\n"
    names = methods_of(item.value)
    text += f".. autoclass:: {item.name}\n"
    if names:
        text += f"   :members: {', '.join(names)}\n   :inherited-members:\n"
    return text


def functions_page(title: str, about: str, items: list[Public]) -> str:
    """A page of functions and small records."""
    text = heading(title) + f"{about}\n\n"
    for item in items:
        kind = "autoclass" if inspect.isclass(item.value) else "autofunction"
        text += f".. {kind}:: {item.module}.{item.name}\n\n"
    return text


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
        pages |= {name: class_page(item) for name, item in items}
        index += heading(group, "-") + listing(items)
        hidden += [name for name, _ in items]
    functions = [item for item in public.values() if not inspect.isclass(item.value)]
    records = [item for item in public.values() if inspect.isclass(item.value)] + of_records()
    pages["functions"] = functions_page("Functions", "Names of `tensorcep` itself.", functions)
    pages["records"] = functions_page("Records", "What methods return, and what is made by hand now and then.", records)
    index += heading("Functions", "-") + listing([("functions", item) for item in functions])
    for name in MODULES:
        pages[name] = functions_page(f"tensorcep.{name}", ABOUT[name], of_module(name))
        index += heading(f"tensorcep.{name}", "-") + listing([(name, item) for item in of_module(name)])
    for name in SETTINGS:
        title = f"Settings of methods: {FAMILY[name]}"
        about = f"From ``tensorcep.{name}``: ``method=Record(...)`` where a name is not enough."
        pages[name.replace(".", "-")] = functions_page(title, about, settings_of(name))
        index += heading(title, "-") + listing([(name.replace(".", "-"), item) for item in settings_of(name)])
    index += heading("Records", "-") + listing([("records", item) for item in records])
    hidden += ["functions", *MODULES, *(name.replace(".", "-") for name in SETTINGS), "records"]
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
