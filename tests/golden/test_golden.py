"""The record is complete and equal to what the package gives, and a change is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcep as tc
from tests.golden import interface, record, refusals, table
from tests.golden.__main__ import FILES, HOMES, check, gone, names_of

ARRAYS = {"predict": np.linspace(-3.0, 2.0, 40), "labels": np.array(["a", "b"]), "sizes": np.array([3, 1])}


def kept(arrays: dict[str, Any], warnings: tuple[str, ...] = ("UserWarning: it stopped early",)) -> dict[str, Any]:
    return {"warnings": list(warnings), "arrays": {name: record.entry_of(array) for name, array in arrays.items()}}


def changed(name: str, array: Any) -> dict[str, Any]:
    return kept({**ARRAYS, name: array})


@pytest.mark.parametrize("place", [0, 17, 39])
def test_flipped_bit_is_noticed_in_bits_alone(place: int) -> None:
    flipped = ARRAYS["predict"].copy()
    flipped.view(np.uint64)[place] ^= 1
    assert record.moved(kept(ARRAYS), changed("predict", flipped), bits=True)[0].startswith("predict differs by")
    assert not record.moved(kept(ARRAYS), changed("predict", flipped), bits=False)


@pytest.mark.parametrize("place", [0, 17, 39])
@pytest.mark.parametrize("value", [1e-5, np.inf, np.nan])
def test_moved_number_is_noticed_elsewhere_too(place: int, value: float) -> None:
    other = ARRAYS["predict"].copy()
    other[place] += value
    assert record.moved(kept(ARRAYS), changed("predict", other), bits=False)


def test_every_other_change_is_noticed() -> None:
    before = kept(ARRAYS)
    assert not record.moved(before, kept(ARRAYS), bits=True)
    assert record.moved(before, changed("labels", np.array(["a", "c"])), bits=False)
    assert record.moved(before, changed("sizes", np.array([3, 2])), bits=False)
    assert record.moved(before, changed("predict", ARRAYS["predict"][:-1]), bits=False)
    assert record.moved(before, changed("new", np.zeros(2)), bits=False) == ["new is new"]
    assert record.moved(kept({**ARRAYS, "old": np.zeros(2)}), before, bits=False) == ["old is gone"]
    assert len(record.moved(before, kept(ARRAYS, ("UserWarning: it stopped late",)), bits=False)) == 2
    assert record.moved(before, {"warnings": [], "arrays": {}, "error": "ValueError: no"}, bits=True)


def test_change_of_interface_is_noticed_and_a_shorter_trace_is_none() -> None:
    assert interface.moved("refusals", "ValueError: rank must be 1.", "ValueError: rank must be one.")
    assert interface.moved("refusals", "ValueError: rank must be 1.", refusals.GOES_THROUGH)
    assert interface.moved("names", ["(rank)"], ["(rank, tol)"]) == ["- (rank)", "+ (rank, tol)"]
    assert interface.moved("help", ["a", "b"], ["b", "a"])
    trace = {"functions": 5, "files": 3, "path to the first kernel": "a > b"}
    assert not interface.moved("trace", trace, {**trace, "functions": 4, "path to the first kernel": "a > c"})
    assert interface.moved("trace", trace, {**trace, "files": 4})


def test_planted_fault_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["metrics/all", "refusals/a name that is not there"]
    assert check(names, bits=False, verbose=False) == 0
    right = tc.metrics.mae
    monkeypatch.setattr(tc.metrics, "mae", lambda *args: right(*args) * (1.0 + 1e-7))
    monkeypatch.setitem(refusals.REFUSALS, "a name that is not there", dict)
    assert check(names, bits=False, verbose=False) == 2
    told = capsys.readouterr().out
    assert "families: metrics/all: numbers differs by" in told
    assert f"now '{refusals.GOES_THROUGH}'" in told


def test_record_has_every_item_and_no_other() -> None:
    before = {file: record.read(file) for file in FILES}
    assert not gone(before)
    assert not [name for name in table.CASES if name not in before[HOMES[table.HOMES[name]]]]
    for section in interface.SECTIONS:
        assert set(interface.names(section)) == set(before[section]), section


def test_record_is_small_text() -> None:
    sizes = [path.stat().st_size for path in Path(__file__).parent.rglob("*") if path.is_file()]
    assert max(sizes) < 2_000_000
    assert sum(sizes) < 4_000_000


@pytest.mark.parametrize("section", ["names", "help"])
def test_public_names_and_help_are_as_recorded(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    count = check(names_of(section), bits=False, verbose=False)
    assert count == 0, capsys.readouterr().out


@pytest.mark.slow
def test_package_gives_what_is_recorded() -> None:
    """Bits on the machine of the record, numbers elsewhere; in a process of its own, whose state is that of a start."""
    command = [sys.executable, "-m", "tests.golden", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
