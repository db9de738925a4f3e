"""The cache of compiled kernels: what is wrong with it costs time, never a result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorcep.core.kernel_cache import Files

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
from tensorcep.core.jit import kernel

@kernel
def one_more(x):
    return x + 1.0

print(one_more(1.0), sum(one_more.stats.cache_hits.values()))
"""


def run(folder: Path, before: str = "", **environment: str) -> tuple[str, str]:
    """What a process prints and says that compiles one kernel, with its cache in a folder."""
    source = folder / "one_more.py"
    if not source.exists():  # a file that is written again is another one for older versions of numba
        source.write_text(KERNEL)
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{before}\nimport one_more\n"
    known = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **known, **environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), result.stderr.strip()


def test_kernel_cache_is_used_by_the_next_process(tmp_path: Path) -> None:
    assert run(tmp_path) == ("2.0 0", "")
    assert run(tmp_path) == ("2.0 1", "")


NO_PLACE = "import numba.core.caching as c; c.FunctionCache._impl_class._locator_classes = []"
FULL = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (64, 64))"


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
@pytest.mark.parametrize(
    ("before", "said"),
    [(NO_PLACE, "no cache of compiled kernels can be kept (cannot cache"), (FULL, "cannot be used ([Errno 27]")],
)
def test_kernel_cache_without_room_is_a_miss_and_one_warning(tmp_path: Path, before: str, said: str) -> None:
    printed, warning = run(tmp_path, before)
    assert printed == "2.0 0"
    assert said in warning
    assert warning.endswith("set NUMBA_CACHE_DIR to a folder that can be written.")
    assert len(warning.splitlines()) == 1


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["cut", "empty", "junk"])
def test_kernel_cache_that_is_damaged_is_made_anew(tmp_path: Path, suffix: str, damage: str) -> None:
    run(tmp_path)
    (path,) = (tmp_path / "cache").rglob(f"*{suffix}")
    data = path.read_bytes()
    path.write_bytes({"cut": data[: len(data) - 40], "empty": b"", "junk": b"\x80\x05junk" + data}[damage])
    printed, warning = run(tmp_path)
    assert printed == "2.0 0"
    assert "is damaged" in warning
    assert len(warning.splitlines()) == 1
    assert run(tmp_path) == ("2.0 1", "")


def test_kernel_cache_of_two_processes_that_save_at_once_keeps_the_code_of_each(tmp_path: Path) -> None:
    first, second, later = (Files(str(tmp_path), "kernel", "stamp") for _ in range(3))
    save = first._save_data

    def beside(name: str, data: object) -> None:
        second.save("float64", "code for float64")
        save(name, data)

    first._save_data, second._load_index = beside, dict  # the second looked before anything was saved
    first.save("int64", "code for int64")
    assert {key: later.load(key) for key in ("int64", "float64")} == {
        "int64": "code for int64",
        "float64": "code for float64",
    }
