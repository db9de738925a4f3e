"""No damaged file or mangled frame ends in more than one sentence: readers, models, streams, the shell, and frames.

A case is a seed that hypothesis draws: it damages a good file (bytes, fields of a table, arrays, header, members of an
archive) or mangles a frame, and hands it over. It passes by a result or by a refusal of this package in one sentence.
`pytest -m slow tests/test_fuzz.py --hypothesis-profile fuzz` runs five thousand cases of each.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import os
import traceback
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.source_graph import PACKAGE
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.core.checks import INFINITE
from tensorcep.core.persist.archive import CHECKSUM, HEADER
from tensorcep.entries.io import read_batches

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
Rng = np.random.Generator
STREAM = ("--rank", "1", "--batch-size", "20", "--checkpoint-every", "1", "--max-iter", "3", "--quiet")
FIELDS = ("", " ", "0", "-1", "2", "007", "+7", "7.0", "1e400", "nan", "-inf", "1_000", "0x10", "9" * 400)
FIELDS += (
    "9223372036854775808",
    "True",
    "é",
    "\u0661",
    "\x00",
    '"',
    '"a,b"',
    '"a\nb"',
    "# 1",
    "a b",
    "\t",
    ",",
    "\u2028",
)
FIELDS += ("\ufeff", "\x1b[2J", "2024-01-01", "x" * 3000)
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-300, 2.0**63)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2,
    2**63,
    10**400,
    -0.5,
    1e308,
    float("nan"),
    "",
    "x",
    "cep",
    [],
    [[]],
    {},
)
CELLS: tuple[Any, ...] = (None, np.nan, pd.NA, pd.NaT, "", "i1", "é", "\x1b[2J", "a\nb", b"i1", -1, 2**70, -0.0, 5e-324)
CELLS += (np.inf, True, 1j, 10**400, pd.Timestamp("2024-01-02", tz="Asia/Tokyo"), "9999-12-31", "2024-13-01")
CELLS += (pd.Period("2024-01", "M"), pd.Timedelta("1ns"), ("i", 1), object, ["i1"], {"i": 1}, 1e308, "1,5")


def pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def in_bytes(rng: Rng, data: bytes) -> bytes:
    """One to four changes of bytes: flipped, dropped, put in, doubled, or the end cut off."""
    held = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, many, kind = int(rng.integers(len(held) + 1)), int(min(rng.geometric(0.1), 200)), int(rng.integers(5))
        if kind == 0 and held:
            held[min(at, len(held) - 1)] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del held[at : at + many]
        elif kind == 2:
            held[at:at] = rng.bytes(many)
        elif kind == 3:
            held[at:at] = held[at : at + many]
        elif rng.random() < 0.3:
            del held[at:]
    return bytes(held)


def in_table(rng: Rng, data: bytes, separator: str) -> bytes:
    """One to three changes of lines and fields of a table."""
    lines = data.decode().split("\n")
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        fields, kind = lines[at].split(separator), int(rng.integers(5))
        if kind <= 1:
            fields[int(rng.integers(len(fields)))] = pick(rng, FIELDS)
            lines[at] = separator.join(fields)
        elif kind == 2:
            lines[at] = separator.join(fields[int(rng.integers(2)) :] + [""] * int(rng.integers(2)))
        elif kind == 3:
            lines.insert(at, pick(rng, [lines[at], "", "#", pick(rng, FIELDS), "3 4"]))
        else:
            lines[at] = lines[at].replace(separator, pick(rng, [" ", "\t", ";", separator * 2]))
    return pick(rng, ["\n", "\n", "\r\n", "\r"]).join(lines).encode()


def in_array(rng: Rng, array: np.ndarray) -> np.ndarray:
    """An array with another number, of another shape or of another type."""
    kind, array = int(rng.integers(4)), array.copy()
    if kind == 0 and array.size and array.dtype.kind == "f":
        array.reshape(-1)[int(rng.integers(array.size))] = pick(rng, NUMBERS)
    elif kind == 1:
        array = array[: len(array) // 2] if array.ndim else array[None]
    elif kind == 2:
        with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError):
            array = array.astype(pick(rng, ("f4", "i8", "u1", "c16", "?", "U5", "M8[s]", ">f8")))
    else:
        array = np.zeros(pick(rng, ((), (0,), (1,), (3, 0), (2, 2))), array.dtype)
    return array


def in_tree(rng: Rng, tree: Any) -> Any:
    """What JSON holds, with one value replaced, dropped or wrapped."""
    tree = copy.deepcopy(tree)
    at, key, place = None, None, tree
    while isinstance(place, (dict, list)) and place and (at is None or rng.random() < 0.8):
        at, key = place, pick(rng, list(place) if isinstance(place, dict) else range(len(place)))
        place = at[key]
    if at is None:
        return pick(rng, VALUES)
    kind = int(rng.integers(4))
    if kind == 0:
        del at[key]
    else:
        at[key] = [place] if kind == 1 else pick(rng, VALUES)
    return tree


def in_archive(rng: Rng, data: bytes) -> bytes:
    """An archive whose content was changed by a program, so that no sum tells; or other bytes."""
    kind = int(rng.integers(4))
    if kind == 0:
        return in_bytes(rng, data)
    found = io.BytesIO()
    if kind == 1:  # other bytes in a member, whose sum is right
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w") as new:
            chosen = pick(rng, old.namelist())
            for name in old.namelist():
                content = old.read(name)
                new.writestr(name, in_bytes(rng, content[:128]) + content[128:] if name == chosen else content)
        return found.getvalue()
    with np.load(io.BytesIO(data)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop(HEADER).tobytes())
    del header[CHECKSUM]  # readers then trust the content, as they must that of the first version
    if kind == 2 and arrays:
        name, other = pick(rng, list(arrays)), pick(rng, list(arrays))
        arrays[name] = arrays[other] if rng.random() < 0.2 else in_array(rng, arrays[name])
    else:
        header = in_tree(rng, header)
    np.savez(found, **{HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays})
    return found.getvalue()


def in_frame(rng: Rng, frame: pd.DataFrame) -> pd.DataFrame:
    """One to three changes of cells, types, rows, columns, names and index."""
    for _ in range(int(rng.integers(1, 4))):
        if not frame.size:
            break
        kind, column = int(rng.integers(6)), int(rng.integers(frame.shape[1]))
        if kind <= 1:
            held = list(frame.iloc[:, column])
            for row in rng.integers(len(held), size=1 if kind else len(held)):
                held[row] = pick(rng, CELLS)
            columns = [frame.iloc[:, k] for k in range(frame.shape[1])]
            columns[column] = pd.Series(held, frame.index, object)
            frame = pd.concat(columns, axis=1, keys=range(len(columns))).set_axis(frame.columns, axis=1)
        elif kind == 2:
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                frame = frame.astype({frame.columns[column]: pick(rng, ["category", "string", "Int64", "int8"])})
        elif kind == 3:
            frame = frame.iloc[rng.integers(len(frame), size=pick(rng, [0, 1, 2 * len(frame)]))]
        elif kind == 4:
            names = list(frame.columns)
            names[column] = pick(rng, [None, 0, "", "y", names[0], ("a", "b"), np.nan])
            frame = frame.set_axis(pd.Index(names, dtype=object, tupleize_cols=False), axis=1)
        else:
            frame = frame.reset_index() if rng.random() < 0.5 else frame.iloc[:, : column + 1]
    return frame


def attempt(call: Callable[[], Any]) -> Any:
    """What a call gives, or None for a refusal of this package in one sentence; other errors are failures."""
    try:
        return call()
    except (ValueError, TypeError, OSError) as error:
        wrong = fault_of(error)
        if wrong:
            raise AssertionError(wrong) from error
        return None


def fault_of(error: Exception) -> str:
    """What is wrong with an error; nothing with one of ours."""
    place, sentence = traceback.extract_tb(error.__traceback__)[-1].filename, str(error)
    if not isinstance(error, OSError):
        if type(error) not in (ValueError, TypeError) and not type(error).__module__.startswith("tensorcep."):
            return f"{type(error).__name__}: {sentence}"  # of another library; nobody put it into words
        if not Path(place).is_relative_to(PACKAGE):
            return f"raised in {place}: {sentence}"
    return "" if sentence and "\n" not in sentence.strip() and len(sentence) < 2000 else f"not a sentence: {sentence!r}"


def check_finite(found: Any, said: Any = ()) -> None:
    told = any(INFINITE in str(item.message) for item in said)  # of means beyond float64
    for part in () if found is None else np.atleast_1d(found):
        part = np.asarray(part, np.float64)
        assert (np.isfinite(part) | (told & np.isposinf(part))).all()


@cache
def tensors() -> dict[str, bytes]:
    """Good files of entries, by name."""
    labels = [tc.Labels(["u", "v", "w"], "user"), tc.Labels(pd.period_range("2025-01", periods=3, freq="M"), "month")]
    coords, values, found = np.array([[0, 1], [1, 0], [2, 2]]), np.array([0.5, -1.0, 2.0]), {}
    for name, given_labels in (("plain", None), ("named", labels)):
        path = Path(f"{name}.npz")
        tc.write_tensor(tc.SparseTensor(coords, values, None, given_labels), path)
        found[path.name] = path.read_bytes()
    texts = {
        "named.csv": 'user,item,week,y\nu1,a,1,0.5\nu2,b,2,1.5\n"u,3",a,2,2e-1\n',
        "bare.csv": "1,2,3,0.5\n2,1,3,1.5\n",
    }
    texts |= {
        "bare.tns": "# a comment\n1 2 3 0.5\n2 1 3 1.5\n",
        "sized.tns": "# extended\n3 2\n3 3 3\n1 2 3 0.5\n2 1 3 2\n",
    }
    found |= {name: text.encode() for name, text in texts.items()}
    return found | {f"{name}.gz": gzip.compress(text.encode(), mtime=0) for name, text in texts.items()}


@cache
def models() -> dict[str, bytes]:
    """Good files of models, by name."""
    tensor = tc.simulate_cp((4, 3, 3), 1, 30, noise_precision=25.0, prior_mean=0.7, random_state=0).tensor
    short: dict[str, Any] = {"max_iter": 8, "tol": 1e9, "random_state": 0}
    X = np.random.default_rng(0).standard_normal((20, 3))
    fits = {
        "regressor": tc.CPRegressor(1, method="cep", **short).fit(tensor),
        "gibbs": tc.CPRegressor(1, method="gibbs", **short).fit(tensor),
        "classifier": tc.CPClassifier(1, method="pg-vb", **short).fit(tensor.coords, tensor.values > 0.5),
        "counts": tc.CPCountRegressor(1, method="cep", **short).fit(tensor.coords, np.round(np.abs(tensor.values))),
        "stream": tc.CPRegressor(1, method="cep", prior="fixed", revisit=5, **short).partial_fit(tensor),
        "pca": tc.BayesianPCA(2, max_iter=5, random_state=0).fit(X),
        "logistic": tc.BayesianLogisticRegression().fit(X, X[:, 0] > 0.0),
    }
    found = {}
    for name, model in fits.items():
        model.save(f"{name}.npz")
        found[name] = Path(f"{name}.npz").read_bytes()
    return found


@cache
def checkpoint() -> tuple[bytes, bytes]:
    """A stream's file after three of five batches, and the table that it was made of."""
    lines = [f"u{a},v{b},{a * b / 3.0}" for a, b in np.random.default_rng(0).integers(1, 5, size=(100, 2))]
    Path("first.csv").write_text("user,item,y\n" + "\n".join(lines[:60]) + "\n")
    assert main(["stream", "first.csv", "-o", "first.npz", *STREAM]) == 0
    return Path("first.npz").read_bytes(), ("user,item,y\n" + "\n".join(lines) + "\n").encode()


def damaged(rng: Rng) -> str:
    """A damaged file of entries; its name."""
    name = pick(rng, list(tensors()))
    data = tensors()[name]
    if name.endswith(".npz"):
        data = in_archive(rng, data)
    elif name.endswith(".gz"):
        data = in_bytes(rng, data)
    else:
        data = in_table(rng, data, "," if ".csv" in name else " ")
    Path(name).write_bytes(data)
    return name


def shell(*words: str) -> None:
    """A command ends with a result, or with a line that begins with 'error: '."""
    err, out = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = ended.code
    said = err.getvalue().strip()
    assert code in (0, 1, 2), words
    assert code != 1 or said.rpartition("\n")[2].startswith("error: "), (words, said)
    assert "Traceback" not in said


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    here = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("fuzz"))
    yield
    os.chdir(here)


def cases(test: Callable[[Rng], None]) -> Callable[[], None]:
    """A test of many seeds."""

    @settings(deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def run(seed: int) -> None:
        test(np.random.default_rng(seed))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@cases
def test_damaged_files_are_read_or_refused(rng: Rng) -> None:
    name = damaged(rng)
    how: dict[str, Any] = {"labels": pick(rng, [None, False, True]), "header": name.startswith("named")}
    whole = attempt(lambda: tc.read_tensor(name, **how))
    if not name.endswith(".npz"):
        pieces = attempt(lambda: list(read_batches(name, int(pick(rng, [1, 3, 1000])), **how)))
        if whole is not None and pieces is not None:
            np.testing.assert_array_equal(np.sort(np.concatenate([p.values for p in pieces])), np.sort(whole.values))


@cases
def test_damaged_models_load_and_answer_or_are_refused(rng: Rng) -> None:
    name = pick(rng, list(models()))
    Path("damaged.npz").write_bytes(in_archive(rng, models()[name]))
    model, X = attempt(lambda: tc.load("damaged.npz")), np.array([[0, 0, 0], [1, 1, 1]])
    if model is None:
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = attempt(lambda: model.transform(X * 1.0) if name == "pca" else model.predict(X))
    check_finite(found, said)
    attempt(lambda: model.save(os.devnull))


@cases
def test_streams_go_on_from_damaged_checkpoints_or_refuse(rng: Rng) -> None:
    model, data = checkpoint()
    Path("data.csv").write_bytes(in_table(rng, data, ",") if rng.random() < 0.15 else data)
    Path("checkpoint.npz").write_bytes(in_archive(rng, model))
    shell("stream", "./data.csv", "-o", "./checkpoint.npz", "--resume", *STREAM)


@cases
def test_the_shell_says_what_is_wrong_with_damaged_files(rng: Rng) -> None:
    name, model = damaged(rng), models()[pick(rng, list(models()))]
    Path("model.npz").write_bytes(model if rng.random() < 0.7 else in_archive(rng, model))
    fit = ("-o", "m.npz", "--rank", "1", "--max-iter", "2", "--method", "vmp", "--quiet")
    commands = (
        ("info", name),
        ("convert", name, pick(rng, ["out.csv", "out.tns", "out.npz", "out.xyz"])),
        ("fit", name, *fit),
    )
    commands += (
        ("split", name, "a.csv", "b.csv", "--test-share", pick(rng, ["0.5", "2", "nan"])),
        ("info", "model.npz"),
    )
    commands += (("predict", "model.npz", name, "-o", "p.csv"), ("evaluate", "model.npz", name))
    shell(*pick(rng, commands), *pick(rng, [(), (), ("--no-header",), ("--no-labels",), ("--modes", "user")]))


@cache
def table() -> pd.DataFrame:
    """Thirty-six entries of users, items and days."""
    rng = np.random.default_rng(0)
    user, item, day = rng.integers(5, size=36), rng.integers(6, size=36), rng.integers(7, size=36)
    days = (pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")).strftime("%Y-%m-%d")
    y = user * item / 5 + 0.1 * rng.standard_normal(36)
    return pd.DataFrame({"user": [f"u{a}" for a in user], "item": [f"i{b}" for b in item], "day": days, "y": y})


@cases
def test_mangled_knowledge_of_rows_is_fitted_or_refused(rng: Rng) -> None:
    items, entries = [f"i{k}" for k in range(6)], table()
    known = pd.DataFrame({"kind": list("abcabc"), "size": np.arange(6.0)}, index=items)
    edges = pd.DataFrame({"a": items[:-1], "b": items[1:], "weight": [1.0, 2.0, 0.5, 1.0, 3.0]})
    kind = int(rng.integers(3))
    entries = in_frame(rng, entries) if kind == 2 else entries
    prior = attempt(
        lambda: (
            {"item": tc.Features(in_frame(rng, known))}
            if kind == 0
            else {"item": tc.Graph(in_frame(rng, edges))}
            if kind == 1
            else {"day": tc.Series()}
        )
    )
    if prior is None:
        return
    model = tc.CPRegressor(1, method=pick(rng, ["vmp", "cep"]), prior=prior, max_iter=2, tol=1e9, random_state=0)
    fitted = attempt(lambda: model.fit(entries, value="y"))
    if fitted is not None:
        check_finite(attempt(lambda: fitted.predict(table().iloc[:4].drop(columns="y"), return_std=True)))


@cases
def test_mangled_rows_and_batches_are_learned_or_refused(rng: Rng) -> None:
    method, new = pick(rng, ["vmp", "cep"]), in_frame(rng, table().iloc[:6].assign(user="n1"))
    model = tc.CPRegressor(1, method=method, max_iter=3, tol=1e9, random_state=0).fit(table(), value="y")
    if rng.random() < 0.5:
        rows = attempt(lambda: model.transform(new, mode="user", value="y"))
        model = attempt(lambda: model.with_rows(rows)) if rows is not None else model
    elif "y" in new:
        attempt(lambda: model.partial_fit(new.drop(columns="y"), new["y"]))
    attempt(lambda: model.anomaly_score(new, value="y"))
    check_finite(attempt(lambda: model.predict(table().drop(columns="y").iloc[:4], return_std=True)))
