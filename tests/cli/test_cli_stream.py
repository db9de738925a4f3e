"""`tensorcep stream` in processes of its own: files, checkpoints, resuming, malformed lines, wrong use."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import itertools
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.source_graph import ROOT

import tensorcep as tc
from tensorcep.cli.cells import Witness, digests_of_files
from tensorcep.cli.main import main
from tensorcep.core.persist.archive import write_archive
from tensorcep.core.persist.models import KIND, VERSION, open_model
from tensorcep.cp.estimators import base

OPTIONS = ["--rank", "2", "--batch-size", "50", "--checkpoint-every", "2", "--seed", "3", "--tol", "0.01"]
WRITTEN = ("model.npz", "aside.csv", "trace.csv", "scores.csv")
SIDES = ["--bad-lines", *WRITTEN[1:2], "--trace", *WRITTEN[2:3], "--scores", *WRITTEN[3:]]


def command(*extra: str) -> list[str]:
    return ["stream", "data.csv", "-o", WRITTEN[0], *SIDES, *OPTIONS, *extra]


def contents() -> list[bytes]:
    return [Path(name).read_bytes() for name in WRITTEN]


def write_data() -> None:
    """A csv of 300 entries with labels and two malformed lines."""
    tensor = tc.simulate_cp((8, 7, 6), 2, 300, noise_precision=25.0, prior_mean=0.7, random_state=0).tensor
    lines = ["user,item,week,y"]
    for n, ((i, j, k), v) in enumerate(zip(tensor.coords, tensor.values, strict=True)):
        lines += ["only,three,fields"] if n in (70, 290) else []
        lines.append(f"u{i},v{j},w{k},{float(v)!r}")
    Path("data.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of entries, in the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    write_data()
    return tmp_path / "data.csv"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """What a run writes, the whole one, and one that was killed after the first 2 of 6 batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("learned"))
        write_data()
        text = Path("data.csv").read_text().splitlines(keepends=True)
        assert main(command("--quiet")) == 0
        whole = contents()
        for name in WRITTEN:
            Path(name).unlink()
        Path("data.csv").write_text("".join(text[:102]))
        assert main(command("--quiet")) == 0
        return {"whole": whole, "half": contents()}


@pytest.fixture
def whole(data: Path, learned: dict[str, list[bytes]]) -> list[bytes]:
    """The files of a whole run, beside the entries."""
    return put(learned["whole"])


@pytest.fixture
def half(data: Path, learned: dict[str, list[bytes]]) -> list[bytes]:
    """The files of a run that was killed, beside all entries."""
    return put(learned["half"])


def put(files: list[bytes]) -> list[bytes]:
    for name, content in zip(WRITTEN, files, strict=True):
        Path(name).write_bytes(content)
    return files


def remove() -> None:
    for name in WRITTEN:
        Path(name).unlink()


def test_cli_stream_equals_the_library(data, capsys):
    assert main(command()) == 0
    out, err = capsys.readouterr()
    assert "learned     300 entries in 6 batches" in out
    assert "line 72 of 'data.csv' has 3 fields where 4 are expected" in err
    assert Path("aside.csv").read_text() == "only,three,fields\n" * 2
    model = tc.load("model.npz")
    good = [line for line in data.read_text().splitlines() if line.count(",") == 3]
    Path("good.csv").write_text("\n".join(good) + "\n")
    same = tc.CPRegressor(2, random_state=3, tol=0.01).stream("good.csv", batch_size=50)
    np.testing.assert_array_equal(model.posterior_.eta, same.posterior_.eta)
    assert list(model.labels_[0]) == list(same.labels_[0])
    trace = np.genfromtxt("trace.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(trace["log_score"], same.stream_trace_["log_score"])
    scores = pd.read_csv("scores.csv")  # every entry once
    assert scores[["user", "item", "week"]].equals(pd.read_csv("good.csv")[["user", "item", "week"]])
    np.testing.assert_allclose(-scores["surprise"][50:100].mean(), trace["log_score"][1], rtol=1e-6)
    assert scores["mean"].isna().sum() == 50


def test_cli_stream_model_serves_evaluate_and_info(data, whole, capsys):
    Path("test.csv").write_text("\n".join(data.read_text().splitlines()[:30]) + "\n")
    assert main(["evaluate", "model.npz", "test.csv"]) == 0
    assert "rmse" in capsys.readouterr().out
    assert main(["info", "model.npz"]) == 0
    assert "CPRegressor" in capsys.readouterr().out


@pytest.mark.parametrize("extra", [(), ("--revisit", "60", "--forget", "0.01")])
def test_cli_stream_resumed_after_an_interruption_ends_with_the_same_bytes(whole, monkeypatch, capsys, extra):
    """The run ends in the middle of a batch, after lines and scores that no checkpoint holds were written."""
    remove()
    if extra:
        assert main(command("--quiet", *extra)) == 0
        whole = contents()
        remove()
    learned = base.learn_arrival

    def interrupted(spec, fit, *given):
        if fit is not None and fit.n_batches == 5:
            raise KeyboardInterrupt
        return learned(spec, fit, *given)

    with monkeypatch.context() as patch:
        patch.setattr(base, "learn_arrival", interrupted)
        assert main(command("--quiet", *extra)) == 130
    assert open_model("model.npz").header["fitted"]["n_batches"] == 4
    with open("trace.csv", "ab") as handle:
        handle.write(b"a torn li")
    assert main(command("--resume", *extra)) == 0
    assert "resumed     after 200 entries, 4 batches" in capsys.readouterr().out
    assert contents() == whole
    assert main(command("--quiet", "--resume", *extra)) == 0  # nothing is left to learn
    assert contents() == whole


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_cli_stream_killed_and_resumed_ends_with_the_same_bytes(whole):
    remove()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "tensorcep", *command("--quiet")], env=environment)
    while not Path("model.npz").exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(command("--quiet", "--resume")) == 0
    assert contents() == whole


def test_cli_stream_of_standard_input_equals_that_of_the_file(data, whole, monkeypatch):
    arguments = ["stream", "-", *command("--quiet")[2:]]
    arguments[arguments.index("model.npz")] = "piped.npz"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.read_bytes())))
    assert main(arguments) == 0
    np.testing.assert_array_equal(tc.load("piped.npz").posterior_.eta, tc.load("model.npz").posterior_.eta)
    assert contents()[1:] == whole[1:]


def test_cli_stream_stops_at_a_malformed_line_unless_it_may_set_it_aside(data, capsys):
    assert main(["stream", "data.csv", "-o", "model.npz", *OPTIONS]) == 1
    assert "line 72 of 'data.csv' has 3 fields" in capsys.readouterr().err
    assert not Path("model.npz").exists()


WRONG = [
    (["--batch-size", "0"], "--batch-size must be an integer >= 1; got 0"),
    (["--checkpoint-every", "0"], "--checkpoint-every must be an integer >= 1; got 0"),
    (["--forget", "1"], "--forget must be a number in [0, 1)"),
    (["--revisit", "-1"], "--revisit must be an integer >= 0; got -1"),
    (["--revisit", "5", "--method", "vmp"], "--revisit is for --method cep; got vmp"),
    (["--trace", "aside.csv"], "must be different files"),
    (["--scores", "trace.csv"], "must be different files"),
    (["-o", "-"], "a stream writes files only"),
    (["-o", "data.csv"], "is an input of this command"),
    (["--zeros", "3x"], "to a file by tensorcep convert --zeros N"),
    (["--zeros", "3x", "--model", "pca"], "--zeros is for --model cp; got pca"),
]


def test_cli_stream_refuses_wrong_options(data, capsys):
    before = data.read_bytes()
    for extra, sentence in WRONG:
        assert main(command(*extra)) == 1, extra
        assert sentence in capsys.readouterr().err
        assert data.read_bytes() == before, extra


def test_cli_stream_neither_overwrites_nor_resumes_what_does_not_fit(whole, capsys):
    refused = [
        ((), "'model.npz' exists; give --resume"),
        (("--resume", "--batch-size", "60"), "was made with --batch-size 50; got 60"),
        (("--resume", "--revisit", "9"), "was made with --revisit 0; got 9"),
        (("--resume", "--rank", "3"), "was made with --rank 2; got 3"),
        (("--resume", "--likelihood", "probit"), "holds a CPRegressor"),
        (("--resume", "--sep", ","), "was made with --sep None; got ','"),
        (("--resume", "--encoding", "latin1"), "was made with --encoding None; got 'latin1'"),
        (("--resume", "--decimal", ","), "was made with --decimal '.'; got ','"),
        (("--resume", "--modes", "user,item"), "was made with --modes None; got ['user', 'item']"),
        (("--resume", "--value", "y"), "was made with --value 'last column'; got 'y'"),
    ]
    for extra, sentence in refused:
        assert main(command(*extra)) == 1
        assert sentence in capsys.readouterr().err
    assert contents() == whole
    Path("trace.csv").write_text("short")
    assert main(command("--resume")) == 1
    assert "'trace.csv' must hold" in capsys.readouterr().err
    tc.CPRegressor(1).fit(np.zeros((1, 2), dtype=int), [1.0]).save("fitted.npz")
    assert main(["stream", "data.csv", "-o", "fitted.npz", "--resume"]) == 1
    assert "is no checkpoint of a stream" in capsys.readouterr().err


CHANGED = {
    "reversed": (lambda lines: [lines[0], *lines[:0:-1]], "has other lines among the first 102 than were learned"),
    "one digit": (lambda lines: [*lines[:9], lines[9].replace("u", "u1"), *lines[10:]], "has other lines among the"),
    "half": (lambda lines: lines[:52], "has 52 lines where 102 were learned"),
    "empty": (lambda lines: lines[:1], "has 1 lines where 102 were learned"),
}


def test_cli_stream_resumes_only_with_the_input_that_it_learned(data, half, capsys):
    good = data.read_text().splitlines(keepends=True)
    for case, (change, sentence) in CHANGED.items():
        data.write_text("".join(change(good)))
        assert main(command("--resume")) == 1, case
        assert f"'data.csv' {sentence}" in capsys.readouterr().err, case
        assert contents() == half, case
    data.write_text("".join(good).rstrip("\n"))
    assert main(command("--resume", "--quiet")) == 0
    assert tc.load("model.npz").n_samples_seen_ == 300


def test_cli_stream_resumes_with_lines_that_were_mended_or_added_since(data, capsys):
    lines = data.read_text().splitlines()
    stop = [word for word in command("--quiet", "--resume") if word not in ("--bad-lines", "aside.csv")]
    good = [line for line in lines if line.count(",") == 3]
    data.write_text("\n".join(good[:101]))  # the last line has no end yet
    assert main(stop) == 0
    data.write_text("\n".join([*good[:200], "a line to mend"]))
    assert main(stop) == 1
    assert "has 1 fields" in capsys.readouterr().err
    data.write_text("\n".join(good))
    assert main(stop) == 0
    assert tc.load("model.npz").n_samples_seen_ == 300


def test_cli_stream_resumes_a_checkpoint_that_does_not_know_its_input(half):
    with np.load("model.npz") as archive:
        content = {name: archive[name] for name in archive.files}
    header = json.loads(content["header"].tobytes())
    assert header["progress"].pop("read")[0][0] == 102
    assert header["progress"].pop("reading")["decimal"] == "."
    header.pop("checksum")
    np.savez("model.npz", **{**content, "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)})
    assert main(command("--resume", "--quiet")) == 0
    assert tc.load("model.npz").n_samples_seen_ == 300


def test_cli_stream_of_several_files_knows_each(data, capsys):
    pytest.importorskip("pyarrow")
    good = [line for line in data.read_text().splitlines() if line.count(",") == 3]
    for name, part in (("a.csv", good[1:81]), ("b.csv", good[81:201])):
        Path(name).write_text("\n".join([good[0], *part]) + "\n")
    pd.read_csv("b.csv").to_parquet("c.parquet")
    run = ["stream", "a.csv", "b.csv", "c.parquet", "-o", "model.npz", *OPTIONS, "--quiet"]
    assert main(run) == 0
    read = open_model("model.npz").header["progress"]["read"]
    assert [count for count, _ in read] == [81, 121, 1]
    whole = Path("model.npz").read_bytes()
    assert main([*run, "--resume"]) == 0
    assert Path("model.npz").read_bytes() == whole
    for name in ("a.csv", "c.parquet"):
        before = Path(name).read_bytes()
        if name == "a.csv":
            Path(name).write_bytes(before.replace(b"u1", b"u2"))
        else:
            pd.read_csv("a.csv").to_parquet(name)
        assert main([*run, "--resume"]) == 1
        assert f"'{name}' has other lines" in capsys.readouterr().err
        Path(name).write_bytes(before)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_cli_stream_names_the_file_that_is_full(data, capsys):
    assert main(["stream", "data.csv", "-o", "model.npz", *OPTIONS, "--bad-lines", "/dev/full"]) == 1
    assert capsys.readouterr().err.endswith("error: No space left on device: '/dev/full'\n")


def test_cli_stream_names_the_model_that_does_not_fit(data, capsys, monkeypatch):
    def full(handle, **arrays):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(np, "savez", full)
    assert main(command()) == 1
    assert capsys.readouterr().err.endswith("error: File too large: 'model.npz'\n")


def test_cli_messages_escape_what_a_terminal_obeys(data, capsys):
    Path("data.csv").write_bytes(b"a,b,y\n1,2,\x1b[2J\x9b\x07\xff\n")
    assert main(["stream", "data.csv", "-o", "model.npz", *OPTIONS]) == 1
    err = capsys.readouterr().err
    assert err.rstrip("\n").isprintable()
    assert main(["info", "no\x1b[2Jne.csv"]) == 1
    assert "'no\\x1b[2Jne.csv'" in capsys.readouterr().err


def test_cli_tables_and_names_of_files_command_no_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{a},{b},{i}" for i, (a, b) in enumerate(itertools.product(("\x1b[2Ja", "b", "c"), ("x", "y", "z")))]
    Path("da\x1b[2Jta.csv").write_text("\n".join(["u,i,y", *rows]))
    assert main(["convert", "da\x1b[2Jta.csv", "o\x1b[2Jut.npz"]) == 0
    assert main(["fit", "o\x1b[2Jut.npz", "-o", "m\x1b[2J.npz", "--method", "vmp", "--rank", "1"]) == 0
    told, _ = capsys.readouterr()
    assert r"m\x1b[2J.npz" in told
    assert all(line.isprintable() for line in told.split("\n"))
    asked = ["components", "m\x1b[2J.npz", "--mode", "u"]
    assert main(asked) == 0
    assert "\x1b[2Ja" in capsys.readouterr().out  # to another program, as it is
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert r"\x1b[2Ja" in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_cli_commands_say_the_same_of_a_file_that_is_no_text(whole, capsys):
    Path("query.csv").write_bytes(b"\x8a\x00\x01,1\n\xfe,2")
    commands = [["predict", "model.npz", "query.csv"], ["evaluate", "model.npz", "query.csv"], ["info", "query.csv"]]
    said = set()
    for given in [*commands, ["fit", "query.csv", "-o", "other.npz"]]:
        assert main(given) == 1
        said.add(capsys.readouterr().err)
    assert len(said) == 1
    assert "line 1 of 'query.csv' is not UTF-8 text; convert the file" in said.pop()


def test_cli_stream_refuses_a_checkpoint_whose_progress_makes_no_sense(whole, capsys):
    stored = open_model("model.npz")
    header = {name: value for name, value in stored.header.items() if name not in ("kind", "version", "checksum")}
    for change in ({"trace": None}, {"position": [-1, 0]}, {"bad": "x"}, {"read": [[1]]}, {"reading": 3}):
        progress = {name: value for name, value in {**header["progress"], **change}.items() if value is not None}
        write_archive("model.npz", KIND, VERSION, {**header, "progress": progress}, stored.arrays)
        assert main(command("--resume")) == 1, change
        assert "'model.npz' is not a complete model (" in capsys.readouterr().err, change


ACCENTED = "a,b,y\nä,v,1\n"
TEXTS = [b"a,b,y\nu,v,1\n", b"a,b,y\nu,v,1", b"a,b,y\r\nu,v,1\r\n", b"\n\n"]
TEXTS += [ACCENTED.encode(name) for name in ("utf-8", "utf-8-sig", "latin1", "utf-16")]


@each("text", TEXTS)
def test_cli_checksums_of_whole_files_are_those_of_their_lines(text, tmp_path):
    (tmp_path / "a.csv").write_bytes(text)
    for packer in (gzip, bz2, lzma):
        (tmp_path / f"a.csv.{packer.__name__}").write_bytes(packer.compress(text))
    paths = [str(tmp_path / name) for name in ("a.csv", "a.csv.gzip", "a.csv.bz2", "a.csv.lzma")]
    digests, whole = digests_of_files(paths, "csv"), Witness(paths[:1], None).until(1, 0)[0]
    assert [digest[1:] for digest in digests] == [whole] * 4
    assert Witness(paths, "csv").until(4, 0) == [whole] * 4


def write_new(path: str, user: str = "u99") -> pd.DataFrame:
    """A file of 40 entries, some of them of a user who was not there."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"week": "w1", "user": [f"u{i}" for i in rng.integers(8, size=40)]})
    table["item"] = [f"v{i}" for i in rng.integers(7, size=40)]
    table.loc[:4, "user"] = user
    table["y"] = rng.normal(size=40).round(3)
    table.to_csv(path, index=False)
    return table


def test_cli_update_scores_the_next_file_and_learns_it(data, whole, capsys, monkeypatch):
    table, model = write_new("new.csv"), tc.load("model.npz")
    expected = model.anomaly_score(table[["user", "item", "week"]], table["y"])
    model.partial_fit(table[["user", "item", "week"]], table["y"])
    assert main(["update", "model.npz", "new.csv", "--scores", "next.csv"]) == 0
    assert "learned     40 entries, 340 in all\nrows        9 x 7 x 6\n" in capsys.readouterr().out
    scores = pd.read_csv("next.csv")
    np.testing.assert_allclose(scores["surprise"], expected["surprise"], rtol=1e-6)
    assert scores["unseen"].tolist() == [True] * 5 + [False] * 35
    after = tc.load("model.npz")
    np.testing.assert_array_equal(after.posterior_.eta, model.posterior_.eta)
    assert after.labels_[0].index[-1] == "u99"
    before = Path("model.npz").read_bytes()
    Path("other.csv").write_bytes(Path("new.csv").read_bytes())
    for names in (["new.csv"], ["other.csv"], ["data.csv"]):
        assert main(["update", "model.npz", *names]) == 1
    err = capsys.readouterr().err
    assert (
        "error: 'new.csv' was learned already (41 lines with the same checksum); leave it out, or give --again" in err
    )
    assert "error: 'other.csv' was learned already as 'new.csv'" in err
    assert "error: 'data.csv' was learned already (303 lines" in err
    with monkeypatch.context() as patch:
        patch.setattr(tc.CPRegressor, "partial_fit", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        write_new("more.csv", "u7")
        assert main(["update", "model.npz", "more.csv"]) == 130
    assert Path("model.npz").read_bytes() == before
    assert main(command("--resume")) == 1
    assert "is no checkpoint of a stream; learn further files by tensorcep update" in capsys.readouterr().err
    assert main(["update", "model.npz", "new.csv", "more.csv", "--again", "-q"]) == 0
    assert tc.load("model.npz").n_samples_seen_ == 420
    assert main(["update", "model.npz", "new.csv", "-q"]) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_cli_update_goes_on_from_a_fit_and_keeps_the_kind_of_its_labels(data, capsys):
    table = write_new("old.csv").drop_duplicates(["user", "item", "week"])
    for name, cut in (("user", "u"), ("item", "v"), ("week", "w")):
        table[name] = table[name].str.removeprefix(cut)
    table.iloc[:25].to_csv("old.csv", index=False)
    table.iloc[25:].to_csv("new.csv", index=False)
    assert main(["fit", "old.csv", "-o", "fit.npz", "--rank", "1", "--method", "cep", "--tol", "1e9", "-q"]) == 0
    assert main(["stream", "old.csv", "-o", "stream.npz", "--rank", "1", "-q"]) == 0
    for model, kind in (("fit.npz", int), ("stream.npz", str)):
        assert main(["update", model, "old.csv"]) == 1
        assert "'old.csv' was learned already" in capsys.readouterr().err
        assert main(["update", model, "new.csv", "-q"]) == 0
        after = tc.load(model)
        assert after.n_samples_seen_ == len(table)
        assert {type(label) for known in after.labels_ for label in known.index.tolist()} == {kind}


def test_cli_files_keep_the_name_of_the_values_and_streams_of_matrices_refuse_limits(tmp_path, capsys):
    path, train, test, out = (str(tmp_path / name) for name in ("a.csv", "train.csv", "test.csv", "b.csv"))
    Path(path).write_text("user,item,units\nu,v,1\nu,w,\nx,v,2\nx,w,3\n")
    assert main(["split", path, train, test, "--drop-missing"]) == 0
    assert main(["convert", path, out, "--drop-missing"]) == 0
    assert {Path(file).read_text().splitlines()[0] for file in (train, test, out)} == {"user,item,units"}
    capsys.readouterr()
    assert main(["stream", out, "-o", str(tmp_path / "m.npz"), "--model", "pca", "--lower-limit", "0"]) == 1
    assert "--lower-limit is for --model cp; got pca; leave it out" in capsys.readouterr().err
