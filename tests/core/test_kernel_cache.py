"""Kernels on the disk: never older than their sources, at home on a level of processors, and no failure ends a fit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorcep.core import kernel_cache as cpu
from tensorcep.core.kernel_cache import KEPT, PACKAGE, PREFIX, compiled_sources

KERNEL = """
from tensorcep.core.compile import kernel

@kernel
def one_more(x):
    return x + 1.0

print(one_more(1.0), sum(one_more.stats.cache_hits.values()))
"""


def python(code: str, folder: Path, root: Path = PACKAGE.parent, **environment: str) -> tuple[str, str]:
    """What a process prints and says, with its kernels in a folder."""
    known = {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,  # "-c" looks for modules there first
        env={**os.environ, **known, **environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), result.stderr.strip()


def run(folder: Path, before: str = "", **environment: str) -> tuple[str, str]:
    """The same of a process that compiles or loads one kernel."""
    (folder / "one_more.py").write_text(KERNEL)
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{before}\nimport one_more\n"
    return python(code, folder, **environment)


def test_kernel_cache_is_used_by_the_next_process_unless_numba_is_set_otherwise(tmp_path: Path) -> None:
    assert run(tmp_path) == ("2.0 0", "")
    assert run(tmp_path) == ("2.0 1", "")
    assert run(tmp_path, NUMBA_BOUNDSCHECK="1") == ("2.0 0", "")


CALLER = """
from tensorcep.kernels.special import log1p_unit
from tensorcep.core.compile import kernel

@kernel
def twice(x):
    return 2.0 * log1p_unit(x) + 1.0

print(twice(0.0), sum(twice.stats.cache_hits.values()))
"""


def test_kernel_whose_callee_in_another_file_was_edited_is_compiled_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(PACKAGE, root / "tensorcep", ignore=shutil.ignore_patterns("__pycache__", "_compiled"))
    (tmp_path / "caller.py").write_text(CALLER)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import caller"
    assert python(code, tmp_path, root)[0] == "1.0 0"
    assert python(code, tmp_path, root)[0] == "1.0 1"
    source = root / "tensorcep" / "kernels" / "special.py"
    text = source.read_text(encoding="utf-8")
    edited = text.replace("def log1p_unit(x):", "def log1p_unit(u):\n    return 0.25\n\n\ndef other(x):", 1)
    assert edited != text
    before = source.stat()
    source.write_text(edited, encoding="utf-8")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert python(code, tmp_path, root)[0] == "1.5 0"


def test_kernel_cache_depends_on_what_kernels_take_from_other_files(tmp_path: Path) -> None:
    package = tmp_path / "tensorcep"
    (package / "core").mkdir(parents=True)
    texts = {
        "core/__init__.py": "",
        "core/compile.py": "import numba\n",
        "sizes.py": "from tensorcep.more import (\n    COLUMNS as WIDTH,\n)\n",
        "more.py": "COLUMNS = 8\n",
        "rows.py": "from tensorcep import sizes\nfrom tensorcep.core.compile import kernel\n\n@kernel\ndef f(): pass\n",
        "cli.py": "from tensorcep.rows import f\n",
    }
    for name, text in texts.items():
        (package / name).write_text(text)
    assert [*compiled_sources(package)] == [
        "tensorcep.core.compile",
        "tensorcep.more",
        "tensorcep.rows",
        "tensorcep.sizes",
    ]


def test_kernel_cache_knows_the_sources_of_every_kernel_of_the_package() -> None:
    """A kernel that is defined in a way which the search for kernels misses would be kept for ever."""
    code = (
        "import gc, importlib, pkgutil, tensorcep\n"
        "from numba.core.dispatcher import Dispatcher\n"
        "for m in pkgutil.walk_packages(tensorcep.__path__, 'tensorcep.'):\n"
        "    m.name.endswith('__main__') or importlib.import_module(m.name)\n"
        "print(*{d.py_func.__module__ for d in gc.get_objects() if isinstance(d, Dispatcher)})\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    homes = {name for name in result.stdout.split() if name.startswith("tensorcep.")}
    assert len(homes) > 30
    assert homes <= set(compiled_sources())


NO_PLACE = "import numba; numba.config.CACHE_DIR = '/dev/null/nowhere'"
FULL = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (64, 64))"


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
@pytest.mark.parametrize(("before", "said"), [(NO_PLACE, "[Errno 20]"), (FULL, "[Errno 27]")])
def test_kernel_cache_without_room_is_a_miss_and_one_warning(tmp_path: Path, before: str, said: str) -> None:
    printed, warning = run(tmp_path, before)
    assert printed == "2.0 0"
    assert f"the cache of compiled kernels cannot be used ({said}" in warning
    assert warning.endswith("set NUMBA_CACHE_DIR to a folder that can be written.")
    assert len(warning.splitlines()) == 1


def test_kernel_cache_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    run(tmp_path)
    (path,) = (tmp_path / "cache").rglob("*.entry")
    data = path.read_bytes()
    for damaged in (data[: len(data) - 40], b"", b"\x80\x05junk" + data):
        path.write_bytes(damaged)
        printed, warning = run(tmp_path)
        assert printed == "2.0 0"
        assert "is damaged" in warning
        assert len(warning.splitlines()) == 1
        assert path.read_bytes() != damaged
    assert run(tmp_path) == ("2.0 1", "")


def test_kernel_cache_holds_few_folders_of_other_versions(tmp_path: Path) -> None:
    for n in range(KEPT + 3):
        (tmp_path / "cache" / f"{PREFIX}{n}").mkdir(parents=True)
        os.utime(tmp_path / "cache" / f"{PREFIX}{n}", (n, n))
    run(tmp_path)
    kept = {p.name for p in (tmp_path / "cache").iterdir()}
    assert len(kept) == KEPT + 1
    assert {f"{PREFIX}{n}" for n in range(3, KEPT + 3)} < kept


def test_shipped_kernels_are_used_by_processors_that_have_all_that_their_level_asks_for(tmp_path: Path) -> None:
    """The folder of a wheel is one that `NUMBA_CPU_NAME` filled, under the same name."""
    code = "import tensorcep.core.kernel_cache as k; k.SHIPPED = k.Path({!r}); {}"
    levels = cpu.available_levels()
    for level in levels:
        assert run(tmp_path, NUMBA_CPU_NAME=level)[0] == "2.0 0"
    shipped = tmp_path / "shipped"
    (tmp_path / "cache").rename(shipped)
    used = code.format(str(shipped), "k.target()")
    for level in levels:
        assert run(tmp_path, used, NUMBA_CPU_NAME=level)[0] == "2.0 1"
    assert run(tmp_path, used)[0] == f"2.0 {min(len(levels), 1)}"
    assert run(tmp_path, used, NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES="+sse4.2")[0] == "2.0 0"


@pytest.mark.parametrize(
    ("architecture", "has", "asked", "name"),
    [
        ("x86_64", cpu.V4 | {"gfni"}, None, "x86-64-v4"),
        ("x86_64", cpu.V4 - {"avx512vl"}, None, "x86-64-v3"),
        ("x86_64", cpu.V4, "x86-64-v3", "x86-64-v3"),
        ("aarch64", {"neon"}, None, "aarch64"),
    ],
)
def test_cpu_target_is_the_highest_level_that_the_processor_has(architecture, has, asked, name) -> None:
    target = cpu.choose_target(architecture, has, asked, None)
    assert target.name == name
    assert target.features == (cpu.TUNING if name == "x86-64-v4" else "")
    assert target.wide == (name == "x86-64-v4")


def test_cpu_target_below_the_levels_is_the_processor_itself() -> None:
    for has, asked, features in ((cpu.V3 - {"fma"}, None, None), (cpu.V4, None, "+sse2"), (cpu.V4, "haswell", None)):
        target = cpu.choose_target("x86_64", has, asked, features)
        assert target.name not in cpu.LEVELS
        assert target.cpu == (asked or cpu.binding.get_host_cpu_name())
        assert target.features == features or features is None
    assert cpu.choose_target("x86_64", cpu.V4, None, None, avx=False).name not in cpu.LEVELS
