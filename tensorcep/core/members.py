"""Arrays of an .npz archive that nobody vouches for: what a member promises is compared with what it holds first."""

from __future__ import annotations

import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

SUFFIX = ".npy"
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What zip archives, numpy's headers and JSON raise when they are damaged. A RuntimeError is a member that is encrypted,
# packed in a way that Python does not know, or nested without end.
DAMAGE = (
    ValueError,
    EOFError,
    OSError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_members(handle: BinaryIO, wanted: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive by name: all of them, or those that are wanted and there.

    Nothing in it is unpickled, and no memory is taken for what the archive does not hold. Members must not be
    compressed, as those of `write_archive` are not.

    Raises
    ------
    One of DAMAGE
        If it is no sound archive of plain arrays.
    """
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
