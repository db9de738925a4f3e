"""Files: writing so that no reader ever sees half of one, and archives of arrays with a JSON header."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tensorcep.core.checks import check_file, fail_value

HEADER = "header"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary handle whose content appears under `path` only when the block ends without an exception.

    The content goes to a temporary name in the same folder, which then replaces `path` in one step; after any
    exception, KeyboardInterrupt included, the temporary file is gone and an earlier file at `path` is as it was.
    A link is followed, and something that is not a plain file (a pipe, a device) is written to directly.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If the folder does not exist, or `path` is a folder.
    """
    target = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write '{os.fspath(path)}': there is no folder '{folder}'; create it first.")
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot write '{os.fspath(path)}': it is a folder; give the path of a file.")
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as handle:
            yield handle
        return
    temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        # Not tempfile: a file made by it is readable by its owner only, whatever the user's umask says.
        with open(temporary, "xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def write_archive(
    path: str | os.PathLike[str], kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write an .npz of plain arrays and a JSON header that says what the file is; nothing in it is pickled.

    Parameters
    ----------
    kind : str
        What the file holds, for instance "tensorcep.tensor".
    version : int
        Version of the layout; `read_archive` refuses newer ones.
    header : mapping
        What JSON can hold; the keys "kind" and "version" are added.
    arrays : mapping of name to array
        Any dtype but object.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            fail_value(
                f"array {name!r} holds Python objects, which an archive cannot; convert it to numbers or strings."
            )
    text = json.dumps({"kind": kind, "version": version, **header}, ensure_ascii=True)
    stored = {HEADER: np.frombuffer(text.encode("ascii"), dtype=np.uint8), **arrays}
    with atomic_write(path) as handle:
        np.savez(handle, **stored)  # type: ignore[arg-type]


def read_archive(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a file made by `write_archive`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is truncated or damaged, of another kind, or of a newer version than `version`.
    """
    text = check_file(path)
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with open(text, "rb") as handle:
            archive = np.load(handle, allow_pickle=False)
            if isinstance(archive, np.lib.npyio.NpzFile):  # and not the array of an .npy file
                with archive:
                    arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if not _starts_like_zip(text):
            raise ValueError(f"'{text}' is not a {kind} file; check the path.") from error
        raise ValueError(f"'{text}' is truncated or damaged ({error}); write it again.") from error
    return _checked_header(text, arrays.pop(HEADER, None), kind, version), arrays


def archive_kind(path: str | os.PathLike[str]) -> str | None:
    """The kind that an archive's header names; None for what is no readable archive."""
    try:
        with open(check_file(path), "rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return str(json.loads(archive[HEADER].tobytes())["kind"])
    except (ValueError, EOFError, OSError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        return None


def _starts_like_zip(path: str) -> bool:
    with open(path, "rb") as handle:
        return handle.read(2) == b"PK"


def _checked_header(path: str, stored: NDArray[Any] | None, kind: str, version: int) -> dict[str, Any]:
    header: Any = None
    if stored is not None and stored.dtype == np.uint8:
        with contextlib.suppress(ValueError):
            header = json.loads(stored.tobytes())
    if not isinstance(header, dict) or "kind" not in header or not isinstance(header.get("version"), int):
        fail_value(f"'{path}' is not a {kind} file: it has no tensorcep header; check the path.")
    if header["kind"] != kind:
        fail_value(f"'{path}' is a {header['kind']} file, not a {kind} file; check the path.")
    if header["version"] > version:
        fail_value(
            f"'{path}' has format version {header['version']}, newer than the {version} that this tensorcep reads; "
            "update tensorcep."
        )
    return header
