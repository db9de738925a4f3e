"""The command line as a shell user meets it: results, files, exit codes and sentences."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.source_graph import ROOT
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import tensorcep
from tensorcep import CPClassifier, CPRegressor, load, metrics
from tensorcep.cli.fit import hint_line
from tensorcep.cli.main import COMMANDS, build_parser, main, sentence_of
from tensorcep.core.checks import InvalidParameter
from tensorcep.cp.simulate import simulate_cp
from tensorcep.entries.io import read_tensor, write_tensor
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.estimators import ESTIMATORS
from tensorcep.methods import CEP

SHAPE = (12, 7, 5)
# A model that is fitted in no time, as options and as parameters.
SMALL = ["--rank", 2, "--method", "cep", "--prior", "fixed", "--interactions", "cp"]
PARAMETERS = {"rank": 2, "method": "cep", "prior": "fixed", "interactions": "cp"}
QUERIES = [[3, 2, 4], [0, 6, 1], [3, 2, 4], [11, 0, 0]]  # out of order, one twice


def simulated(likelihood: str = "gaussian", labels: Any = None) -> SparseTensor:
    tensor = simulate_cp(SHAPE, 2, 300, likelihood=likelihood, latent_sd=1.0, random_state=6).tensor
    return SparseTensor.from_coo(tensor.coords, tensor.values, SHAPE, labels=labels)


def names() -> list[Labels]:
    return [
        Labels([f"user {i:02d}, x" for i in range(12)], name="user"),
        Labels([10 * j + 7 for j in range(7)], name="item"),
        Labels([f"d{k}" for k in range(5)], name="day"),
    ]


def cells(model: Any, rows: Any) -> Any:
    """What the model's predict takes for these rows: the rows, or their labels."""
    rows = np.asarray(rows)
    if model.labels_[0] is None:
        return rows
    return pd.DataFrame({found.name: found.index.take(rows[:, k]) for k, found in enumerate(model.labels_)})


def of_rows(path: Path, rows: Any) -> np.ndarray:
    """What the model in a file predicts for these rows."""
    model = load(path)
    predicted: np.ndarray = model.predict(cells(model, rows))
    return predicted


def cli(*args: object) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of entries with indices and with labels, and the models that the command line fitted to them."""
    folder = tmp_path_factory.mktemp("cli")
    write_tensor(simulated(), folder / "plain.tns")
    write_tensor(simulated(labels=names()), folder / "named.csv")
    for likelihood in ("probit", "poisson"):
        path = folder / f"{likelihood}.tns"
        write_tensor(simulated(likelihood), path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            chosen = [*SMALL, "--likelihood", likelihood, "--max-iter", 30, "-q"]
            assert cli("fit", path, "-o", path.with_suffix(".npz"), *chosen) == 0
    assert cli("fit", folder / "plain.tns", "-o", folder / "plain.npz", *SMALL, "-q") == 0
    assert cli("fit", folder / "named.csv", "-o", folder / "named.npz", *SMALL, "-q") == 0
    return folder


def predictions(capsys: pytest.CaptureFixture[str], *args: object) -> pd.DataFrame:
    assert cli("predict", *args) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return pd.read_csv(io.StringIO(out))


def close(table: pd.DataFrame, name: str, expected: np.ndarray) -> None:
    np.testing.assert_allclose(table[name], expected, rtol=1e-7, atol=1e-12)


# The frame: help, versions, exit codes


def test_cli_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    text = capsys.readouterr().out
    assert exit_.value.code == 0
    assert [command.name for command in COMMANDS] == re.findall(
        r"^  ([\w-]+) +\w.*[^.\d]$", text.partition("a session")[0].partition("fit a model:")[2], re.MULTILINE
    )


def test_cli_help_of_each_command_explains_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    parsers: Any = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert list(parsers) == [command.name for command in COMMANDS]
    for command, parser in parsers.items():
        with pytest.raises(SystemExit) as exit_:
            main([command, "--help"])
        assert exit_.value.code == 0, command
        assert capsys.readouterr().out.startswith(f"usage: tensorcep {command} ")
        assert [action.dest for action in parser._actions if not action.help] == [], command


def test_cli_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"tensorcep {tensorcep.__version__}\n"


def test_cli_without_a_command_shows_help_and_returns_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "fit a model:" in err


def test_cli_wrong_usage_exits_with_2_and_a_short_hint(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        "frobnicate",
        "fit",
        "fit x.tns",
        "fit x.tns -o m --rank two",
        "fit x.tns -o m --likelihood cauchy",
        "fit x.tns -o m --threads 0",
        "fit x.tns -o m --damping much",
        "fit x.tns -o m --shape 3,four",
        "fit x.tns -o m --verbose --quiet",
        "predict model.npz",
    ):
        with pytest.raises(SystemExit) as exit_:
            main(words.split())
        assert exit_.value.code == 2, words
        out, err = capsys.readouterr()
        assert out == "", words
        assert len(err.splitlines()) == 2, words
        assert "error: " in err, words


def test_cli_import_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys, tensorcep.cli.main; parser = tensorcep.cli.main.build_parser(); parser.format_help()\n"
        "for one in parser._subparsers._group_actions[0].choices.values(): one.format_help()\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    tops = {name.split(".")[0] for name in loaded.split()}
    assert "tensorcep" in tops
    assert not tops & {"pandas", "numba", "scipy", "sklearn", "tensorly", "matplotlib"}


def test_cli_is_python_dash_m_too() -> None:
    command = [sys.executable, "-m", "tensorcep", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (found.returncode, found.stdout) == (0, f"tensorcep {tensorcep.__version__}\n")


# Errors


ERRORS = [
    ("fit none.tns -o m.npz", "there is no file 'none.tns'; check the path."),
    ("fit plain.tns -o none/m.npz", r"cannot write 'none/m.npz': there is no folder '.*none'; create it first."),
    ("fit plain.tns -o .", r"cannot write '.': it is a folder; give the path of a file."),
    ("fit plain.tns -o ./plain.tns", "'./plain.tns' is an input of this command; give another file to write to."),
    ("fit plain.tns -o m.npz --rank 0", "--rank must be auto or an integer >= 1; got 0."),
    ("fit plain.tns -o m.npz --max-iter 0", "--max-iter must be auto or an integer >= 1; got 0."),
    ("fit plain.tns -o m.npz --seed -1", "--seed must be an integer >= 0; got -1."),
    ("fit plain.tns -o m.npz --tol -1", "--tol must be a number >= 0; got -1.0."),
    ("fit plain.tns -o m.npz --damping 1", r"--damping must be auto or adaptive, or a number in \[0, 1\); got 1.0."),
    (
        "fit plain.tns -o m.npz --likelihood probit",
        "y must hold labels 0 and 1, or any two labels; got .* of them.",
    ),
    ("fit plain.tns -o m.npz --shape 2,2,2", r"line \d+ of 'plain.tns' has index '\d+' .* beyond the shape .*"),
    (
        "fit probit.tns -o m.npz --likelihood probit --zero-rate 2",
        r"--zero-rate must be auto, or a number in \(0, 1\]; got .*",
    ),
    ("fit plain.tns -o m.npz --zero-rate 0.1", "--zero-rate is for labels; got --likelihood gaussian; .*"),
    ("stream zero.csv -o m.npz --zero-rate 0.1", "--zero-rate is for labels; got --likelihood gaussian; .*"),
    ("fit zero.tns -o m.npz", "line 1 of 'zero.tns' .* from 1; pass --index-base 0 if this file counts from 0."),
    (
        "fit twice.tns -o m.npz",
        "the cell .* more than once.*; pass --duplicates mean, sum or last to merge them, or, of .* --count to .*",
    ),
    ("fit log.csv -o m.npz", "'log.csv' must have at least two modes; got .* 'item', .*; pass --count if there .*"),
    ("fit hours.csv -o m.npz", "the cell .* more than once.*, or, .* events without values, --count to count .*"),
    ("fit bare.csv -o m.npz", "line 1 of 'bare.csv' holds numbers .*; pass --no-header."),
    ("fit bare.csv -o m.npz --no-header --modes a,b", "without a header a column is its position .*; got 'a'; .*"),
    ("fit named.csv -o m.npz --modes user,who", "'named.csv' has no column 'who'; it has 'user', 'item', .*"),
    ("fit text.xyz -o m.npz", "'text.xyz' has the unknown extension '.xyz'; known are .*, or pass --format."),
    ("predict plain.tns plain.tns", "'plain.tns' is not a tensorcep.model file; .*"),
    ("predict plain.npz plain.npz", "'plain.npz' is a tensorcep.model file, not a tensorcep.tensor file; .*"),
    ("predict plain.npz plain.tns --coverage 2", r"--coverage must be a number in \(0, 1\); got 2.0."),
    ("predict plain.npz plain.tns -o p.txt", "predictions are written as csv or parquet; got the name 'p.txt'; .*"),
    ("predict plain.npz plain.tns -o plain.npz", "'plain.npz' is an input of this command; .*"),
    ("predict plain.npz zero.tns", "line 1 of 'zero.tns' .*; pass --index-base 0 if this file counts from 0."),
    (
        "predict plain.npz zero.csv",
        "column 'i' of 'zero.csv' must hold indices that count from 1; got '0' in row 1.*",
    ),
    (
        "predict plain.npz named.csv",
        "column 'user' of 'named.csv' must hold finite numbers; got 'user .*' in row 1; mend it.",
    ),
    (
        "predict plain.npz bare.csv --no-header",
        "'bare.csv' must have 3 mode columns like the model; got the columns 0, 1; .*",
    ),
    ("predict plain.npz short.tns", "a line of 'short.tns' must hold 3 indices, with or without a value .*"),
    ("predict plain.npz plain.tns --labels", "the model was fitted to indices and knows no labels; .*"),
    ("predict named.npz plain.tns", "'plain.tns' holds indices, but the model knows its rows by labels; .*"),
    ("predict named.npz ragged.csv", "line 3 of 'ragged.csv' has 5 fields where 3 .*"),
    ("evaluate plain.npz cells.csv", "'cells.csv' has no column left for the value beside the modes i, j, k."),
    ("evaluate plain.npz plain.tns --figure plain.tns", "'plain.tns' is an input of this command; .*"),
    ("evaluate plain.npz blank.csv", "column 'y' of 'blank.csv' must hold finite numbers; got '' in row 1; mend it."),
    ("evaluate plain.npz comma.csv", "column 'y' of .* got '2,5' in row 1; mend it, or pass --decimal \",\" if .*"),
    ("info cut.npz", "'cut.npz' is truncated or damaged .*"),
    ("info none.npz", "there is no file 'none.npz'; check the path."),
    ("convert plain.tns plain.tns", "'plain.tns' is an input of this command; .*"),
    ("convert plain.npz x.csv", "'plain.npz' is a tensorcep.model file, not a tensorcep.tensor file; .*"),
    ("split plain.tns a.tns a.tns", "'a.tns' is an input of this command; .*"),
    ("split plain.tns a.tns b.tns --test-size 1.5", r"--test-size must be a number in \(0, 1\); got 1.5."),
    ("split plain.tns a.tns b.tns --test-size 0", "--test-size must be an integer >= 1; got 0."),
    ("datasets nothing", "NAME must be one of alog, .*; got 'nothing'."),
    ("datasets -o x.csv", "--output, --part and --fold need the NAME of a data set; give one."),
    ("datasets il2 -o x.csv --fold 2", "--part and --fold have a meaning only with --output, for alog, .*"),
    ("datasets alog -o x.csv --fold 6", "--fold must be an integer from 1 to 5; got 6."),
    ("datasets coal_mining -o x.csv", "--output is for tensors, and coal_mining has points; load it from Python, .*"),
    ("demo --rank 0", "--rank must be an integer >= 1; got 0."),
]


def test_cli_error_is_one_sentence_on_stderr_and_code_1(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    files = {
        "zero.tns": "0 1 2 3.5\n1 1 1 2\n",
        "zero.csv": "i,j,k,y\n0,1,2,3\n",
        "twice.tns": "1 1 2 3\n1 1 2 4\n",
        "bare.csv": "1,2\n2,2\n",
        "log.csv": "user,item\na,x\na,x\nb,y\n",
        "hours.csv": "user,item,hour\na,x,7\na,x,7\nb,y,8\n",
        "short.tns": "1 2\n3 4\n",
        "cells.csv": "i,j,k\n1,2,3\n",
        "blank.csv": "i,j,k,y\n1,2,3,\n",
        "comma.csv": "i;j;k;y\n1;2;3;2,5\n",
        "ragged.csv": "user,item,day\na,7,d0\na,7,d0,d0,d0\n",
        "text.xyz": "1 2 3\n",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    Path("cut.npz").write_bytes(Path("plain.npz").read_bytes()[:2000])
    before = {path: path.read_bytes() for path in work.iterdir()}
    told = {}
    for words, sentence in ERRORS:
        code, err = main(words.split()), capfd.readouterr().err
        if code != 1 or not re.fullmatch(f"error: {sentence}\n", err):
            told[words] = (code, err)
        assert {path: path.read_bytes() for path in work.iterdir()} == before, words  # nothing written, nothing lost
    assert told == {}


def test_cli_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "none.tns", "--debug"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("error: there is no file 'none.tns'; check the path.\n")


def test_cli_bug_is_not_told_as_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise KeyError(path)

    monkeypatch.setattr("tensorcep.cli.files.archive_kind", broken)
    with pytest.raises(KeyError):
        main(["info", "x.tns"])


def test_cli_out_of_memory_says_what_helps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def greedy(path: str) -> None:
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("tensorcep.cli.files.archive_kind", greedy)
    assert main(["info", "x.tns"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: there is not enough memory (Unable to allocate 9 TiB); use a lower --rank")


def test_cli_point_estimates_have_values_without_uncertainty(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "model.npz")
    assert main(["fit", str(work / "plain.tns"), "-o", model, "--method", "wopt", "--rank", "1", "-q"]) == 0
    assert main(["predict", model, str(work / "plain.tns"), "-o", str(tmp_path / "p.csv")]) == 0
    assert list(pd.read_csv(tmp_path / "p.csv").columns[-1:]) == ["mean"]
    assert "sd" not in pd.read_csv(tmp_path / "p.csv").columns
    capsys.readouterr()
    assert main(["evaluate", model, str(work / "plain.tns"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"entries", "rmse", "mae", "log_likelihood"}


def test_cli_refuses_models_that_are_not_of_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 1)) + 0.1 * rng.standard_normal((30, 3))  # one component, which a fit finds
    tensorcep.BayesianProbitRegression().fit(X, X[:, 0] > 0).save(tmp_path / "BayesianProbitRegression.npz")
    tensorcep.BayesianPCA(1).fit(X).save(tmp_path / "BayesianPCA.npz")
    for command, name in [
        *((command, "BayesianProbitRegression") for command in ("info", "predict", "evaluate")),
        ("evaluate", "BayesianPCA"),
    ]:
        assert cli(command, tmp_path / f"{name}.npz", *([] if command == "info" else ["x.tns"])) == 1
        err = capsys.readouterr().err
        assert f"holds a {name}, and" in err, command
        assert "serves models of tensors" in err, command


def _python(*args: object, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tensorcep", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **options)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_cli_interrupt_leaves_no_file_and_dies_of_the_signal(work: Path, tmp_path: Path) -> None:
    endless = ["--max-iter", 10**9, "--tol", 0, "--rank", 2]

    def hear_ctrl_c() -> None:  # what runs in the background of a shell has it ignored, and hands that on
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with _python("fit", work / "plain.tns", "-o", tmp_path / "model.npz", *endless, preexec_fn=hear_ctrl_c) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()  # the fit begins
        time.sleep(1.0)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT  # which a shell reports as 130
    assert err == "interrupted; no file was left half-written\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_cli_interrupt_during_the_imports_is_a_line() -> None:
    code = (
        "import builtins, os, signal; from tensorcep.__main__ import run; real = builtins.__import__\n"
        "def slow(name, *rest):\n"
        "    if name == 'tensorcep.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = slow; run()"
    )
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", hears + code], env=environment, capture_output=True, text=True, check=False
    )
    assert found.stderr == "interrupted; no file was left half-written\n"
    assert found.returncode == -signal.SIGINT


@each("closed", ["stdin", "stdout", "stderr"])
def test_cli_streams_that_are_closed_take_nothing(
    closed: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, closed, None)
    assert cli("info", work / "plain.tns") == 0
    assert cli("convert", work / "plain.tns", tmp_path / "t.csv") == 0
    assert cli("predict", work / "plain.npz", work / "plain.tns") == 0
    assert cli("info", work / "nothing.tns") == 1
    out, err = capfd.readouterr()
    getattr(sys, closed).close()
    assert (err == "") == (closed == "stderr")
    assert "error" not in out


def test_cli_closed_pipe_is_quiet(work: Path, tmp_path: Path) -> None:
    many = np.tile(simulated().coords, (20, 1))  # more than a pipe holds
    pd.DataFrame(many + 1, columns=list("ijk")).to_csv(tmp_path / "many.csv", index=False)
    with _python("predict", work / "plain.npz", tmp_path / "many.csv") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "i,j,k,mean,sd,lower,upper\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_cli_failed_write_keeps_the_earlier_file(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.csv"
    out.write_text("earlier")

    def full(self: pd.DataFrame, handle: Any, **_: Any) -> None:
        handle.write(b"half a line")
        raise OSError(28, "No space left on device", "p.csv")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    assert cli("predict", work / "plain.npz", work / "plain.tns", "-o", out) == 1
    assert capsys.readouterr().err == "error: No space left on device: 'p.csv'\n"
    assert out.read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


# compare


def test_cli_compare_prints_and_writes_the_table_of_compare(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    parts = [tmp_path / "train.tns", tmp_path / "test.tns"]
    assert cli("split", work / "plain.tns", *parts, "-q") == 0
    wanted = ["--rank", 2, "--methods", "vmp, wopt", "--shape", "12,7,5", "--max-iter", 40]
    files = [tmp_path / "table.csv", tmp_path / "figure.png"]
    assert cli("compare", *parts, *wanted, "-o", files[0], "--figure", files[1]) == 0
    shown = capsys.readouterr().out.splitlines()
    table = pd.read_csv(files[0], index_col="method")
    assert shown[0].split() == list(table.columns)
    assert [line.split()[0] for line in shown[2:]] == list(table.index) == ["vmp", "wopt"]
    assert files[1].read_bytes().startswith(b"\x89PNG")
    tensors = [read_tensor(path, shape=SHAPE) for path in parts]
    expected = tensorcep.compare(*tensors, ["vmp"], estimator=CPRegressor(2, max_iter=40, random_state=0))
    assert table.loc["vmp", "rmse"] == pytest.approx(expected.loc["vmp", "rmse"], rel=1e-9)


def test_cli_compare_names_the_methods_that_fit(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = work / "poisson.tns"
    assert cli("compare", path, path, "--likelihood", "poisson", "--methods", "pg-gibbs") == 1
    assert "a method for the likelihood 'poisson' must be one of cep, " in capsys.readouterr().err


# select-rank


def test_cli_select_rank_prints_and_writes_what_select_rank_finds(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, model = tmp_path / "table.csv", tmp_path / "model.npz"
    wanted = ["--ranks", "2,1", "--cv", 2, "--method", "vmp", "--seed", 1, "--max-iter", 400, "--shape", "12,7,5"]
    assert cli("select-rank", work / "plain.tns", *wanted, "-o", table, "--model", model, "-q") == 0
    shown = capsys.readouterr().out.splitlines()
    estimator = CPRegressor(method="vmp", max_iter=400, random_state=1)
    tensor = read_tensor(work / "plain.tns", shape=SHAPE)
    found = tensorcep.select_rank(estimator, tensor, ranks=[1, 2], cv=2, random_state=1)
    assert shown[0].split() == ["mean", "standard_error", "loss", "loss_error", "seconds"]
    assert shown[-1] == f"chosen rank {found.rank} (best {found.best_rank})"
    written = pd.read_csv(table, index_col="rank")
    np.testing.assert_allclose(written["mean"], found.frame["mean"], rtol=1e-9)
    assert tensorcep.load(model).rank == found.rank


def test_cli_select_rank_refuses_ranks_that_are_no_numbers(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli("select-rank", work / "plain.tns", "--ranks", "2,four")
    assert exit_.value.code == 2
    assert "ranks are integers between commas" in capsys.readouterr().err
    assert cli("select-rank", work / "plain.tns", "--ranks", "2,0") == 1
    assert "got 0" in capsys.readouterr().err


# fit


def test_cli_fit_takes_a_method(work: Path, tmp_path: Path) -> None:
    assert cli("fit", work / "plain.tns", "-o", tmp_path / "m.npz", "--rank", 2, "-q", "--method", "vmp") == 0
    found, expected = load(tmp_path / "m.npz"), CPRegressor(2, method="vmp", random_state=0).fit(simulated())
    np.testing.assert_array_equal(found.posterior_.eta, expected.posterior_.eta)


def test_cli_fit_defaults_are_the_estimators() -> None:
    parser: Any = build_parser()._subparsers._group_actions[0].choices["fit"]  # type: ignore[union-attr, index, call-overload]
    given = vars(parser.parse_args(["x", "-o", "y"]))
    for cls in ESTIMATORS.values():
        expected = {name: item.default for name, item in inspect.signature(cls).parameters.items()}
        for name in ("rank", "method", "prior", "interactions", "max_iter", "tol"):
            assert given[name] == expected[name], (cls, name)
    found = re.search(r"\n +--tol TOL +.*?\(default: ([\d.e-]+)\)", parser.format_help(), re.DOTALL)
    assert found is not None
    assert float(found[1]) == given["tol"]


def test_cli_fit_is_the_estimators_fit(work: Path) -> None:
    found, expected = load(work / "plain.npz"), CPRegressor(**PARAMETERS, random_state=0).fit(simulated())
    np.testing.assert_array_equal(found.posterior_.eta, expected.posterior_.eta)
    np.testing.assert_array_equal(found.posterior_.Lam, expected.posterior_.Lam)


def test_cli_fit_without_options_is_the_bare_estimator(work: Path, tmp_path: Path) -> None:
    assert cli("fit", work / "plain.tns", "-o", tmp_path / "m.npz", "--max-iter", 20, "-q") == 0
    found, expected = load(tmp_path / "m.npz"), CPRegressor(max_iter=20, random_state=0).fit(simulated())
    assert found.method_ == "gibbs"
    np.testing.assert_array_equal(found.predict(QUERIES), expected.predict(QUERIES))


def test_cli_fit_result_does_not_depend_on_threads_or_a_base_that_is_the_default(work: Path, tmp_path: Path) -> None:
    for option in (["--threads", "2"], ["--index-base", "1"]):
        assert cli("fit", work / "plain.tns", "-o", tmp_path / "m.npz", *SMALL, "-q", *option) == 0
        found = load(tmp_path / "m.npz").posterior_.eta
        np.testing.assert_array_equal(found, load(work / "plain.npz").posterior_.eta, err_msg=str(option))


def test_cli_fit_passes_every_option_on(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CPClassifier] = []
    fit = CPClassifier.fit

    def kept(self: Any, X: Any, *args: Any, **options: Any) -> Any:  # a fit as asked for would compile kernels
        asked.append(clone(self))
        return fit(self.set_params(**PARAMETERS, link="probit", max_iter=100, tol=1e-2), X, *args, **options)

    monkeypatch.setattr(CPClassifier, "fit", kept)
    options = "--rank 3 --likelihood logit --schedule parallel --damping 0.7 --max-iter 4 --tol 0.5 --seed 9"
    options += " --zero-rate 0.25 --prior ard --interactions main+cp"
    args = ["fit", work / "probit.tns", "-o", tmp_path / "m", *options.split(), "--dtype", "float32", "-q"]
    assert cli(*args) == 0
    (model,) = asked
    names = ["rank", "link", "max_iter", "tol", "random_state", "zero_rate"]
    assert [getattr(model, name) for name in names] == [3, "logit", 4, 0.5, 9, 0.25]
    assert load(tmp_path / "m").zero_rate_ == 0.25
    assert model.method == CEP(schedule="parallel", damping=0.7, dtype="float32")
    assert (model.prior, model.interactions) == ("ard", "main+cp")


def test_cli_fit_says_what_it_did(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("fit", work / "named.csv", "-o", tmp_path / "m.npz", *SMALL) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, likelihood, method, fit, noise, model = out.splitlines()
    assert first.startswith("data        12 x 7 x 5, 300 entries")
    assert first.endswith("labels of user, item, day, value y")
    assert likelihood == "likelihood  gaussian (the default)"
    assert method == "method      cep, rank 2, fixed prior; columns: 2 of all modes"
    assert re.fullmatch(r"fit         \d+ sweeps, converged \(last change .*\), .* s", fit)
    assert noise.startswith("noise       standard deviation ")
    assert model.endswith("m.npz")


def test_cli_fit_hints_at_a_likelihood_but_does_not_guess(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for likelihood, hint in (("probit", "probit"), ("poisson", "counts")):
        assert cli("fit", work / f"{likelihood}.tns", "-o", tmp_path / "m.npz", *SMALL) == 0
        assert f"say --likelihood {hint}" in capsys.readouterr().out
        assert isinstance(load(tmp_path / "m.npz"), CPRegressor), likelihood


@pytest.mark.filterwarnings("default")
def test_cli_fit_that_does_not_converge_warns_in_a_line_each(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("fit", work / "plain.tns", "-o", tmp_path / "m.npz", *SMALL, "--max-iter", 1, "-q") == 0
    out, err = capsys.readouterr()
    assert out == ""
    stopped, nothing = err.splitlines()
    assert re.fullmatch(r"warning: cep stopped after --max-iter 1 sweeps .*; increase --max-iter, raise .*", stopped)
    assert re.fullmatch(r"warning: nothing but the mean was found: cep predicts its training entries .*", nothing)


def test_cli_fit_shows_progress_only_when_asked(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, shown in (("--verbose", True), ("--quiet", False)):
        assert cli("fit", work / "plain.tns", "-o", tmp_path / "m.npz", *SMALL, option) == 0
        out, err = capsys.readouterr()
        assert ("sweep" in err) == shown, option
        assert ("a constant" in out) == shown, option  # the table of its health


# predict


def queries(folder: Path, kind: str, named: bool, with_values: bool) -> Path:
    """A file of QUERIES, with the columns shuffled where they have names."""
    path = folder / f"queries.{kind}"
    cells = np.array(QUERIES)
    columns = {name: cells[:, k] + 1 for k, name in enumerate(("i", "j", "k"))}
    if named:
        columns = {str(found.name): found[cells[:, k]] for k, found in enumerate(names())}
        columns = {name: columns[name] for name in ("day", "user", "item")}
    frame = pd.DataFrame(columns)
    if with_values:
        frame["y"] = [0.5, 1.5, 2.5, 3.5]
    if kind == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep=" " if kind == "tns" else ",", header=kind == "csv")
    return path


@pytest.mark.parametrize("kind", ["tns", "csv", "parquet"])
def test_cli_predict_is_the_models_for_every_line(
    kind: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    for named in (False, True) if kind != "tns" else (False,):
        model_file = work / ("named.npz" if named else "plain.npz")
        model = load(model_file)
        X = cells(model, QUERIES)
        mean, sd = model.predict(X, return_std=True)
        modes = {"tns": ["mode_0", "mode_1", "mode_2"]}.get(kind, ["user", "item", "day"] if named else ["i", "j", "k"])
        labelled = [[found[i] for found, i in zip(names(), cell, strict=True)] for cell in QUERIES]
        for with_values in (False, True):
            table = predictions(capsys, model_file, queries(tmp_path, kind, named, with_values), "--coverage", 0.5)
            close(table, "mean", mean)
            close(table, "sd", sd)
            close(table, "lower", model.predict_interval(X, 0.5)[:, 0])
            close(table, "upper", model.predict_interval(X, 0.5)[:, 1])
            assert list(table.columns) == [*modes, "mean", "sd", "lower", "upper"], (named, with_values)
            told = table[modes].to_numpy().tolist()
            assert told == (labelled if named else (np.array(QUERIES) + 1).tolist()), (named, with_values)


def test_cli_predict_reads_npz_by_its_labels(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reversed_names = [Labels(found[::-1], name=found.name) for found in names()]
    other = SparseTensor.from_coo([[11, 6, 4], [0, 0, 0]], [0.0, 0.0], SHAPE, labels=reversed_names)
    write_tensor(other, tmp_path / "q.npz")
    table = predictions(capsys, work / "named.npz", tmp_path / "q.npz")
    close(table, "mean", of_rows(work / "named.npz", [[0, 0, 0], [11, 6, 4]]))


def test_cli_predict_npz_of_indices_and_its_base(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tensor(SparseTensor.from_coo([[3, 2, 4]], [0.0], SHAPE), tmp_path / "q.npz")
    table = predictions(capsys, work / "plain.npz", tmp_path / "q.npz", "--index-base", 0)
    assert table.iloc[0, :3].tolist() == [3, 2, 4]
    close(table, "mean", load(work / "plain.npz").predict([[3, 2, 4]]))


def test_cli_predict_refuses_to_take_ranks_of_labels_for_rows(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tensor(simulated(labels=names()), tmp_path / "named.npz")
    assert cli("predict", work / "plain.npz", tmp_path / "named.npz") == 1
    assert "has labels, but the model was fitted to indices" in capsys.readouterr().err
    write_tensor(simulated(), tmp_path / "plain.npz")
    assert cli("predict", work / "named.npz", tmp_path / "plain.npz") == 1
    assert "has no labels, but the model knows its rows by labels" in capsys.readouterr().err


def test_cli_predict_index_base_0(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.csv").write_text("0,2,4\n3,0,0\n")
    table = predictions(capsys, work / "plain.npz", tmp_path / "q.csv", "--no-header", "--index-base", 0)
    close(table, "mean", load(work / "plain.npz").predict([[0, 2, 4], [3, 0, 0]]))
    assert table["mode_0"].tolist() == [0, 3]


def test_cli_predict_no_labels_takes_row_numbers(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.tns").write_text("1 2 3\n4 5 1\n")
    table = predictions(capsys, work / "named.npz", tmp_path / "q.tns", "--no-labels")
    close(table, "mean", of_rows(work / "named.npz", [[0, 1, 2], [3, 4, 0]]))


def test_cli_predict_chosen_columns(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.csv").write_text("note,third,second,first\nhello,5,3,4\n")
    table = predictions(capsys, work / "plain.npz", tmp_path / "q.csv", "--modes", "first,second,third")
    close(table, "mean", load(work / "plain.npz").predict([[3, 2, 4]]))


@pytest.mark.filterwarnings("default")
def test_cli_predict_unknown_label_gets_the_prior_and_a_warning(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'user,item,day\n"user 03, x",27,d4\nnobody,27,d4\n"user 03, x",n/a,d4\n'
    (tmp_path / "q.csv").write_text(text)
    assert cli("predict", work / "named.npz", tmp_path / "q.csv") == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"warning: 2 of 3 entries touch rows .* \(.*entry 1\); their prior is used\.\n", err)
    table = pd.read_csv(io.StringIO(out), keep_default_na=False)
    assert table["item"].tolist() == ["27", "27", "n/a"]
    # 27 is a number in the model although the column holds text too
    close(table.iloc[:1], "mean", of_rows(work / "named.npz", [[3, 2, 4]]))
    assert (table["sd"][1:] > table["sd"][0]).all()


def test_cli_predict_other_likelihoods(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for likelihood in ("probit", "poisson"):
        table = predictions(capsys, work / f"{likelihood}.npz", work / f"{likelihood}.tns")
        model, X = load(work / f"{likelihood}.npz"), simulated(likelihood).coords
        expected = {"probability": model.predict_proba(X)[:, 1]} if likelihood == "probit" else {}
        if likelihood == "poisson":
            expected = dict(zip(("mean", "sd"), model.predict(X, return_std=True), strict=True))
        expected["lower"], expected["upper"] = model.predict_interval(X, 0.9).T
        assert list(table.columns[3:]) == list(expected), likelihood
        for name, values in expected.items():
            close(table, name, values)


def test_cli_predict_file_holds_what_stdout_shows(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("predict", work / "named.npz", work / "named.csv")
    assert cli(*args) == 0
    shown = capsys.readouterr().out
    assert cli(*args, "-o", tmp_path / "p.csv") == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "p.csv").read_text() == shown


def test_cli_predict_column_that_is_called_mean_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = simulated(labels=[Labels(np.arange(12) / 3.0, name="mean"), None, None])
    write_tensor(tensor, tmp_path / "t.npz")
    assert cli("fit", tmp_path / "t.npz", "-o", tmp_path / "m.npz", *SMALL, "-q") == 0
    table = predictions(capsys, tmp_path / "m.npz", tmp_path / "t.npz")
    np.testing.assert_allclose(table["mean"], tensor.coords[:, 0] / 3.0, rtol=3e-16)  # as pandas reads them
    close(table, "predicted_mean", load(tmp_path / "m.npz").predict(tensor))
    assert table["mode_1"].tolist() == (tensor.coords[:, 1] + 1).tolist()


# evaluate


def own_scores(model: Any, tensor: Any) -> dict[str, float]:
    """Scores of the model's own predictive law and intervals."""
    y, X = tensor.values, tensor.coords
    intervals = {level: model.predict_interval(X, level).T for level in (0.5, 0.8, 0.95)}
    return metrics.evaluate_counts(y, model.predict(X), model.log_score(X, y), intervals)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson"])
def test_cli_evaluate_gives_and_draws_the_scores_of_the_likelihood(
    likelihood: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("matplotlib.image")
    name = "plain" if likelihood == "gaussian" else likelihood
    files = [work / f"{name}.npz", work / f"{name}.tns", "--json", "--figure", tmp_path / "fit.png"]
    assert cli("evaluate", *files) == 0
    found = json.loads(capsys.readouterr().out)
    model, tensor = load(work / f"{name}.npz"), simulated(likelihood)
    assert found.pop("entries") == tensor.nnz
    if likelihood == "probit":
        expected = metrics.evaluate_binary(tensor.values, model.predict_proba(tensor)[:, 1])
    elif likelihood == "gaussian":
        crps = metrics.crps_gaussian(tensor.values, *model.predict(tensor, return_std=True))
        expected = {"crps": crps, **own_scores(model, tensor)}
    else:
        expected = own_scores(model, tensor)
    assert found == pytest.approx(expected)
    height, width, _ = image.imread(tmp_path / "fit.png").shape
    assert width == (2 if likelihood == "gaussian" else 1) * height * 4 // 3


def test_cli_evaluate_takes_the_labels_of_the_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = simulated("probit")
    signs = SparseTensor.from_coo(tensor.coords, 2.0 * tensor.values - 1.0, SHAPE)
    write_tensor(signs, tmp_path / "signs.tns")
    assert cli("fit", tmp_path / "signs.tns", "-o", tmp_path / "m.npz", "--likelihood", "probit", "-q", *SMALL) == 0
    assert cli("evaluate", tmp_path / "m.npz", tmp_path / "signs.tns", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    p = load(tmp_path / "m.npz").predict_proba(tensor.coords)[:, 1]
    assert found["auc"] == pytest.approx(metrics.auc(tensor.values, p))


def test_cli_evaluate_table_and_named_columns(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("evaluate", work / "named.npz", work / "named.csv") == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    model, tensor = load(work / "named.npz"), simulated(labels=names())
    assert lines["entries"] == "300"
    assert lines["rmse"] == f"{metrics.rmse(tensor.values, model.predict(tensor)):.4f}"
    assert {"mae", "log_likelihood", "coverage_50", "coverage_80", "coverage_95"} <= set(lines)


def test_cli_evaluate_undefined_score_is_null_in_json(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ones.tns").write_text("1 1 1 1\n2 2 2 1\n")
    assert cli("evaluate", work / "probit.npz", tmp_path / "ones.tns", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["auc"] is None
    assert found["log_loss"] > 0


def test_cli_evaluate_counts_repeated_lines(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.tns").write_text("1 1 1 5\n1 1 1 5\n2 2 2 0.5\n")
    assert cli("evaluate", work / "plain.npz", tmp_path / "q.tns", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    mean = load(work / "plain.npz").predict([[0, 0, 0], [0, 0, 0], [1, 1, 1]])
    assert found["entries"] == 3
    assert found["rmse"] == pytest.approx(metrics.rmse([5, 5, 0.5], mean))


# info, convert, split, datasets


def test_cli_names_the_quicker_method_after_a_long_fit_by_default() -> None:
    assert hint_line("auto", "gibbs", 11.0) == "hint        --method vmp (mean field) takes a fraction of the time"
    assert "--method pg-vb" in str(hint_line("auto", "pg-gibbs", 30.0))
    assert (
        hint_line("auto", "gibbs", 9.0) is hint_line("gibbs", "gibbs", 90.0) is hint_line("auto", "cep", 90.0) is None
    )


def test_cli_info_of_entries(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("info", work / "named.csv") == 0
    assert capsys.readouterr().out == f"{simulated(labels=names()).info()}\nvalue    y\n"


def test_cli_info_of_a_model(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("info", work / "named.npz") == 0
    text = capsys.readouterr().out
    assert "CPRegressor, likelihood gaussian\n" in text
    assert "12 x 7 x 5; labels of user, item, day" in text
    assert "method      cep, rank 2, fixed prior; columns: 2 of all modes\n" in text
    assert "converged" in text
    assert re.search(
        r"^noise       standard deviation [\d.]+ \+- [\d.]+, of the approximate posterior$", text, re.MULTILINE
    )
    assert re.search(
        r"^score       -?[\d.]+, a constant -?[\d.]+ \(mean log score of training entries\)$", text, re.MULTILINE
    )
    assert cli("info", work / "poisson.npz") == 0
    text = capsys.readouterr().out
    assert "likelihood poisson" in text
    assert "indices, no labels" in text
    assert "noise" not in text


def test_cli_convert_keeps_entries_and_labels(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("convert", work / "named.csv", tmp_path / "x.npz") == 0
    assert capsys.readouterr().out.endswith(f"{simulated(labels=names())!r}\n")
    assert cli("convert", tmp_path / "x.npz", tmp_path / "y.csv", "-q") == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "y.csv").read_bytes() == (work / "named.csv").read_bytes()


def test_cli_convert_writes_as_asked(work: Path, tmp_path: Path) -> None:
    options = ["--out-index-base", 0, "--extended", "--shape", "12x7x9", "-q"]
    assert cli("convert", work / "plain.tns", tmp_path / "x.tns", *options) == 0
    text = (tmp_path / "x.tns").read_text().splitlines()
    assert text[1:3] == ["3 300", "12 7 9"]
    again = read_tensor(tmp_path / "x.tns", index_base=0)
    assert again.shape == (12, 7, 9)
    np.testing.assert_array_equal(again.coords, simulated().coords)
    assert cli("convert", work / "plain.tns", tmp_path / "x.csv", "--out-no-header", "-q") == 0
    assert read_tensor(tmp_path / "x.csv", header=False).nnz == 300


def test_cli_split_parts_the_entries_by_seed(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "train.tns", tmp_path / "test.tns"
    assert cli("split", work / "plain.tns", a, b, "--test-size", 0.25, "--seed", 3) == 0
    assert "225 entries" in capsys.readouterr().out
    train, test = simulated().train_test_split(0.25, random_state=3)
    np.testing.assert_array_equal(read_tensor(a).coords, train.coords)
    np.testing.assert_array_equal(read_tensor(b).coords, test.coords)
    np.testing.assert_array_equal(read_tensor(b).values, test.values)


LOG = """userId,movieId,"rating, stars",timestamp,note
7,m1,4.0,1100,"a, b"
7,m2,3.5,1000,=1+1
7,m3,5.0,1200,
8,m1,1.0,1300,x
8,m2,2.0,1050,-x
9,m3,3.0,900,+5
"""


def test_cli_split_keeps_header_columns_and_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, train, test = tmp_path / "log.csv", tmp_path / "train.csv", tmp_path / "test.csv"
    log.write_text(LOG)
    how = ["--value", "rating, stars", "--modes", "userId,movieId"]
    lines = LOG.splitlines()
    for by, held in (
        (["--by", "row", "--mode", "userId", "--times", "timestamp", "--test-size", 1], [3, 4]),
        (["--by", "time", "--times", "timestamp", "--test-size", 2], [3, 4]),
        (["--by", "time", "--times", "timestamp", "--test-size", 0.5], [1, 3, 4]),
    ):
        assert cli("split", log, train, test, *how, *by) == 0
        assert test.read_text().splitlines() == [lines[0], *(lines[n] for n in held)]
        assert train.read_text().splitlines() == [line for n, line in enumerate(lines) if n not in held]
    assert read_tensor(test, value="rating, stars", modes=["userId", "movieId"]).nnz == 3
    assert cli("split", log, train, test, *how, "--by", "group", "--mode", "userId", "--test-size", 1) == 0
    assert pd.read_csv(test)["userId"].nunique() == 1
    assert set(pd.read_csv(test)["userId"]).isdisjoint(pd.read_csv(train)["userId"])
    log.write_text(LOG + "7,m1,2.0,1400,bought again\n")
    assert cli("split", log, train, test, *how, "--by", "time", "--times", "timestamp", "--test-size", 1) == 0
    assert test.read_text().splitlines()[1:] == ["7,m1,2.0,1400,bought again"]
    assert cli("split", log, train, test, *how) == 1
    assert "occurs more than once" in capsys.readouterr().err
    log.write_text(LOG)
    # Other kinds of files have the value's name, parquet all columns.
    assert cli("split", log, train, tmp_path / "test.npz", *how, "--by", "row", "--mode", "userId", "-q") == 0
    assert train.read_text().splitlines()[0] == 'userId,movieId,"rating, stars"'
    pd.read_csv(log).to_parquet(tmp_path / "log.parquet")
    parts = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert cli("split", tmp_path / "log.parquet", *parts, *how, "--by", "time", "--times", "timestamp", "-q") == 0
    assert pd.read_parquet(parts[1])["timestamp"].tolist() == [1300]
    (tmp_path / "bare.csv").write_text("# c\n1,1,4,10\n1,2,3,20\n2,1,5,30\n")
    bare = ["split", tmp_path / "bare.csv", train, test, "--no-header", "--modes", "0,1", "--value", 2]
    assert cli(*bare, "--by", "time", "--times", 3, "--test-size", 1) == 0
    assert (train.read_text(), test.read_text()) == ("1,1,4,10\n1,2,3,20\n", "2,1,5,30\n")
    capsys.readouterr()
    assert cli("split", log, train, test, *how, "--by", "row", "--mode", "user") == 1
    assert cli("split", log, train, test, *how, "--by", "time") == 1
    assert cli("split", log, train, test, *how, "--by", "row", "--mode", "movieId", "--test-size", 4) == 1
    errors = capsys.readouterr().err.splitlines()
    assert "has no column 'user'; it has 'userId', 'movieId', 'rating, stars', 'timestamp', 'note'" in errors[0]
    assert errors[1].startswith("error: --by time needs --times: the mode that is the time")
    assert errors[2].startswith("error: no row has enough entries to hold out --test-size 4 of them and to keep one")


@each(
    ("separator", "coding", "kept"),
    [(";", "utf-8", ";"), ("\t", "utf-8", "\t"), ("|", "utf-16", "|"), ("::", "utf-8", ",")],
)
def test_cli_split_keeps_separators(tmp_path: Path, separator: str, coding: str, kept: str) -> None:
    lines = [["u", "i", "stars", "when"], ["a", "x", "1,5", "3"], ["b", "x", "2,5", "1"], ["b", "y", "4", "2"]]
    log, train, test = (tmp_path / name for name in ("log.csv", "train.csv", "test.csv"))
    log.write_text("\n".join(map(separator.join, lines)), coding)
    how = ["--value", "stars", "--modes", "u,i", "--decimal", ",", "--by", "time", "--times", "when", "--test-size", 1]
    assert cli("split", log, train, test, *how, "-q") == 0
    assert pd.read_csv(train, sep=kept, dtype=str).to_numpy().tolist() == lines[2:]
    assert pd.read_csv(test, sep=kept, dtype=str).to_numpy().tolist() == lines[1:2]


def test_cli_split_by_time_takes_lines_of_a_log_and_npz(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("host,port\na,1\na,1\nb,2\nb,1\n")
    parts = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert cli("split", tmp_path / "log.csv", *parts, "--count", "--by", "row", "--mode", "host", "--test-size", 1) == 0
    assert sorted(parts[1].read_text().splitlines()[1:])[0] == "a,1"
    write_tensor(simulated(labels=names()), tmp_path / "d.npz")
    parts = [tmp_path / "a.npz", tmp_path / "b.npz"]
    assert cli("split", tmp_path / "d.npz", *parts, "--by", "group", "--mode", "user", "--test-size", 2, "-q") == 0
    _, test = simulated(labels=names()).train_test_split(2, 0, by="group", mode="user")
    np.testing.assert_array_equal(read_tensor(parts[1]).values, test.values)


def test_cli_safe_csv_escapes_what_a_spreadsheet_would_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], work: Path
) -> None:
    odd = ["=1+1", "+a", "-b", "@c", "\td", "'e", "-5", "f=1"]
    safe = ["'=1+1", "'+a", "'-b", "'@c", "'\td", "'e", "-5", "f=1"]
    table = pd.DataFrame({"=user": odd * 2, "item": ["x"] * 8 + ["-y"] * 8, "y": np.arange(16.0) - 8})
    table.to_csv(tmp_path / "odd.csv", index=False)

    def labels(*args: object, column: str = "'=user") -> set[str]:
        capsys.readouterr()
        assert cli(*args) == 0
        text = capsys.readouterr().out if "-o" not in args else (tmp_path / "out.csv").read_text()
        return set(pd.read_csv(io.StringIO(text), dtype=str)[column])

    out = tmp_path / "out.csv"
    assert cli("convert", tmp_path / "odd.csv", out, "--safe-csv") == 0
    assert set(pd.read_csv(out)["'=user"]) == set(safe)
    assert cli("convert", tmp_path / "odd.csv", out) == 0
    assert set(pd.read_csv(out)["=user"]) == set(odd)
    assert cli("split", tmp_path / "odd.csv", out, tmp_path / "t.csv", "--safe-csv") == 0
    assert set(pd.read_csv(out, dtype=str)["'=user"]) | set(pd.read_csv(tmp_path / "t.csv")["'=user"]) == set(safe)
    model = tmp_path / "m.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CPRegressor(1, method="vmp", max_iter=3, random_state=0).fit(table, value="y").save(model)
    asked = [model, tmp_path / "odd.csv", "--safe-csv"]
    assert labels("predict", *asked) == labels("score", *asked) == labels("predict", *asked, "-o", out) == set(safe)
    assert labels("predict", *asked[:2], column="=user") == set(odd)
    assert labels("recommend", model, "--mode", "=user", "--all", "--safe-csv") == set(safe)
    assert labels("components", model, "--mode", "=user", "--safe-csv") == set(safe)
    stream = [
        "stream",
        tmp_path / "odd.csv",
        "-o",
        tmp_path / "s.npz",
        "--rank",
        1,
        "--safe-csv",
        "-q",
        "--scores",
        out,
    ]
    assert cli(*stream) == 0
    assert set(pd.read_csv(out, dtype=str)["'=user"]) == set(safe)


@each(("zeros", "n"), [("7", 7), ("2x", 48), ("0.5x", 12), ("all", 96)])
def test_cli_zeros_are_added_and_not_seen(
    zeros: str, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ones = SparseTensor.from_coo([[i, (i * 5 + j) % 10] for i in range(12) for j in (0, 3)], np.ones(24), (12, 10))
    write_tensor(ones, tmp_path / "ones.tns", extended=True)
    assert cli("convert", tmp_path / "ones.tns", tmp_path / "z.npz", "--zeros", zeros, "--seed", 3) == 0
    expected = ones.with_zeros(n, random_state=3)
    np.testing.assert_array_equal(read_tensor(tmp_path / "z.npz").coords, expected.coords)
    kept: list[Any] = []

    def fit(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        kept.append(X)
        raise FloatingPointError("enough")

    monkeypatch.setattr(ESTIMATORS["CPCountRegressor"], "fit", fit)
    how = ["--likelihood", "counts", "--seed", 3, "-q"]
    assert cli("fit", tmp_path / "ones.tns", "-o", tmp_path / "m.npz", "--zeros", zeros, *how) == 1
    np.testing.assert_array_equal(kept[0].coords, expected.coords)
    np.testing.assert_array_equal(kept[0].sampled, expected.sampled)
    for wrong, said in (("97", "at most the 96 cells without an entry; got 97"), ("99x", "got 2376")):
        capsys.readouterr()
        assert cli("fit", tmp_path / "ones.tns", "-o", tmp_path / "m.npz", "--zeros", wrong, *how) == 1
        assert said in capsys.readouterr().err
    for other in (["--exposure", "e"], ["--scratch", tmp_path], ["--model", "pca", "--likelihood", "gaussian"]):
        assert cli("fit", tmp_path / "ones.tns", "-o", tmp_path / "m.npz", "--zeros", zeros, *how, *other) == 1
        assert "--zeros" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli("fit", tmp_path / "ones.tns", "-o", tmp_path / "m.npz", "--zeros", "-3x")


def test_cli_datasets_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("datasets") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(tensorcep.datasets.CATALOGUE)
    assert "with TensorLy" in lines[-1]
    assert " MB, " in lines[0]


def test_cli_datasets_writes_one_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("datasets", "il2", "-o", tmp_path / "il2.csv") == 0
    assert "4,800 entries" in capsys.readouterr().out
    assert read_tensor(tmp_path / "il2.csv").shape == tensorcep.datasets.load_il2().shape
    assert cli("datasets", "il2") == 0
    assert "nothing to download" in capsys.readouterr().out


def test_cli_datasets_fetches_and_writes_published_parts(
    real_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("datasets", "enron") == 0
    shown = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert len(shown) == 10
    assert all(path.is_file() for path in shown)
    assert cli("datasets", "enron", "-o", tmp_path / "e.npz", "--fold", 2, "--part", "test") == 0
    np.testing.assert_array_equal(read_tensor(tmp_path / "e.npz").coords, tensorcep.datasets.load_enron(2).test.coords)


def test_cli_fits_predicts_and_evaluates_levels(tmp_path, capsys):
    rng = np.random.default_rng(3)
    X = np.stack(np.unravel_index(rng.choice(240, 180, replace=False), (16, 15)), axis=1)
    f = rng.standard_normal(16)[X[:, 0]] + rng.standard_normal(15)[X[:, 1]]
    stars = 1.0 + np.searchsorted([-1.0, 0.0, 1.0], f + rng.standard_normal(180))
    path, model = tmp_path / "stars.tns", tmp_path / "m.npz"
    write_tensor(SparseTensor.from_coo(X, stars, (16, 15)), path)
    options = ["--rank", 1, "--method", "vmp", "--max-iter", 30, "--tol", 0.1]
    assert cli("fit", path, "-o", model, *options) == 0
    assert "for levels such as stars --likelihood ordinal" in capsys.readouterr().out
    assert cli("fit", path, "-o", model, "--likelihood", "ordinal", *options) == 0
    assert "thresholds  0, " in capsys.readouterr().out
    table, fitted = predictions(capsys, model, path), load(model)
    assert list(table.columns)[2:] == [
        "level",
        "mean",
        "sd",
        "lower",
        "upper",
        *(f"probability_{k}" for k in range(1, 5)),
    ]
    np.testing.assert_allclose(table["mean"], fitted.expected_value(X), rtol=1e-6)
    np.testing.assert_array_equal(table["level"], fitted.predict(X))
    assert cli("evaluate", model, path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == pytest.approx(fitted.score(X, stars))
    assert found["log_likelihood"] == pytest.approx(fitted.log_score(X, stars).mean())
    assert {"rmse", "mae", "coverage_80"} <= set(found)
    with pytest.raises(SystemExit):
        cli("stream", path, "-o", model, "--likelihood", "ordinal")
    assert "invalid choice: 'ordinal'" in capsys.readouterr().err


def test_cli_offers_every_likelihood_that_an_estimator_offers():
    from tensorcep.cli.fit import ESTIMATOR_OF, kind_of
    from tensorcep.likelihoods import names_of

    offered = {name for kind in ("values", "labels", "counts") for name in names_of(kind)}
    # of counts the estimator chooses one, and levels are cut as each fit learns
    actions = build_parser()._subparsers._group_actions[0].choices["fit"]._actions  # type: ignore[union-attr, index, call-overload]
    action = next(action for action in actions if action.dest == "likelihood")
    words = offered | {"counts", "ordinal"}
    assert {action.type(word) for word in words} == words
    assert [word for word in words if f"{word}:" not in action.help and f"{word}," not in action.help] == []
    assert {kind_of(word) for word in words} == set(ESTIMATOR_OF)


def test_cli_and_help_offer_every_learned_prior() -> None:
    from tensorcep.cp.plan.spec import PRIORS

    parser = build_parser()._subparsers._group_actions[0].choices["fit"]  # type: ignore[union-attr, index, call-overload]
    offered = next(action.choices for action in parser._actions if action.dest == "prior")
    assert tuple(offered) == PRIORS
    assert all(f'"{name}"' in str(tensorcep.CPRegressor.__doc__) for name in PRIORS)


# Files that people have


@pytest.mark.filterwarnings("default")
@each("name", ["new.csv", "new.tsv", "new.parquet"])
def test_cli_rows_that_are_all_new_are_of_the_kind_of_the_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"s": rng.integers(1, 9, 60), "d": rng.integers(1, 7, 60) / 2, "t": rng.choice([*"abc"], 60)})
    frame = frame.drop_duplicates()
    frame.assign(y=rng.normal(size=len(frame))).to_csv("train.csv", index=False)
    new = pd.DataFrame({"s": [101, 102], "d": [50, 51.5], "t": ["7", "8"], "y": [0.5, 0.1]})
    if name == "new.parquet":
        new.assign(t=[7, 8]).to_parquet(name)
    else:
        new.to_csv(name, index=False, sep="\t" if name == "new.tsv" else ",")
    assert cli("fit", "train.csv", "-o", "m.npz", *SMALL, "--max-iter", 5, "-q") == 0
    for command in ("evaluate", "score", "predict"):
        capsys.readouterr()
        assert cli(command, "m.npz", name) == 0
        out, err = capsys.readouterr()
        assert command == "score" or "2 of 2 entries touch rows without training entries" in err
    with pytest.warns(UserWarning, match="without training entries"):
        expected = load("m.npz").predict(new[["s", "d", "t"]])
    close(pd.read_csv(io.StringIO(out)), "mean", expected)


@pytest.mark.filterwarnings("default")
@each(
    ("text", "options", "said"),
    [
        ("user\titem\tstars\nu\ti\t1\nv\ti\t2\n", (), "value    stars"),
        ("user^item^stars\nu^i^1\nv^i^2\n", ("--sep", "^"), "value    stars"),
        ("user;item;stars\nu;i;1,5\nv;i;2\n", ("--decimal", ","), "mean 1.75"),
        ("user,item,stars,when\nu,i,1,x\nv,i,,y\n", ("--value", "stars", "--modes", "user,item", "--drop-missing"),
         "entries  1"),
        ("user,item,stars\nä,i,1\nv,i,2\n".encode("latin1"), ("--encoding", "latin1"), "entries  2"),
        ("1\t2\t5\t881250949\n2\t1\t3\t891717742\n", ("--no-header", "--modes", "0,1", "--value", "2"), "max 5"),
    ],
)  # fmt: skip
def test_cli_reads_what_options_describe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, options: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert cli("info", path, *options) == 0
    assert said in capsys.readouterr().out
    assert cli("convert", path, tmp_path / "y.npz", *options) == 0
    assert cli("fit", path, "-o", tmp_path / "m.npz", *SMALL, "--max-iter", 2, "-v", *options) == 0
    for place in ((), ("--memory", "1GB")):
        assert cli("fit", path, "-o", tmp_path / "m.npz", *SMALL, "--max-iter", 2, "-q", *place, *options) == 0
        assert cli("evaluate", tmp_path / "m.npz", path, *options) == 0


@pytest.mark.filterwarnings("default")
def test_cli_warns_of_a_time_that_is_taken_for_the_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n1,2,4,964982703\n1,3,4.5,964981247\n2,2,3,964982224\n")
    assert cli("fit", path, "-o", tmp_path / "m.npz", *SMALL, "--max-iter", 2) == 0
    out, err = capsys.readouterr()
    assert "labels of userId, movieId, rating, value timestamp" in out
    assert "'timestamp', is taken for the value and is called like a time; name the one that is meant by --value" in err


@pytest.mark.filterwarnings("default")
@each(
    ("kind", "likelihood", "words", "options"),
    [
        ("csv", "logit", ["no", "yes"], ()),
        ("parquet", "probit", ["no", "yes"], ()),
        ("csv", "ordinal", ["low", "mid", "high"], ("--levels", "low,mid,high")),
        ("parquet", "ordinal", ["a", "b", "c"], ()),
    ],
)
def test_cli_labels_may_be_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    likelihood: str,
    words: list[str],
    options: tuple[str, ...],
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": np.arange(90) % 9 + 100, "item": np.arange(90) // 9})
    place = np.clip((frame["user"] - 99) * len(words) // 9 - (rng.random(90) < 0.2), 0, len(words) - 1)
    frame = frame.assign(answer=np.array(words)[place])
    frame.to_csv("x.csv", index=False) if kind == "csv" else frame.to_parquet("x.parquet")
    method = "pg-vb" if likelihood == "logit" else "vmp"
    how = [*SMALL[:2], "--method", method, *SMALL[4:], "--max-iter", 9, "--likelihood", likelihood]
    assert cli("fit", f"x.{kind}", "-o", "m.npz", *how, *options) == 0
    assert "value answer" in capsys.readouterr().out
    numbers = {"method": method, "max_iter": 9, "random_state": 0}
    y = pd.Categorical(frame["answer"], words, ordered=True) if options else frame["answer"].to_numpy()
    own: Any = ESTIMATORS["CPOrdinalClassifier" if likelihood == "ordinal" else "CPClassifier"]
    own = own(**{**PARAMETERS, **numbers}, **({} if likelihood == "ordinal" else {"link": likelihood}))
    own.fit(frame[["user", "item"]], y)
    capsys.readouterr()
    assert load("m.npz").classes_.tolist() == own.classes_.tolist() == words
    assert cli("predict", "m.npz", f"x.{kind}") == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    close(table, f"probability_{words[-1]}", own.predict_proba(frame[["user", "item"]])[:, -1])
    assert cli("evaluate", "m.npz", f"x.{kind}", "--json") == 0
    accuracy = (own.predict(frame[["user", "item"]]) == frame["answer"]).mean()
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(accuracy)
    assert cli("score", "m.npz", f"x.{kind}") == 0
    assert "surprise" in capsys.readouterr().out


@each("kind", ["csv", "parquet"])
def test_cli_words_are_learned_as_their_numbers_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    cells = rng.permutation(90)
    frame = pd.DataFrame({"user": cells % 9 + 100, "item": cells // 9})
    y = np.clip((frame["user"] - 99) * 2 // 9 - (rng.random(90) < 0.2), 0, 1).to_numpy()
    first = int(np.argmax(y != y[0]))  # entry of the other class
    for name, values in (("words", np.array(["no", "yes"])[y]), ("numbers", y)):
        for part, rows in (("train", range(70)), ("test", range(70, 90))):
            table = frame.assign(answer=values).iloc[rows]
            table.to_csv(f"{name}-{part}.csv", index=False)
            table.to_parquet(f"{name}-{part}.parquet") if kind == "parquet" else None
    how = ["--likelihood", "probit", "--tol", 0.02]
    found: dict[str, Any] = {}
    for name in ("words", "numbers"):
        train, test = f"{name}-train.{kind}", f"{name}-test.{kind}"
        assert cli("compare", train, test, "--rank", 1, "--methods", "vmp", "-o", "c.csv", *how) == 0
        ranks = ["--ranks", "1,2", "--cv", 2, "--method", "vmp", "--model", f"{name}.npz"]
        assert cli("select-rank", train, *ranks, "-o", "r.csv", *how) == 0
        batches = ["--first-batch", 30, "--batch-size", 20, "--trace", "t.csv"]
        assert cli("stream", train, "-o", f"{name}-s.npz", "--rank", 1, *batches, *how) == 0
        tables = [pd.read_csv(file).drop(columns="seconds", errors="ignore") for file in ("c.csv", "r.csv", "t.csv")]
        tables[0] = tables[0].drop(columns="peak_mb")
        models = [load(f"{name}{which}.npz") for which in ("", "-s")]
        found[name] = [*tables, *(pd.DataFrame(model.predict_proba(frame[["user", "item"]])) for model in models)]
    assert [load(f"words{which}.npz").classes_.tolist() for which in ("", "-s")] == [["no", "yes"]] * 2
    for ours, theirs in zip(found["words"], found["numbers"], strict=True):
        pd.testing.assert_frame_equal(ours, theirs)
    capsys.readouterr()
    other = "no word as in other lines" if kind == "parquet" else "got 4 different ones, such as '0', '1', 'no'"
    refused = [
        (["compare", f"words-train.{kind}", f"numbers-test.{kind}"], "must hold the words 'no' and 'yes'; got numbers"),
        (["stream", f"words-train.{kind}", "-o", "x.npz", "--first-batch", first], "the first batch must have both"),
        (["stream", f"words-train.{kind}", f"numbers-test.{kind}", "-o", "x.npz"], other),
    ]
    for words, message in refused:
        assert cli(*words, *how) == 1
        assert message in capsys.readouterr().err
    missing = pd.read_csv("words-train.csv")
    missing.loc[[5, 40], "answer"] = None
    missing.to_csv("gap.csv", index=False) if kind == "csv" else missing.to_parquet("gap.parquet")
    assert cli("stream", f"gap.{kind}", "-o", "gap.npz", *batches, *how) == 1
    assert " or mend it" in capsys.readouterr().err or kind == "parquet"
    Path("gap.npz").unlink(missing_ok=True)
    assert cli("stream", f"gap.{kind}", "-o", "gap.npz", "--drop-missing", *batches, *how) == 0
    assert "learned     68 entries in 3 batches" in capsys.readouterr().out


def test_cli_negative_numbers_may_have_exponents() -> None:
    words = build_parser().parse_args(["fit", "a.csv", "-o", "a.npz", "--lower-limit", "-1.5e-3"])
    assert float(words.lower_limit) == -1.5e-3


SAID = [
    ("name them by modes= and value=.", "name them by --modes and --value."),
    ("pass drop_missing=True to leave them out.", "pass --drop-missing to leave them out."),
    ("pass header=False.", "pass --no-header."),
    ("pass index_base=0 if this file counts from 0.", "pass --index-base 0 if this file counts from 0."),
    ('pass decimal="," if that is its sign.', 'pass --decimal "," if that is its sign.'),
    ("pass duplicates='mean', 'sum' or 'last' to merge.", "pass --duplicates mean, sum or last to merge."),
    ("the labels=False and value=None of it.", "the --no-labels and --count of it."),
    ("increase max_iter, raise tol, or add damping.", "increase --max-iter, raise --tol, or add --damping."),
    ("labels must be distinct.", "labels must be distinct."),
    ("n_jobs must be an integer.", "--threads must be an integer."),
    ("rank must be an integer, not the rank of 3.", "--rank must be an integer, not the rank of 3."),
    ("a rank of 'max_iter=3' in the column 'max_iter'.", "a rank of 'max_iter=3' in the column 'max_iter'."),
    (InvalidParameter("method", "em", "be one of 'cep', 'pg-vb'"), "--method must be one of cep, pg-vb; got 'em'."),
    (
        InvalidParameter("order", 3, "be below max_iter", "raise max_iter"),
        "order must be below --max-iter; got 3; raise --max-iter.",
    ),
]


def test_cli_says_options_for_parameters() -> None:
    parser = build_parser().parse_args(["fit", "a.csv", "-o", "a.npz"]).parser
    told = {str(error): sentence_of(error, parser) for error, _ in SAID}
    assert told == {str(error): said for error, said in SAID}
