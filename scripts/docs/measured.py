"""The pages of measured figures, made of data/measured/*.csv; and the way of a command's rows into such a file.

    python -m scripts.benchmarks.quality.calibration --json rows.json
    python -m scripts.docs.measured calibration coverage rows.json --metric "mean coverage" \\
        --command "python -m scripts.benchmarks.quality.calibration" --machine "two cores of ..."

A file holds one figure a row (FIELDS). A page of notebooks/site/measured says `{measured} TABLE` where a table is to
stand, and `{findings}` where the questions are that were answered once. A row whose commit lacks a change of the code
that its table measures (CODE) is marked; without git nothing is.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import functools
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data" / "measured"
FIELDS = ("table", "row", "column", "value", "sd", "n", "unit", "command", "commit", "date", "machine", "note")
Figure = dict[str, str]

FITS = ("tensorcep/cp", "tensorcep/core", "tensorcep/kernels", "tensorcep/likelihoods", "tensorcep/priors")
LINEAR = ("tensorcep/linear", "tensorcep/ep", "tensorcep/likelihoods")
# What code each table measures.
CODE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sets", "coverage", "log score", "demo", "cep-tensor", "dblp-stream", "sweeps"), FITS),
    **dict.fromkeys(("gauntlet", "gauntlet-more", "seconds", "benches"), ("tensorcep",)),
    **dict.fromkeys(("glm", "bayes-point", "clutter"), LINEAR),
}


def figures(table: str | None = None) -> list[Figure]:
    """The rows of all files, or of a table; a ValueError where one, but for findings, lacks what it should say."""
    found = []
    for path in sorted(FOLDER.glob("*.csv")):
        rows = _read(path)
        found += rows if rows and tuple(rows[0]) == FIELDS else []  # the gauntlet's oracle has columns of its own
    for row in found:
        needed = () if row["table"] == "findings" else ("value", "command", "commit", "date", "machine")
        missing = [name for name in needed if not row[name]]
        if missing:
            raise ValueError(f"the figure {row['row']!r}, {row['column']!r} of {row['table']!r} has no {missing[0]}.")
    return [row for row in found if table in (None, row["table"])]


@functools.cache
def changed_since(commit: str, table: str) -> str:
    """The newest commit after another one that touches what a table measures; "" if there is none, or no git."""
    command = ["git", "log", "-1", "--format=%h", f"{commit}..HEAD", "--", *CODE[table]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _lines(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    every = [names, ["---"] * len(names), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in every) + "\n"


def table_page(table: str) -> str:
    """A table, a line for each row, and where its figures come from."""
    rows = figures(table)
    labels, columns = (list(dict.fromkeys(row[name] for row in rows)) for name in ("row", "column"))
    cells = {(row["row"], row["column"]): row["value"] + (f" ± {row['sd']}" if row["sd"] else "") for row in rows}
    units = {label: {row["unit"] for row in rows if row["row"] == label} for label in labels}
    differ = len(set().union(*units.values())) > 1 and all(len(some) == 1 for some in units.values())
    old = {row["row"]: changed_since(row["commit"], table) for row in rows}
    lines = []
    for label in labels:
        unit = f", {min(units[label])}" if differ and any(units[label]) else ""
        shown = f"{label}{unit}{' †' if old[label] else ''}"
        lines.append([shown, *(cells.get((label, name), "") for name in columns)])
    text = _lines([" ", *columns], lines)
    newest = max(filter(None, old.values()), default="", key=list(old.values()).count)
    if newest:
        text += f"\n† Measured before {newest}, the newest change of `{'`, `'.join(CODE[table])}`.\n"
    return text + "\n" + "".join(f"* {line}\n" for line in sources(rows))


def sources(rows: Sequence[Figure]) -> list[str]:
    """Where figures come from: command, commit, date, machine, and the rows that have them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("command", "commit", "date", "machine"))
        groups.setdefault(key, []).append(row["row"])
    found = []
    for (command, commit, date, machine), labels in groups.items():
        about = "" if len(groups) == 1 else f": {'; '.join(dict.fromkeys(labels))}"
        found.append(f"`{command}`, {commit} of {date}, {machine}{about}")
    return found


def findings_page() -> str:
    """Every question that was answered once: what was found, its figures, and where the script is."""
    rows, text = figures("findings"), ""
    for question in dict.fromkeys(row["row"] for row in rows):
        some = [row for row in rows if row["row"] == question]
        text += f"### {question}\n\n{some[0]['note']}\n\n"
        for row in filter(lambda row: row["value"], some):
            spread, unit = f" ± {row['sd']}" if row["sd"] else "", f" {row['unit']}" if row["unit"] else ""
            text += f"* {row['column']}: {row['value']}{spread}{unit}\n"
        command = f"`{some[0]['command']}` at " if some[0]["command"] else ""
        when, machine = f"{some[0]['commit']} of {some[0]['date']}", some[0]["machine"] or "not recorded"
        text += f"* {command}{when}; machine: {machine}\n\n"
    return text


def write_measured(folder: Path) -> None:
    """Put tables and findings where the staged pages ask for them."""
    for path in (folder / "measured").glob("*.md"):
        text = path.read_text(encoding="utf-8").replace("{findings}\n", findings_page())
        text = re.sub(r"^\{measured\} (.+)$", lambda match: table_page(match[1]), text, flags=re.MULTILINE)
        path.write_text(text, encoding="utf-8")


def keep(file: str, table: str, rows: Sequence[Figure], **about: str) -> Path:
    """Put figures into a file in place of those of the same table, row and column, with today's date and commit."""
    path, now = FOLDER / f"{file}.csv", dt.datetime.now(dt.timezone.utc).date().isoformat()
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT)
    every = {(row["table"], row["row"], row["column"]): row for row in _read(path)}
    for row in rows:
        new = {**dict.fromkeys(FIELDS, ""), **row, **about, "table": table, "date": now, "commit": done.stdout.strip()}
        every[table, row["row"], row["column"]] = new
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every.values())
    return path


def _read(path: Path) -> list[Figure]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="of data/measured, without .csv")
    parser.add_argument("table")
    parser.add_argument("rows", type=Path, help="what a command wrote by --json")
    parser.add_argument("--row", default="method", help="the field that names a row (default: %(default)s)")
    parser.add_argument("--column", default="data", help="the field that names a column (default: %(default)s)")
    parser.add_argument("--metric", required=True, help="whose rows are kept")
    parser.add_argument("--unit", default="")
    for option in ("command", "machine"):
        parser.add_argument(f"--{option}", required=True)
    options = parser.parse_args(argv)
    found = [row for row in json.loads(options.rows.read_text(encoding="utf-8")) if row["metric"] == options.metric]
    kept = [
        {"row": str(row[options.row]), "column": str(row[options.column]), "value": f"{row['value']:.4g}"}
        | {name: str(row[name]) for name in ("sd", "n") if name in row}
        for row in found
    ]
    about = {"command": options.command, "machine": options.machine, "unit": options.unit}
    print(keep(options.file, options.table, kept, **about))


if __name__ == "__main__":
    main()
