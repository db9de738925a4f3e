"""Files and tables: what should be there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Any


def check_file(path: str | os.PathLike[str]) -> str:
    """Return the path of an existing file, or of a pipe, as text."""
    text = os.fspath(path)
    if not os.path.exists(text):
        raise FileNotFoundError(f"there is no file '{text}'; check the path.")
    if os.path.isdir(text):
        raise IsADirectoryError(f"'{text}' is a folder; give the path of a file.")
    mode = os.stat(text).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # it may have no end
        raise ValueError(f"'{text}' is a device; give the path of a file or a pipe.")
    return text


def check_checksum(path: str | os.PathLike[str], found: str, expected: str, url: str) -> None:
    """Refuse a data file whose SHA-256 is not the published one."""
    if found != expected:
        raise ValueError(
            f"'{os.fspath(path)}' must have the SHA-256 {expected}; got {found}; delete the file to have it downloaded "
            f"again, or replace it by {url}"
        )


def check_columns(columns: Iterable[Any], wanted: Iterable[Any], where: str = "the DataFrame") -> None:
    """Refuse a column name that does not exist; the error lists those that do."""
    known = list(columns)
    for name in wanted:
        if name not in known:
            raise ValueError(f"{where} has no column {name!r}; it has {listed(known)}.")


def listed(names: Iterable[Any], most: int = 12, longest: int = 60) -> str:
    """Names as a sentence lists them: some, and none at full length that is very long."""
    known = [repr(name) for name in names]
    shown = [name if len(name) <= longest else f"{name[:longest]}..." for name in known[:most]]
    return ", ".join(shown) + (f" and {len(known) - most} more" if len(known) > most else "")
