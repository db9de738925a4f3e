"""What the fuzzer calls with a damaged file, and what it may answer: a result, or one sentence of ours."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from scripts.lib.fuzz.changes import Rng, in_archive, in_bytes, in_table, in_tree, pick
from scripts.lib.fuzz.seeds import SEPARATORS, STREAM
from tensorcep.cli.main import main
from tensorcep.core.checks import INFINITE
from tensorcep.entries.io import read_batches

Files = dict[str, bytes]
# Raised by us these are refusals; their subclasses are errors of other libraries that nobody put into words.
OURS = (ValueError, TypeError)
PACKAGE = os.path.dirname(os.path.abspath(tc.__file__))
LONGEST = 2000  # characters of a sentence


def fault_of(error: BaseException) -> str | None:
    """What is wrong with an error; None for one of ours."""
    place = traceback.extract_tb(error.__traceback__)[-1].filename
    sentence = str(error)
    ours = type(error) in OURS or type(error).__module__.startswith("tensorcep.")
    if not ours and not isinstance(error, OSError):
        return f"{type(error).__name__}: {sentence[:200]}"
    if not isinstance(error, OSError) and not os.path.abspath(place).startswith(PACKAGE):
        return f"{type(error).__name__} raised in {os.path.basename(place)}: {sentence[:200]}"
    if not sentence or "\n" in sentence.strip() or len(sentence) > LONGEST:
        return f"{type(error).__name__} that is not one sentence: {sentence[:200]!r}"
    return None


class Caught:
    """A block whose exception, but for what ends a program, is kept and goes no further."""

    error: BaseException | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, where: Any) -> bool:
        self.error = error
        return isinstance(error, Exception)


def attempt(call: Callable[[], Any]) -> tuple[Any, str | None]:
    """What a call gives, or None and the fault of the error that it raised."""
    found = None
    with Caught() as caught:
        found = call()
    return found, None if caught.error is None else fault_of(caught.error)


def damaged_tensor(rng: Rng, files: Files) -> tuple[str, bytes]:
    """A damaged file of entries."""
    name = pick(rng, list(files))
    data = files[name]
    kind = name.split(".")[1]
    if kind == "npz":
        return name, in_archive(rng, data)
    if kind == "parquet":
        return name, _in_parquet(rng, data)
    if name.endswith(".gz") or rng.random() < 0.2:
        return name, in_bytes(rng, data)
    return name, in_table(rng, data.decode(), SEPARATORS[kind]).encode()


def _in_parquet(rng: Rng, data: bytes) -> bytes:
    """Other bytes, or a table whose description of itself was changed."""
    if rng.random() < 0.5:
        return in_bytes(rng, data)
    import json

    import pyarrow.parquet as pq

    table, found = pq.read_table(io.BytesIO(data)), io.BytesIO()
    said = json.loads(table.schema.metadata[b"pandas"])
    text = json.dumps(in_tree(rng, said)).encode()
    pq.write_table(
        table.replace_schema_metadata({"pandas": in_bytes(rng, text) if rng.random() < 0.3 else text}), found
    )
    return found.getvalue()


def read(rng: Rng, files: Files, folder: str) -> str | None:
    """Read a damaged file of entries, whole and in batches."""
    name, data = damaged_tensor(rng, files["tensors"])  # type: ignore[arg-type]
    path = _put(folder, name, data)
    numbers = rng.random() < (0.9 if name.startswith("1") else 0.2)
    how: dict[str, Any] = {"labels": False if numbers else pick(rng, [None, None, True]), "header": not numbers}
    how |= {"index_base": int(rng.integers(2))} if rng.random() < 0.3 else {}
    how |= {"modes": pick(rng, [["user", "item"], [0, 1], ["user"], []])} if rng.random() < 0.1 else {}
    how |= {"value": pick(rng, ["y", "user", 3])} if rng.random() < 0.1 else {}
    whole, fault = attempt(lambda: tc.read_tensor(path, **how))
    if fault is not None or ".npz" in name:
        return fault
    pieces, fault = attempt(lambda: list(read_batches(path, int(pick(rng, [1, 3, 1000])), **how)))
    if fault is None and whole is not None and pieces is not None:
        numbers_of = [np.sort(np.concatenate([piece.values for piece in pieces])), np.sort(whole.values)]
        if not np.array_equal(*numbers_of):
            return "read_tensor and read_batches read other values"
    return fault


def load(rng: Rng, files: Files, folder: str) -> str | None:
    """Load a damaged model, and ask it something if it loads."""
    name = pick(rng, list(files["models"]))  # type: ignore[arg-type]
    path = _put(folder, f"{name}.npz", in_archive(rng, files["models"][name]))  # type: ignore[index]
    model, fault = attempt(lambda: tc.load(path))
    return _asked(model) if model is not None else fault


def _asked(model: Any) -> str | None:
    X = np.array([[0, 0, 0], [1, 1, 1]])
    answers: dict[str, Callable[[], Any]] = {}
    if hasattr(model, "labels_"):
        named: Any = X
        if model.labels_[0] is not None and len(model.labels_) == 3:
            named = pd.DataFrame({"user": model.labels_[0].index.take([0, 1]), "b": [0, 1], "c": [0, 1]})
        answers = {"predict": lambda: model.predict(named), "latent": lambda: model.predict_latent(named)}
    elif hasattr(model, "predict_proba"):
        answers = {"proba": lambda: model.predict_proba(X.astype(float))}
    elif isinstance(model, tc.BayesianPCA):
        answers = {"transform": lambda: model.transform(X.astype(float))}
    answers["save"] = lambda: model.save(os.devnull)
    for what, ask in answers.items():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found, fault = attempt(ask)
        if fault is not None:
            return f"{what} of a model that loaded: {fault}"
        told = any(INFINITE in str(item.message) for item in said)  # of means beyond float64
        if found is not None and not all(
            (np.isfinite(part) | (told & np.isposinf(part))).all() for part in np.atleast_1d(found)
        ):
            return f"{what} of a model that loaded: not finite"
    return None


def resume(rng: Rng, files: Files, folder: str) -> str | None:
    """Resume a stream from a damaged checkpoint, or with a damaged input."""
    held: Any = files["checkpoint"]
    data, model = held["data.csv"], held["checkpoint.npz"]
    if rng.random() < 0.15:
        data = in_table(rng, data.decode(), ",").encode()
    else:
        model = in_archive(rng, model)
    _put(folder, "data.csv", data)
    _put(folder, "checkpoint.npz", model)
    return _said(folder, ["stream", "./data.csv", "-o", "./checkpoint.npz", "--resume", *STREAM])


def shell(rng: Rng, files: Files, folder: str) -> str | None:
    """Run a command of the shell on damaged files, with options that do not always fit."""
    name, data = damaged_tensor(rng, files["tensors"])  # type: ignore[arg-type]
    _put(folder, name, data)
    kind = pick(rng, list(files["models"]))  # type: ignore[arg-type]
    model = files["models"][kind]  # type: ignore[index]
    _put(folder, "model.npz", model if rng.random() < 0.7 else in_archive(rng, model))
    options = list(
        pick(
            rng, [(), (), ("--no-header",), ("--no-labels",), ("--index-base", "0"), ("--count",), ("--modes", "user")]
        )
    )
    fit = ["-o", "m.npz", "--rank", "1", "--max-iter", "2", "--method", pick(rng, ["vmp", "cep", "wopt"]), "--quiet"]
    commands = {
        "info": ["info", name],
        "convert": ["convert", name, pick(rng, ["out.csv", "out.tns", "out.npz", "out.parquet", "out.xyz"])],
        "split": ["split", name, "a.csv", "b.csv", "--test-share", pick(rng, ["0.5", "2", "nan"])],
        "predict": ["predict", "model.npz", name, "-o", "p.csv"],
        "evaluate": ["evaluate", "model.npz", name],
        "info of a model": ["info", "model.npz"],
        "fit": ["fit", name, *fit],
        "stream": ["stream", name, *STREAM, "-o", "s.npz"],
    }
    chosen = pick(
        rng,
        [
            "info",
            "convert",
            "split",
            "predict",
            "evaluate",
            "info of a model",
            "info",
            "convert",
            "predict",
            "fit",
            "stream",
        ],
    )
    return _said(folder, commands[chosen] + options)


def _said(folder: str, command: list[str]) -> str | None:
    """Run the shell's program in a folder, which is emptied of what it wrote."""
    out, err, here = io.TextIOWrapper(io.BytesIO()), io.StringIO(), os.getcwd()
    before, code = set(os.listdir(folder)), 0
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), Caught() as caught:
            code = _exit_code(command)
    finally:
        os.chdir(here)
        for name in set(os.listdir(folder)) - before:
            os.unlink(os.path.join(folder, name))
    said = err.getvalue().strip()
    what = f"{' '.join(command)}: "
    if caught.error is not None:
        return f"{what}{type(caught.error).__name__}: {str(caught.error)[:200]}"
    if code == 1 and not said.rpartition("\n")[2].startswith("error: "):
        return f"{what}exit code 1 and {said[-200:]!r}"
    return f"{what}exit code {code} and {said[-200:]!r}" if code not in (0, 1, 2) or "Traceback" in said else None


def _exit_code(command: list[str]) -> Any:
    try:
        return main(command)
    except SystemExit as ended:
        return ended.code


def _put(folder: str, name: str, data: bytes) -> str:
    path = os.path.join(folder, name)
    with open(path, "wb") as handle:
        handle.write(data)
    return path
