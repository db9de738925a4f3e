"""Numba's cache folder, real data, and the fixtures that several test files share.

The cache folder is set before anything imports numba. Numba keeps a cached kernel although a helper that was inlined
into it from another file has changed, and although NUMBA_BOUNDSCHECK was switched on; so each state of the sources and
of numba's settings gets a folder of its own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.source_graph import ROOT, compiled_sources

PREFIX = "tensorcep-"
KEPT_CACHES = 8  # folders of earlier states that stay, so that switching between branches stays fast


def _cache_folder() -> Path:
    digest = hashlib.sha256()
    for name in sorted(key for key in os.environ if key.startswith("NUMBA_") and key != "NUMBA_CACHE_DIR"):
        digest.update(f"{name}={os.environ[name]}\n".encode())
    digest.update(f"{sys.version} numba {importlib.metadata.version('numba')}\n".encode())
    for path in [*compiled_sources(), *sorted((ROOT / "tests" / "oracles").rglob("*.py"))]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or ROOT / ".numba_cache")
    if base.name.startswith(PREFIX):  # set by a parent test process
        base = base.parent
    return base / (PREFIX + digest.hexdigest()[:16])


def _use_cache_folder(folder: Path) -> None:
    if "numba" in sys.modules:
        pytest.exit("numba was imported before tests/conftest.py could choose its cache folder", returncode=3)
    folder.mkdir(parents=True, exist_ok=True)
    earlier = [p for p in folder.parent.glob(PREFIX + "*") if p != folder]
    for old in sorted(earlier, key=lambda p: p.stat().st_mtime)[:-KEPT_CACHES]:
        shutil.rmtree(old, ignore_errors=True)
    os.utime(folder)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


_use_cache_folder(_cache_folder())


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, fresh for every test."""
    return np.random.default_rng(20240613)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published data files; the test is skipped where there is none."""
    value = os.environ.get("TENSORCEP_DATA")
    if not value:
        pytest.skip("needs published data: set TENSORCEP_DATA to a folder that holds them (data/README.md)")
    folder = Path(value)
    if not folder.is_dir():
        pytest.fail(f"TENSORCEP_DATA names {value}, which is not a folder")
    return folder
