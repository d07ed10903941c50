"""The run time on Windows and macOS, as far as it is testable here: without Linux's functions, and with stand-ins for theirs."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toys import compile_bundle, small_problem

from tvmconv.isa import ISAS, native
from tvmconv.isa.aarch64 import sysctl
from tvmconv.isa.x86 import ISA as X86
from tvmconv.isa.x86 import flags
from tvmconv.isa.x86.cpuid import CPUID
from tvmconv.platforms import PLATFORMS

MACHINES, MARKS = {"win32": "AMD64", "darwin": "arm64"}, ("windows", "macos")
# Takes from Python what it lacks on Windows or macOS, once NumPy and tvm-ffi are there, which know the system that they were built for.
WITHOUT = """
import builtins, ctypes, fcntl, mmap, os, pathlib, platform, shutil, sys
import numpy, tvm_ffi
SYSTEM = sys.argv.pop(1)
machine, sys.platform = {"win32": ("AMD64", "win32"), "darwin": ("arm64", "darwin")}[SYSTEM]
platform.machine, platform.system = (lambda: machine), (lambda: SYSTEM)
for name in ("sched_getaffinity", "sched_setaffinity"):
    delattr(os, name)
if SYSTEM == "win32":
    for name in ("getuid", "geteuid", "chown", "O_DIRECTORY", "O_CLOEXEC", "register_at_fork", "fork", "sysconf", "getpgid", "killpg"):
        delattr(os, name)
    for name in ("MAP_PRIVATE", "MAP_ANONYMOUS", "MADV_HUGEPAGE", "PROT_READ"):
        delattr(mmap, name)
    sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["pwd"] = None
    class msvcrt:
        LK_NBLCK = 2
        @staticmethod
        def locking(descriptor, kind, size):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sys.modules["msvcrt"] = msvcrt
    os_open = os.open
    def open_file(path, *rest, **more):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return os_open(path, *rest, **more)
    os.open, shutil._use_fd_functions = open_file, False
else:
    del mmap.MADV_HUGEPAGE
class CDLL(ctypes.CDLL):
    def __init__(self, name, *rest, **more):
        if name is None and SYSTEM == "win32":
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(name, *rest, **more)
    def __getattr__(self, name):
        if name in ("renameat2", "prctl", "syscall", "getauxval", "malloc_trim"):
            raise AttributeError(name)
        return super().__getattr__(name)
ctypes.CDLL = CDLL
def refuse(function):
    def call(path, *rest, **more):
        if str(path).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *rest, **more)
    return call
builtins.open, pathlib.Path.open = refuse(builtins.open), refuse(pathlib.Path.open)
# Modules of the systems' own that cannot be here.
import tvmconv.isa.x86.asked, tvmconv.isa.aarch64.sysctl
tvmconv.isa.x86.asked.features = lambda: frozenset(FEATURES)
tvmconv.isa.aarch64.sysctl.features = lambda: frozenset(FEATURES)
"""
USE = """
import warnings
warnings.simplefilter("error")
import numpy as np
import tvmconv
from tvmconv.runtime import pages, processors
from tvmconv.support import cache, files, folders, heap, parents, timing
from tvmconv.isa.machine import missing_features

bundle, work = map(pathlib.Path, sys.argv[1:])
assert processors.usable_processors() >= 1 <= processors.kernel_threads()
registry = tvmconv.load(bundle)
(kernel,) = (registry[each] for each in registry)
data, filter = (np.ones(shape, np.float32) for shape in (kernel.problem.data_shape, kernel.problem.filter_shape))
right = kernel(data, filter)
packed = kernel.pack(filter)
assert np.array_equal(kernel(data, packed), right) and right.flat[0] != 0
assert pages.huge_pages(1000).size == 1000
assert not missing_features([SYSTEM.replace("win32", "windows").replace("darwin", "macos")])
with files.whole_file(work / "file") as part:
    part.write_text("whole")
files.write_whole(work / "file", b"again")
for text in ("first", "second"):
    with folders.staging(work / "place") as made:
        (made / "text").write_text(text)
        with folders.lock(work):
            folders.move_into_place(made, work / "place")
assert sorted(os.listdir(work)) == ["file", "place"] and (work / "place/text").read_text() == "second"
os.environ["TVMCONV_CACHE"] = str(work / "cache")
assert cache.open_cache() is not None
heap.give_back(), parents.end_with_parent(), timing._age()
"""


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_bundle_without_what_linux_has(system: str, tmp_path: Path) -> None:
    """Of this machine's code, which its manifest says is for the other system; the answer and all that is written are right."""
    isa = native()
    assert isa is not None
    # With a prepacked filter transforms round otherwise than without.
    bundle = compile_bundle(tmp_path / "b", [small_problem()], strict=[small_problem()], quick=True)
    manifest = bundle / "manifest.json"
    (port_isa,) = [
        each for each in ISAS if each.port and each.machine == MACHINES[system] and each.platform.prefix in MARKS
    ]
    described = json.loads(manifest.read_text())
    (target,) = described["targets"].values()
    features = [*(["asimd"] if system == "darwin" else target["features"]), *port_isa.platform.marks]
    target["features"] = sorted(features)
    manifest.write_text(json.dumps(described))
    (tmp_path / "work").mkdir()
    script = WITHOUT.replace("FEATURES", repr(features)) + USE
    command = [sys.executable, "-c", script, system, str(bundle), str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_cpu_says_what_linux_says() -> None:
    if native() is not X86:
        pytest.skip("it is asked by code of x86-64")
    from tvmconv.isa.x86 import asked

    tiles = {name for name in CPUID if name.startswith("amx")}
    assert asked.features() == flags.features() & set(CPUID) - tiles


def test_each_system_of_python_finds_features_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in PLATFORMS:
        for port in each.ports:
            if port.detect:
                (isa,) = [isa for isa in ISAS if isa.port is port]
                monkeypatch.setattr(f"{port.detect}.features", lambda: frozenset({"some"}))
                assert isa.detect() == {"some", each.prefix}
                monkeypatch.setattr(platform, "machine", lambda machine=port.machine: machine)
                first = native()
                assert first is not None and first.machine == port.machine


def test_macos_reports_all_that_kernels_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac with every feature runs what is built for it, by Python's detection and by that of C."""

    def report(name: bytes, found: Any, *_: object) -> int:
        found._obj.value = 1
        return 0

    (isa,) = [each for each in ISAS if each.platform.prefix == "macos"]
    monkeypatch.setattr(sysctl.ctypes, "CDLL", lambda name: SimpleNamespace(sysctlbyname=report))
    assert set(map(isa.linux_name, isa.used)) <= sysctl.features()
    in_c = (isa.platform.native / "cpu_aarch64.c").read_text()
    assert all(f'{{"{name}", "{asked.decode()}"}}' in in_c for name, asked in sysctl.NAMES.items())


@pytest.mark.parametrize("lost", ["", "fcntl"])
def test_folders_are_locked(lost: str, tmp_path: Path) -> None:
    """By two processes' descriptors, of which the second waits, or is refused."""
    script = f"""
import fcntl, os, sys, threading, time
{
        '''
class msvcrt:
    LK_NBLCK = 2
    locking = staticmethod(lambda descriptor, kind, size: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB))
sys.modules.update(msvcrt=msvcrt, fcntl=None)
'''
        if lost
        else ""
    }
from pathlib import Path
from tvmconv.support import locks
assert (locks.fcntl is None) == {bool(lost)}
folder = Path(sys.argv[1])
first = locks.lock_folder(folder)
try:
    locks.lock_folder(folder / ".", wait=False)
except BlockingIOError:
    print("refused")
threading.Timer(0.2, os.close, [first]).start()
os.close(locks.lock_folder(folder))
os.close(locks.lock_folder(folder, wait=False))
print(os.listdir(folder))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.split() == ["refused", "[]"], done.stderr
