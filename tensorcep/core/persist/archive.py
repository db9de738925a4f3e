"""Files of the package: written whole or not at all, and archives of arrays with a header."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import struct
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tensorcep.core.checks import check_file, fail_value, reason_of

try:
    import fcntl
except ImportError:  # on Windows, where a file that is open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

HEADER, CHECKSUM = "header", "checksum"
# Names beside each other in a header, more than any model has.
MOST_NAMES = 10_000
# A temporary file that nobody holds is one of a killed process; a younger one may be about to be held.
OLD_SECONDS = 1.0


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary handle whose content appears under `path` only when the block ends without an exception."""
    # The content goes to a temporary name in the same folder, which then replaces `path` in one step; after any
    # exception, KeyboardInterrupt included, the temporary file is gone and an earlier file at `path` is as it was. A
    # file has the permissions of the earlier one, or those of the user's umask. What a killed process left of an
    # earlier try is removed. A link is followed, and what is no plain file (a pipe, a device) is written to directly.
    target = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write '{os.fspath(path)}': there is no folder '{folder}'; create it first.")
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot write '{os.fspath(path)}': it is a folder; give the path of a file.")
    if os.path.exists(target) and not os.path.isfile(target):
        with naming(path), open(target, "wb") as handle:
            yield handle
        return
    start = f".{name[:100]}."
    _sweep(folder, start)
    earlier = None
    with contextlib.suppress(FileNotFoundError):
        earlier = stat.S_IMODE(os.stat(target).st_mode) & 0o777
    opener = None if earlier is None else functools.partial(os.open, mode=earlier)
    temporary = os.path.join(folder, f"{start}{secrets.token_hex(6)}.tmp")
    try:
        # Not tempfile: a file made by it is readable by its owner only, whatever the user's umask says.
        # Private from the first moment on, too: who opens a file while it is readable can read it afterwards.
        with naming(path), open(temporary, "xb", opener=opener) as handle:
            _is_free(handle)
            if earlier is not None:  # some file systems have no permissions, or the same for all files
                with contextlib.suppress(OSError):
                    os.chmod(temporary, earlier)  # what the umask took away
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have errors of the system say which file they are about, where they do not."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _sweep(folder: str, start: str) -> None:
    """Remove temporary files, of this start of a name, that no process is writing any more."""
    pattern = re.compile(re.escape(start) + r"[0-9a-f]{12}\.tmp")
    for name in filter(pattern.fullmatch, os.listdir(folder)):
        left = os.path.join(folder, name)
        with contextlib.suppress(OSError), open(left, "rb") as handle:  # another process may be as quick
            if time.time() - os.fstat(handle.fileno()).st_mtime > OLD_SECONDS and _is_free(handle):
                os.unlink(left)


def _is_free(handle: BinaryIO) -> bool:
    """Take the lock of a file until it is closed, if no other process has it; whether it was free."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


Path = str | os.PathLike[str]


def write_archive(path: Path, kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write an .npz of plain arrays and a JSON header that says what the file is; nothing in it is pickled."""
    # `kind` is what it holds ("tensorcep.tensor"), `version` that of the layout; `read_archive` refuses newer ones.
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            what = f"array {name!r} holds Python objects"
            fail_value(f"{what}, which an archive cannot; convert it to numbers or strings.")
    fields = {"kind": kind, "version": version, **header}
    text = json.dumps({**fields, CHECKSUM: _checksum(fields, arrays)}, ensure_ascii=True)
    stored = {HEADER: np.frombuffer(text.encode("ascii"), dtype=np.uint8), **arrays}
    with atomic_write(path) as handle:
        if stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            np.savez(handle, **stored)
            return
        whole = io.BytesIO()  # a device may say that it stands at 0 whatever was written, which zip's directory goes by
        np.savez(whole, **stored)
        handle.write(whole.getbuffer())


def _checksum(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of the header's fields and of names, types, shapes and contents of the arrays."""
    fields = json.loads(json.dumps({name: value for name, value in header.items() if name != CHECKSUM}))
    sha = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        if array.nbytes:
            sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def read_archive(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of `write_archive`; refused if damaged, of another kind, or of a newer version."""
    text = check_file(path)
    if not os.path.isfile(text):
        fail_value(f"'{text}' is a pipe or a device; give the path of a plain file.")
    with open(text, "rb") as handle:
        is_zip = handle.read(2) == b"PK"
        try:
            arrays = read_members(handle)
        except DAMAGE as error:
            if not is_zip:
                raise ValueError(f"'{text}' is not a {kind} file; check the path.") from None
            raise ValueError(f"'{text}' is truncated or damaged ({reason_of(error)}); write it again.") from None
    header = _json(arrays.pop(HEADER, None))
    found, of = (header.get("kind"), header.get("version")) if isinstance(header, dict) else (None, None)
    if not isinstance(found, str) or not re.fullmatch(r"[\w.]{1,80}", found) or not isinstance(of, int):
        fail_value(f"'{text}' is not a {kind} file: it has no tensorcep header; check the path.")
    if found != kind:
        fail_value(f"'{text}' is a {found} file, not a {kind} file; check the path.")
    if of > version:
        newer = f"newer than the {version} that this tensorcep reads; update tensorcep."
        fail_value(f"'{text}' has format version {of}, {newer}")
    if isinstance(of, bool) or of < 1:
        fail_value(f"'{text}' has format version {of!r}, which does not exist; write it again.")
    if CHECKSUM in header and header[CHECKSUM] != _checksum(header, arrays):
        fail_value(f"'{text}' was changed after it was written (its checksum is another); write it again.")
    return header, arrays


def archive_kind(path: str | os.PathLike[str]) -> str | None:
    """The kind that an archive's header names; None for what is no readable archive."""
    text = check_file(path)
    if not os.path.isfile(text):
        return None
    with contextlib.suppress(*DAMAGE), open(text, "rb") as handle:
        return str(_json(read_members(handle, (HEADER,))[HEADER])["kind"])
    return None


def _json(stored: NDArray[Any] | None) -> Any:
    """What the bytes of a header say; None for what is no JSON, is nested without end, or holds names without end."""
    if stored is None or stored.dtype != np.uint8:
        return None
    try:
        return json.loads(stored.tobytes(), object_pairs_hook=_few)
    except (ValueError, RecursionError):
        return None


def _few(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_NAMES:
        fail_value(f"there are {len(pairs)} names")
    return dict(pairs)


# Arrays of an .npz archive that nobody vouches for: what a member promises is compared with what it holds first.

SUFFIX = ".npy"
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What zip archives, numpy's headers and JSON raise when they are damaged. A RuntimeError is a member that is encrypted,
# packed in a way that Python does not know, or nested without end.
DAMAGE: tuple[type[Exception], ...] = (struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error, EOFError)
DAMAGE += (AttributeError, KeyError, OSError, OverflowError, RuntimeError, SyntaxError, TypeError, ValueError)


def read_members(handle: BinaryIO, wanted: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive by name: all of them, or those that are wanted and there; else one of DAMAGE."""
    # Nothing in it is unpickled, and no memory is taken for what the archive does not hold.
    size = os.fstat(handle.fileno()).st_size
    with zipfile.ZipFile(handle) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(set(names)) < len(names) or sum(member.compress_size for member in members) > size:
            raise ValueError("its members overlap")
        chosen = [member for member in members if wanted is None or member.filename.removesuffix(SUFFIX) in wanted]
        return {member.filename.removesuffix(SUFFIX): _array(archive, member) for member in chosen}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError(f"member {member.filename!r} is compressed")
    with archive.open(member) as content:
        version = np.lib.format.read_magic(content)
        if version not in HEADERS:
            raise ValueError(f"member {member.filename!r} has an array header of version {version}")
        try:
            shape, _, dtype = HEADERS[version](content)
        except MemoryError:  # of brackets that are nested too deep
            raise ValueError(f"member {member.filename!r} has no array header that can be read") from None
        if dtype.hasobject:
            raise ValueError(f"member {member.filename!r} holds Python objects")
        promised, held = math.prod(shape) * dtype.itemsize, member.file_size - content.tell()
        if min(shape, default=0) < 0 or promised != held:
            raise ValueError(f"member {member.filename!r} promises {promised} bytes and holds {held}")
    with archive.open(member) as content:
        array: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
    return array
