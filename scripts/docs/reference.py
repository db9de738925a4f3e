"""The pages of the reference and of the shell, made from the package itself."""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scripts.docs import public
from scripts.docs.public import Public
from tensorcep.cli.main import EPILOG, build_parser
from tensorcep.cli.main import GROUPS as COMMAND_GROUPS

# The group of an option, what is typed for it, and what it does.
Row = tuple[str, str, str]
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
    return f"{text}\n{sign * len(text)}\n\n"


def first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def class_pages(item: Public) -> dict[str, str]:
    """The page of a class, and of each group of its methods where they are many."""
    text = heading(item.name) + f".. currentmodule:: {item.module}\n\n.. autoclass:: {item.name}\n"
    groups = public.grouped_methods(item.value)
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
    if len(items) <= public.ON_ONE_PAGE:
        return {page: text + "\n".join(shown)}
    each = {f"{page}-{item.name}": heading(item.name) + own for item, own in zip(items, shown, strict=True)}
    toc = ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in each)
    return {page: text + listing([(f"{page}-{item.name}", item) for item in items]) + toc} | each


def listing(items: list[tuple[str, Public]]) -> str:
    text = ".. list-table::\n   :widths: 35 65\n\n"
    for page, item in items:
        text += f"   * - :doc:`{item.name} <{page}>`\n     - {first_line(item.value)}\n"
    return text + "\n"


def reference_pages() -> dict[str, str]:
    """All pages of the reference, by their path below reference/ without an ending."""
    every = {item.name: item for item in public.of_package()}
    pages, index = {}, heading("Reference")
    index += "Every public object, its parameters in words, what it refuses, and an example that runs.\n\n"
    hidden = []
    for group, names in public.GROUPS.items():
        items = [(name, every.pop(name)) for name in names]
        for _, item in items:
            pages |= class_pages(item)
        index += heading(group, "-") + listing(items)
        hidden += [name for name, _ in items]
    functions = [item for item in every.values() if not inspect.isclass(item.value)]
    records = [item for item in every.values() if inspect.isclass(item.value)] + public.of_records()
    lists = [("functions", "Functions", "Names of `tensorcep` itself.", functions)]
    lists += [(name, f"tensorcep.{name}", ABOUT[name], public.of_module(name)) for name in public.MODULES]
    for name in public.SETTINGS:
        title = f"Settings of methods: {FAMILY[name]}"
        about = f"From ``tensorcep.{name}``: ``method=Record(...)`` where a name is not enough."
        lists.append((name.replace(".", "-"), title, about, public.of_settings(name)))
    lists.append(("records", "Records", "What methods return, and what is made by hand now and then.", records))
    for page, title, about, items in lists:
        own = listed_pages(page, title, about, items)
        pages |= own
        index += heading(title, "-")
        index += listing([(f"{page}-{item.name}" if len(own) > 1 else page, item) for item in items])
    hidden += [page for page, *_ in lists]
    pages["index"] = index + ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in hidden)
    return pages


OF_SEVERAL = 3  # commands from which on an option is shown once, on the page of all


def shell_pages() -> dict[str, str]:
    """The pages of the command line: a session, the commands, options of several of them; and a page of each."""
    (parsers,) = (item for item in build_parser()._actions if isinstance(item, argparse._SubParsersAction))
    rows = {name: list(_options_of(parser)) for name, parser in parsers.choices.items()}
    counts = Counter(row[1:] for listed in rows.values() for row in listed)
    shared = {row for row, count in counts.items() if count >= OF_SEVERAL and row[0].startswith("`-")}
    pages = {"shell": _shell_index(rows, shared)}
    for name, listed in rows.items():
        text = f"# {name}\n\n```text\n{parsers.choices[name].format_usage().removeprefix('usage: ')}```\n\n"
        for part in (parsers.choices[name].description or "").split("\n\n"):  # tables stay text
            text += f"```text\n{part}\n```\n\n" if part[:2] == "  " else f"{_with_code(part)}\n\n"
        text += _table([row for row in listed if row[1:] not in shared])
        others = " ".join(re.findall(r"--\w[\w-]*", flags)[0] for _, flags, about in listed if (flags, about) in shared)
        text += f"And [options of several commands](../shell.md#options-of-several-commands): `{others}`\n"
        pages[f"shell/{name}"] = text
    return pages


def _shell_index(rows: dict[str, list[Row]], shared: set[tuple[str, str]]) -> str:
    session = "\n".join(line.strip() for line in EPILOG.splitlines() if line.startswith("  tensorcep "))
    text = (
        f"# Shell\n\nA session, on data that needs no download:\n\n```bash\n{session}\n```\n\n"
        "Results go to stdout, everything else to stderr. The exit code is 0 when done, 1 after an error that you can "
        "mend, told in one sentence, 2 after wrong usage, 130 after Ctrl-C. No file is ever left half-written. "
        "`tensorcep COMMAND --help` says what these pages say.\n\n"
    )
    for title, group in COMMAND_GROUPS.items():
        text += f"## {title[0].upper()}{title[1:]}\n\n| command | |\n|---|---|\n"
        text += "".join(f"| [{command.name}](shell/{command.name}.md) | {command.help} |\n" for command in group) + "\n"
    text += "## Options of several commands\n\nThe page of a command names those that it has.\n\n"
    every: dict[tuple[str, str], Row] = {}
    for row in (row for listed in rows.values() for row in listed if row[1:] in shared):
        every.setdefault(row[1:], row)
    for title in dict.fromkeys(row[0] for row in every.values()):
        text += f"### {'Messages and results' if title == 'options' else title[0].upper() + title[1:]}\n\n"
        text += _table([row for row in every.values() if row[0] == title])
    return text + "```{toctree}\n:hidden:\n\n" + "".join(f"shell/{name}\n" for name in rows) + "```\n"


def _options_of(parser: argparse.ArgumentParser) -> Iterator[Row]:
    """The group of each option of a command, what is typed for it, and what it does."""
    for group in parser._action_groups:
        for action in group._group_actions:
            words = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
            typed = action.metavar or words or action.dest.upper()
            takes = "" if action.nargs == 0 or not action.option_strings else f" {typed}"
            flags = ", ".join(action.option_strings) or str(typed)
            yield str(group.title), f"`{flags}{takes}`", _with_code((action.help or "").replace("%%", "%"))


def _table(rows: list[Row]) -> str:
    lines = [f"| {flags} | {about} |\n" for _, flags, about in rows]
    return "| option | what it does |\n|---|---|\n" + "".join(lines) + "\n" if lines else ""


def _with_code(text: str) -> str:
    """Text of a --help with options and signs as code, in which a table has no marks of its own."""
    return re.sub(r"(?<![\w`-])(?:--[a-z][\w-]*|'(?:\S+')?(?!\w))", r"`\g<0>`", text).replace("|", r"\|")


def write_reference(folder: Path) -> None:
    """Write the generated pages below the folder of the site's sources."""
    target = folder / "reference"
    target.mkdir(exist_ok=True)
    for name, text in reference_pages().items():
        (target / f"{name}.rst").write_text(text, encoding="utf-8")
    (folder / "shell").mkdir(exist_ok=True)
    for name, text in shell_pages().items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
