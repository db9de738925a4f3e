"""The kernels compiled beforehand: what is compiled, in which processes, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers.source_graph import ROOT

from tensorcep import warming, warmup
from tensorcep.cli.main import main

# Prints the kernels that a default fit, its intervals and a first batch compile, of another size and order than warmup.
COMPILED_BY_FITS = """
import warnings
import numpy as np
from numba.core import event
import tensorcep
compiled = []
class Seen(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
event.register("numba:compile", Seen())
warnings.simplefilter("ignore")
rng = np.random.default_rng(1)
for shape in ((30, 20, 10), (20, 15)):
    cells = rng.choice(int(np.prod(shape)), 250, replace=False)
    coords, y = np.stack(np.unravel_index(cells, shape), axis=1), rng.standard_normal(250)
    how = dict(shape=shape, random_state=0)
    tensorcep.CPRegressor(max_iter=6, **how).fit(coords, y).predict_interval(coords)
    tensorcep.CPClassifier(max_iter=6, **how).fit(coords, (y > 0).astype(int)).predict_proba(coords)
    tensorcep.CPRegressor(**how).partial_fit(coords, y).predict(coords)
print(compiled)
"""


def test_only_what_is_asked_for_is_compiled_in_other_processes(monkeypatch):
    started = []
    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **how: started.append(a[0][3]) or begin(*a, **how))
    seconds = warmup(["matrices"])
    assert started == ["matrices"]
    assert [*seconds] == ["matrices"]
    assert seconds["matrices"] > 0.0


def test_a_process_that_fails_is_told_and_the_others_are_ended(monkeypatch):
    ended = []
    kill = subprocess.Popen.kill
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: (ended.append(self), kill(self)))
    wrong = "import sys, time; time.sleep(60 * (sys.argv[1] == 'streams')); sys.exit('no room')"
    monkeypatch.setattr(warming, "CHILD", wrong)
    with pytest.raises(RuntimeError, match="compiles 'matrices' failed: no room"):
        warmup(["streams", "matrices"])
    assert len(ended) == 1


def test_a_cache_that_keeps_nothing_is_told(monkeypatch):
    monkeypatch.setattr(warming, "CHILD", "print('no folder')")
    with pytest.warns(UserWarning, match="'matrices' may be lost: no folder; set NUMBA_CACHE_DIR"):
        warmup(["matrices"])


@pytest.mark.parametrize(
    ("kinds", "error", "words"),
    [
        ("matrices", TypeError, "pass \\['matrices'\\]"),
        (["forests"], ValueError, "regressor.*got 'forests'"),
    ],
)
def test_kinds_that_do_not_exist_are_refused(kinds, error, words):
    with pytest.raises(error, match=words):
        warmup(kinds)


def test_without_compilation_there_is_nothing_to_do(monkeypatch):
    monkeypatch.setattr(warming, "AS_PYTHON", True)
    with pytest.raises(ValueError, match="NUMBA_DISABLE_JIT"):
        warmup()


def test_the_shell_tells_the_seconds_of_each_kind(capsys):
    assert main(["warmup", "matrices", "--processes", "1"]) == 0
    assert capsys.readouterr().err.startswith("matrices: ")
    assert main(["warmup", "forests"]) == 1


@pytest.mark.slow
def test_fits_after_the_warmup_compile_nothing():
    assert set(warmup()) == set(warming.KINDS)
    done = subprocess.run(
        [sys.executable, "-c", COMPILED_BY_FITS],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.strip() == "[]"
