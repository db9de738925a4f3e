"""Changes to good files: bytes, fields of a table, arrays and header of an archive. One generator decides them all."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorcep.core.persist.archive import CHECKSUM, HEADER

Rng = np.random.Generator
Arrays = dict[str, np.ndarray]

FIELDS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "2",
        "007",
        "+7",
        "7.0",
        "1e3",
        "1e400",
        "-1e308",
        "nan",
        "inf",
        "-inf",
        "1_000",
        "0x10",
    ),
    *(
        "9" * 400,
        "1" + "0" * 5000,
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "True",
        "None",
    ),
    *(
        "é",
        "\u0661",
        "\x00",
        '"',
        '"a,b"',
        '"a\nb"',
        "'",
        "#",
        "# 1",
        "a b",
        "\t",
        ",",
        ";",
        "\u2028",
        "\ufeff",
        "\x1b[2J",
    ),
    *("2024-01-01", "x" * 3000),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 10**6, 2**63, 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf"), "", "x"),
    *("cep", "text", [], [1], [[]], {}, {"record": "x"}, {"record": "Posterior"}, "9" * 3000),
)
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-300, 2.0**63)


def pick(rng: Rng, items: Any) -> Any:
    """One of some items."""
    return items[int(rng.integers(len(items)))]


def in_bytes(rng: Rng, data: bytes) -> bytes:
    """One to four changes of bytes: flipped, dropped, put in, doubled, or the end cut off."""
    held = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(held) + 1))
        many = int(min(rng.geometric(0.1), 200))
        kind = int(rng.integers(6))
        if kind <= 1 and held:
            at = min(at, len(held) - 1)
            held[at] = held[at] ^ (1 << int(rng.integers(8))) if kind else int(rng.integers(256))
        elif kind == 2:
            del held[at : at + many]
        elif kind == 3:
            held[at:at] = rng.bytes(many)
        elif kind == 4:
            held[at:at] = held[at : at + many]
        elif rng.random() < 0.3:
            del held[at:]
    return bytes(held)


def in_table(rng: Rng, text: str, separator: str) -> str:
    """One to three changes of lines and fields of a table."""
    lines = text.split("\n")
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        fields = lines[at].split(separator)
        field = int(rng.integers(len(fields)))
        kind = int(rng.integers(8))
        if kind <= 3:
            fields[field] = pick(rng, FIELDS)
            lines[at] = separator.join(fields)
        elif kind == 4:
            lines[at] = separator.join(
                fields[:field] + fields[field + int(rng.integers(2)) :] + [""] * int(rng.integers(2))
            )
        elif kind == 5:
            lines.insert(at, pick(rng, [lines[at], "", "#", pick(rng, FIELDS), "3 4", "2 2"]))
        elif kind == 6:
            lines[at] = lines[at].replace(separator, pick(rng, [" ", "\t", ";", separator + " ", separator * 2]))
        elif len(lines) > 2:
            del lines[at]
    return pick(rng, ["\n", "\n", "\n", "\r\n", "\r"]).join(lines)


def in_array(rng: Rng, array: np.ndarray) -> np.ndarray:
    """An array with other numbers, of another shape or of another type."""
    kind = int(rng.integers(7))
    array = array.copy()
    if kind == 0 and array.size and array.dtype.kind == "f":
        array.reshape(-1)[int(rng.integers(array.size))] = pick(rng, NUMBERS)
    elif kind == 1 and array.size and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        array.reshape(-1)[int(rng.integers(array.size))] = pick(rng, (0, limits.min, limits.max, 7))
    elif kind == 2 and array.dtype.kind in "iuf":
        array = -array if array.dtype.kind != "u" else np.flip(array).copy()
    elif kind == 3:
        array = array[: len(array) // 2] if array.ndim else array[None]
    elif kind == 4:
        array = array.reshape(-1) if rng.random() < 0.5 else array[None]
    elif kind == 5:
        with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError):
            array = array.astype(
                pick(rng, ("f4", "f2", "i8", "u1", "c16", "?", "U5", "M8[s]", "V8", ">f8")), copy=False
            )
    else:
        array = np.zeros(pick(rng, ((), (0,), (1,), (3, 0), (2, 2))), array.dtype)
    return array


def in_tree(rng: Rng, tree: Any) -> Any:
    """What JSON holds, with one value replaced, dropped or moved."""
    tree = copy.deepcopy(tree)
    at, key = None, None
    place = tree
    while isinstance(place, (dict, list)) and place and (at is None or rng.random() < 0.8):
        at, key = place, pick(rng, list(place) if isinstance(place, dict) else range(len(place)))
        place = at[key]
    if at is None:
        return pick(rng, VALUES)
    kind = int(rng.integers(8))
    if kind == 0:
        del at[key]
    elif kind == 1 and isinstance(at, dict):
        at[pick(rng, ["x", "predict", "__class__", "record", ""])] = at.pop(key)
    elif kind == 2 and isinstance(place, (int, float)) and not isinstance(place, bool):
        at[key] = pick(rng, [-place, place + 1, place * 1e6, str(place)])
    elif kind == 3:
        at[key] = [place]
    else:
        at[key] = pick(rng, VALUES)
    return tree


def in_archive(rng: Rng, data: bytes) -> bytes:
    """An archive of arrays and a header whose content was changed by a program, so that no checksum tells."""
    kind = int(rng.integers(5))
    if kind == 0:
        return in_bytes(rng, data)
    with np.load(io.BytesIO(data)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop(HEADER).tobytes())
    del header[CHECKSUM]  # readers then trust the content, as they must that of the first version
    if kind in (1, 2) and arrays:
        for _ in range(int(rng.integers(1, 3))):
            _in_arrays(rng, arrays)
    elif kind == 3:
        header = in_tree(rng, header)
    else:
        return _in_member(rng, data)
    return _packed(header, arrays)


def _in_arrays(rng: Rng, arrays: Arrays) -> None:
    name, other, kind = pick(rng, list(arrays)), pick(rng, list(arrays)), int(rng.integers(6))
    if kind == 0:
        arrays[name], arrays[other] = arrays[other], arrays[name]
    elif kind == 1 and len(arrays) > 1:
        del arrays[name]
    elif kind == 2:
        arrays[name + pick(rng, (".0", ".x", "x", ".members.0"))] = arrays[other]
    else:
        arrays[name] = in_array(rng, arrays[name])


def _packed(header: Any, arrays: Arrays) -> bytes:
    found = io.BytesIO()
    np.savez(found, **{HEADER: np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays})  # type: ignore[arg-type]
    return found.getvalue()


def _in_member(rng: Rng, data: bytes) -> bytes:
    """An archive with other bytes in a member, packed in another way or under another name; all sums are right."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w") as new:
        names = old.namelist()
        chosen = pick(rng, names)
        for name in names:
            content = old.read(name)
            if name == chosen:
                content = pick(rng, CHANGES)(rng, content)
            how = zipfile.ZIP_DEFLATED if name == chosen and rng.random() < 0.2 else zipfile.ZIP_STORED
            new.writestr(pick(rng, names) if name == chosen and rng.random() < 0.2 else name, content, how)
    return found.getvalue()


def _in_array_header(rng: Rng, content: bytes) -> bytes:
    return in_bytes(rng, content[:128]) + content[128:]


def _promised(rng: Rng, content: bytes) -> bytes:
    """The shape in an array's header, replaced."""
    begin, end = content.find(b"("), content.find(b")")
    shape = pick(rng, (b"(99999999999, ", b"(-1,", b"(1, 2, 3", b"(", b"(True,", b"('x',", b"((1,),", b"(" * 50))
    return content[:begin] + shape + content[end:]


CHANGES: tuple[Callable[[Rng, bytes], bytes], ...] = (in_bytes, _in_array_header, _promised)
