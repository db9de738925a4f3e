"""What a file is, by its name."""

from __future__ import annotations

import os
import zipfile
from typing import NoReturn

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.entries.io.packed import only_member

# Extension -> what the file is.
KINDS = {
    ".tns": "tns",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".dat": "csv",
    ".data": "csv",
    ".mtx": "mtx",
    ".parquet": "parquet",
    ".npz": "npz",
}
FORMATS = ("tns", "csv", "parquet", "npz", "mtx")
OF_TEXT = ("tns", "csv", "mtx")
PACKED = (".gz", ".bz2", ".xz", ".zip")
WRITTEN = (".tns", ".tns.gz", ".csv", ".csv.gz", ".parquet", ".npz")
# Extensions of other kinds of files -> what of pandas reads them.
OF_PANDAS = {
    ".jsonl": "read_json(path, lines=True)",
    ".ndjson": "read_json(path, lines=True)",
    ".json": "read_json(path)",
    ".feather": "read_feather(path)",
    ".arrow": "read_feather(path)",
    ".orc": "read_orc(path)",
    ".xlsx": "read_excel(path)",
    ".xls": "read_excel(path)",
    ".ods": "read_excel(path)",
    ".dta": "read_stata(path)",
    ".sav": "read_spss(path)",
    ".xpt": "read_sas(path)",
    ".sas7bdat": "read_sas(path)",
}


def format_of(path: str, format: str | None) -> str:
    """Return what a file that is read is: what the caller says, or else what its extension does."""
    if format is not None:
        return str(check_choice("format", format, FORMATS))
    kind = _kind_of(path)
    return kind or _fail(path, ", ".join(KINDS) + f" (those of text also with {', '.join(PACKED)})")


def written_format(path: str, format: str | None) -> str:
    """As `format_of`, of a file that is written."""
    if format is not None:
        return str(check_choice("format", format, FORMATS[:-1]))
    if not path.lower().endswith(WRITTEN):
        _fail(path, ", ".join(WRITTEN))
    return str(_kind_of(path))


def is_of_entries(name: str) -> bool:
    """Whether a file in a folder of entries is one of them by its name; .txt may be anything."""
    return _kind_of(name) is not None and not os.path.basename(name).lower().removesuffix(".gz").endswith(".txt")


def _kind_of(path: str) -> str | None:
    name = os.path.basename(path).lower()
    stem, extension = os.path.splitext(name)
    if extension not in PACKED:
        return KINDS.get(extension)
    kind = KINDS.get(os.path.splitext(stem)[1])
    if kind is None and extension == ".zip" and zipfile.is_zipfile(path):
        kind = KINDS.get(os.path.splitext(only_member(path, path).lower())[1])
    return kind if kind in OF_TEXT else None


def _fail(path: str, known: str) -> NoReturn:
    found = os.path.splitext(os.path.basename(path).lower())[1]
    if found in OF_PANDAS:
        fail_value(
            f"'{path}' has the extension {found!r}, which pandas reads and tensorcep does not; write what "
            f"pandas.{OF_PANDAS[found]} returns by to_csv or to_parquet, or make a SparseTensor.from_pandas of it."
        )
    fail_value(
        f"'{path}' has {f'the unknown extension {found!r}' if found else 'no extension'}; known are {known}, or pass "
        "format=."
    )
