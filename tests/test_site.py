"""The site: nothing public is missing from it, its code runs, its figures have texts, and it builds without a word."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.source_graph import ROOT

import tensorcep
from scripts.docs import measured, pages, public, reference
from tensorcep.cli.main import build_parser

SITE = ROOT / "notebooks" / "site"
TEXTS = {path: path.read_text(encoding="utf-8") for path in sorted(SITE.rglob("*.md"))}


def shown_objects() -> set[str]:
    """The objects that the pages of the reference are about."""
    texts = reference.reference_pages()
    found = {name for text in texts.values() for name in re.findall(r"auto(?:class|function):: (\S+)", text)}
    for text in texts.values():
        module = re.search(r"currentmodule:: (\S+)", text)
        if module:
            found |= {f"{module[1]}.{name}" for name in re.findall(r"auto(?:class|method):: (\S+)", text)}
    return found


def test_site_reference_shows_every_method_of_a_class_with_many() -> None:
    shown = shown_objects()
    for item in public.of_package():
        if inspect.isclass(item.value) and len(public.methods_of(item.value)) > public.ON_ONE_PAGE:
            assert {f"{item.path}.{name}" for name in public.methods_of(item.value)} <= shown


def test_site_reference_shows_every_public_object() -> None:
    shown = shown_objects()
    assert [item.path for item in public.every() if item.path not in shown] == []


def test_site_knows_every_name_that_the_package_offers() -> None:
    known = {item.name for item in public.every()}
    values = {name: getattr(tensorcep, name) for name in tensorcep.__all__}
    objects = {name for name, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert objects <= known
    assert {name for name, value in values.items() if inspect.ismodule(value)} <= {*public.MODULES, *public.SETTINGS}
    for module in ("metrics", "plots"):
        defined = vars(importlib.import_module(f"tensorcep.{module}"))
        offered = {n for n, v in defined.items() if inspect.isfunction(v) and n[0] != "_"}
        assert {n for n in offered if defined[n].__module__.startswith(f"tensorcep.{module}")} <= known


def test_site_public_objects_have_examples() -> None:
    records = {name.rpartition(".")[2] for name in public.RECORDS}
    without: list[str] = []
    for item in public.every():
        small = inspect.isclass(item.value) and issubclass(item.value, tuple)  # records that functions return
        if item.name in records or small:
            without += [] if item.value.__doc__ else [item.path]
            continue
        without += [] if ">>>" in (item.value.__doc__ or "") else [item.path]
        methods = public.methods_of(item.value) if inspect.isclass(item.value) else []
        without += [f"{item.path}.{n}" for n in methods if ">>>" not in (getattr(item.value, n).__doc__ or "")]
    assert without == []


def test_site_pages_of_the_shell_are_short_and_have_every_option_of_every_command() -> None:
    parser = build_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    texts = reference.shell_pages()
    assert {f"shell/{name}" for name in commands.choices} | {"shell"} == set(texts)
    assert [name for name, text in texts.items() if len(text.split()) > 1500] == []
    for name, command in commands.choices.items():
        text = texts[f"shell/{name}"]
        assert f"(shell/{name}.md)" in texts["shell"]
        for action in command._actions:
            words = "|".join(action.option_strings or [str(action.metavar)])
            assert re.search(rf"(?<![\w-])(?:{words})(?![\w-])", text), f"{name}: {words}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
def test_site_pages_do_what_they_say() -> None:
    wrong = {path.stem: told for path in pages.pages() if (told := pages.failures(path))}
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
def test_site_shell_of_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorcep.cli.main import main

    monkeypatch.chdir(tmp_path)
    lines = pages.commands(SITE / "start.md")
    assert len(lines) == 5
    assert [line for line in lines if main(line.split()[1:])] == []
    assert (tmp_path / "predictions.csv").stat().st_size > 10_000


def test_site_code_is_either_run_or_named_in_the_shell() -> None:
    run = {path for path, text in TEXTS.items() if "```pycon" in text}
    plain = {path.name for path, text in TEXTS.items() if "```python" in text}
    assert plain == {"index.md"}  # whose lines are those of the tour
    assert {path.name for path in (SITE / "guides").glob("*.md")} - {path.name for path in run} == {"index.md"}


def test_site_prose_names_options_that_exist() -> None:
    parser = build_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    options = {o for c in commands.choices.values() for a in c._actions for o in a.option_strings}
    for path, text in TEXTS.items():
        for line in re.findall(r"tensorcep [a-z][a-z-]* [^`\n]*", text):
            named = set(re.findall(r"(?<!\S)--[a-z-]+", line))
            assert named <= options, f"{path.name}: {line}"


def test_site_figures_have_texts_and_somebody_who_draws_them() -> None:
    from scripts.docs.figures import FIGURES

    images = [image for text in TEXTS.values() for image in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)]
    assert len(images) >= 8
    assert [address for seen, address in images if len(seen) < 40] == []
    named = {Path(address).stem for _, address in images if address.endswith(".svg")}
    pytest.importorskip("matplotlib")
    assert named == set(FIGURES)


def test_site_gallery_shows_every_figure_in_ten_lines() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "scripts/examples/figures").glob("*.py")}
    for name, source in sources.items():
        text = str(ast.get_docstring(ast.parse(source)))
        assert len(text.split("\n\n", 1)[1]) >= 40, name
        lines = [line for line in source.split('"""', 2)[2].splitlines() if line and "import" not in line]
        assert len(lines) <= 10, name
    drawn = {name for source in sources.values() for name in re.findall(r"plots\.(plot_\w+)", source)}
    assert {item.name for item in public.of_module("plots")} - drawn == {"report"}


def test_site_measured_figures_have_command_commit_date_and_machine() -> None:
    rows = measured.figures()
    assert len({(row["table"], row["row"], row["column"]) for row in rows}) == len(rows) > 400
    for row in rows:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"])
        assert re.fullmatch(r"[0-9a-f]{8}", row["commit"])
        assert all(np.isfinite(float(row[name])) for name in ("value", "sd", "n") if row[name])
        words = row["command"].split()
        if words[:2] == ["python", "-m"] and row["table"] != "findings":  # whose scripts are in git
            path = ROOT.joinpath(*words[2].split("."))
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), row["command"]
        if words[:2] == ["asv", "run"]:
            sources = [p.read_text() for p in (ROOT / "scripts" / "benchmarks" / "speed").glob("*.py")]
            assert any(words[3].rpartition(".")[2] in source for source in sources), row["command"]


def test_site_measured_pages_say_what_we_lose_and_show_every_table() -> None:
    texts = {path.stem: text for path, text in TEXTS.items() if path.parent.name == "measured"}
    assert set(texts) == {"index", "out_of_the_box", "calibration", "speed", "published"}
    assert all("## What we lose" in text for name, text in texts.items() if name != "index")
    shown = [name for text in texts.values() for name in re.findall(r"^\{measured\} (.+)$", text, re.MULTILINE)]
    assert sorted([*shown, "findings"]) == sorted({row["table"] for row in measured.figures()})
    assert set(shown) == set(measured.CODE)
    for name in shown:
        text = measured.table_page(name)
        assert all(f" {row['value']} " in text and row["commit"] in text for row in measured.figures(name))


def test_site_measured_figure_older_than_its_code_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [dict.fromkeys(measured.FIELDS, "1") | {"table": "demo", "row": name, "commit": name} for name in ("a", "b")]
    monkeypatch.setattr(measured, "figures", lambda table: rows)
    monkeypatch.setattr(measured, "changed_since", lambda commit, table: "abc" if commit == "a" else "")
    text = measured.table_page("demo")
    assert "| a † | 1 ± 1 |" in text
    assert "| b | 1 ± 1 |" in text
    assert "Measured before abc, the newest change of `tensorcep/cp`" in text


def test_site_figures_and_those_of_the_readme_have_rows() -> None:
    """Numbers with decimals, or with a unit, of prose; code, links, formulas and nominal levels are none."""
    values = [float(row[name]) for row in measured.figures() for name in ("value", "sd", "n") if row[name]]
    nominal = {"90", "50"}  # per cent that intervals promise
    told = {  # versions, sections, what a figure or an example on the same page shows, and rules
        *("3.10", "3.6", "8.1", "-4.594", "1.33", "1.28", "0.99", "0.98", "7", "12", "0.5", "0.3"),
    }
    number = r"(?<![\w.])-?\d[\d,]*\.\d+|\d+(?= %)|\d[\d,]*(?= (?:times|seconds|bytes|GB|MB))"
    without = {}
    for path, text in {ROOT / "README.md": (ROOT / "README.md").read_text(encoding="utf-8"), **TEXTS}.items():
        prose = re.sub(
            r"^```.*?^```|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|`[^`]*`", "", text, flags=re.DOTALL | re.MULTILINE
        )
        for found in set(re.findall(number, prose)) - nominal - told:
            digits = len(found.partition(".")[2])
            near = {round(scale * value, digits) for value in values for scale in (1.0, 100.0)}
            if float(found.replace(",", "")) not in near:
                without.setdefault(path.name, []).append(found)
    assert without == {}


def test_site_rows_of_a_command_take_the_place_of_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    rows = tmp_path / "rows.json"
    about = ["--metric", "rmse", "--command", "tensorcep demo", "--machine", "two cores"]
    for value in (0.5, 0.25):
        told = [
            {"data": "alog", "method": "cep", "metric": "rmse", "value": value, "n": 3},
            {"metric": "x", "value": 1},
        ]
        rows.write_text(json.dumps(told))
        measured.main(["some", "sets", str(rows), *about])
    (row,) = measured.figures("sets")
    assert (row["row"], row["column"], row["value"], row["n"]) == ("cep", "alog", "0.25", "3")
    assert re.fullmatch(r"[0-9a-f]{7,}", row["commit"])
    measured.main(["some", "sets", str(rows), *about[:-1], ""])
    with pytest.raises(ValueError, match="'cep', 'alog' of 'sets' has no machine"):
        measured.figures()


@pytest.mark.slow
def test_site_builds_without_a_warning_and_without_network(tmp_path: Path) -> None:
    for name in ("sphinx", "pydata_sphinx_theme", "numpydoc", "myst_nb", "sphinx_design", "sphinx_copybutton"):
        pytest.importorskip(name, reason="the site needs the extra 'docs'")
    environment = {
        **os.environ,
        "MPLBACKEND": "agg",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "scripts.docs.build", "--no-run", "--out", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "index.html").is_file()


def test_site_check_finds_what_is_wrong(tmp_path: Path) -> None:
    from scripts.docs.check import complaints

    page = (
        '<h1 id="a">A</h1><a href="none.html">x</a><a href="#b">x</a><a href="#a">x</a><img src="data:,">'
        '<script src="https://elsewhere.example/x.js"></script><a href="https://elsewhere.example">fine</a>'
    )
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "two.html").write_text("<h1>A</h1><h1>B</h1>")
    found = complaints(tmp_path)
    assert len(found) == 5
    assert "two.html has 2 headings of the first level" in found
