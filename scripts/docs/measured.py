"""The pages of measured figures, made from data/measured/*.json; and the way of a command's rows into such a file.

    python -m scripts.studies.measure_series --json rows.json
    python -m scripts.docs.measured series rows.json --title "Gaps in days" --spread "three seeds" \\
        --machine "two cores of ..." --command "python -m scripts.studies.measure_series"

A file has a title, what it is about, the machine, the spread, the command and the date, for all rows or for each of
them, what we lose (sentences), and its rows: cells under columns, or the flat rows that a command writes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "data" / "measured"
SHARED = ("date", "command", "machine", "spread")


def tables() -> dict[str, dict[str, Any]]:
    """All files of measured figures by name, in the order of the site."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: (item[1].get("order", 99), item[0])))


class Row(NamedTuple):
    """A row: its cells in the order of the columns, and its command, date, machine and spread."""

    cells: list[str]
    shared: dict[str, str]


def rows_of(table: dict[str, Any]) -> list[Row]:
    """Every row with its cells and with command, date, machine and spread of its own or of its table.

    Raises
    ------
    ValueError
        If one of them is missing.
    """
    found = []
    for row in table["rows"]:
        cells = row["cells"] if "cells" in row else [row.get(name, "") for name in table["columns"]]
        if len(cells) != len(table["columns"]):
            raise ValueError(f"a row of {table['title']!r} has {len(cells)} cells; give one for each column.")
        shared = {name: row.get(name) or table.get(name) for name in SHARED}
        missing = [name for name, value in shared.items() if not value]
        if missing:
            raise ValueError(f"a row of {table['title']!r} has no {missing[0]}; give it, or one for the whole table.")
        found.append(Row([str(cell) for cell in cells], shared))
    return found


def page(table: dict[str, Any]) -> str:
    """One page: what we lose, then the table, then where its rows come from."""
    rows = rows_of(table)
    text = f"# {table['title']}\n\n{table['about']}\n\n"
    if table["losses"]:
        text += "**What we lose.**\n\n" + "".join(f"* {sentence}\n" for sentence in table["losses"]) + "\n"
    same = {name: len({row.shared[name] for row in rows}) == 1 for name in SHARED}
    own = [name for name in SHARED if not same[name]]
    shown = [*table["columns"], *own]
    text += "| " + " | ".join(name or " " for name in shown) + " |\n|" + "---|" * len(shown) + "\n"
    for row in rows:
        cells = [*row.cells, *(_as_cell(name, row.shared[name]) for name in own)]
        text += "| " + " | ".join(cells) + " |\n"
    text += "\n" + "".join(f"* {name}: {_as_cell(name, rows[0].shared[name])}\n" for name in SHARED if same[name])
    return text


def _as_cell(name: str, value: str) -> str:
    return f"`{value}`" if name == "command" else value


def write_measured(folder: Path) -> None:
    """Write the pages below the folder of the site's sources."""
    target = folder / "measured"
    target.mkdir(exist_ok=True)
    found = tables()
    for name, table in found.items():
        (target / f"{name}.md").write_text(page(table), encoding="utf-8")
    text = (
        "# Measured\n\nEvery figure with its command, date, machine and spread. Each command runs in the root of the "
        "repository and prints its rows; `--json FILE` keeps them. The date is that of the row's last change; rows "
        "before it may be of earlier code, and say so.\n\n## What we lose\n\n"
    )
    for name, table in found.items():
        text += "".join(f"* {sentence} ([{table['title']}]({name}.md))\n" for sentence in table["losses"])
    text += "\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(found) + "\n```\n"
    (target / "index.md").write_text(text, encoding="utf-8")


def keep(name: str, rows: list[dict[str, Any]], **about: str) -> Path:
    """Write a command's flat rows as a file of measured figures, with today's date.

    Losses and text of an earlier file of this name are kept, to be read again by whoever reruns it.
    """
    path = FOLDER / f"{name}.json"
    earlier = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"order": 99, "about": "", "losses": []}
    )
    columns = list(dict.fromkeys(key for row in rows for key in row))
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    table = {**earlier, **about, "date": today, "columns": columns, "rows": rows}
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def main(argv: list[str] | None = None) -> None:
    """Keep rows that a command wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the file in data/measured")
    parser.add_argument("rows", type=Path, help="what a command wrote by --json")
    for option in ("title", "command", "machine", "spread"):
        parser.add_argument(f"--{option}", required=True)
    options = vars(parser.parse_args(argv))
    rows = json.loads(options.pop("rows").read_text(encoding="utf-8"))
    print(keep(options.pop("name"), rows, **options))


if __name__ == "__main__":
    main()
