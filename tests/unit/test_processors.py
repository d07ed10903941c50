"""The default number of threads: affinity, quotas of control groups, OMP_NUM_THREADS; in Python and in C."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from toys import run_python

from tvmconv.lowering.cpu.linker import NATIVE, compile_runtime
from tvmconv.runtime.processors import cores, kernel_threads, quota, usable_processors

TWO = "30 23 0:26 {root} {at} rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate\n"
ONE = "31 23 0:27 {root} {at} rw,nosuid shared:5 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
SETS = "32 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
UNLIMITED = 2**31 - 1
# Name: lines of mountinfo, of /proc/self/cgroup, files of limits, processors.
CASES = {
    "no control groups": ("", "", {}, None),
    "no limit": (TWO.format(root="/", at="/sys/fs/cgroup"), "0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
    "whole": (TWO.format(root="/", at="/sys/fs/cgroup"), "0::/\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
    "rounded up": (TWO.format(root="/", at="/g"), "0::/a\n", {"g/a/cpu.max": "250000 100000\n"}, 3),
    "less than one": (TWO.format(root="/", at="/g"), "0::/a\n", {"g/a/cpu.max": "1000 100000\n"}, 1),
    "a group above": (
        TWO.format(root="/", at="/g"),
        "0::/a/b/c\n",
        {"g/a/b/c/cpu.max": "max 100000\n", "g/a/b/cpu.max": "800000 100000\n", "g/a/cpu.max": "350000 50000\n"},
        7,
    ),
    "the group that is mounted": (
        TWO.format(root="/docker/1", at="/g"), "0::/docker/1/in\n", {"g/in/cpu.max": "500000 100000\n", "g/cpu.max": "max 100000\n"}, 5,
    ),
    "like the group that is mounted": (
        TWO.format(root="/docker/1", at="/g"), "0::/docker/12\n", {"g/cpu.max": "300000 100000\n", "g/2/cpu.max": "1 1\n"}, 3,
    ),
    "outside of what is mounted": (TWO.format(root="/", at="/g"), "0::/../up\n", {"g/cpu.max": "400000 100000\n"}, 4),
    "version 1": (
        SETS + ONE.format(root="/", at="/c/cpu"),
        "5:cpuset:/elsewhere\n4:cpu,cpuacct:/a/b\n0::/\n",
        {
            "c/cpu/a/b/cpu.cfs_quota_us": "150000\n", "c/cpu/a/b/cpu.cfs_period_us": "100000\n",
            "c/cpu/a/cpu.cfs_quota_us": "-1\n", "c/cpu/a/cpu.cfs_period_us": "100000\n",
        },
        2,
    ),
    "version 1, no limit": (
        ONE.format(root="/", at="/c"), "1:cpu:/\n", {"c/cpu.cfs_quota_us": "-1\n", "c/cpu.cfs_period_us": "100000\n"}, None,
    ),
    "both": (
        TWO.format(root="/", at="/g") + ONE.format(root="/", at="/c"),
        "2:cpuacct,cpu:/x\n0::/y\n",
        {"g/y/cpu.max": "600000 100000\n", "c/x/cpu.cfs_quota_us": "90000\n", "c/x/cpu.cfs_period_us": "30000\n"},
        3,
    ),
    "not numbers": (TWO.format(root="/", at="/g"), "0::/\n", {"g/cpu.max": "lots 100000\n"}, None),
    "no period": (TWO.format(root="/", at="/g"), "0::/\n", {"g/cpu.max": "100000\n"}, None),
}  # fmt: skip


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("processors") / "processors.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", NATIVE / "processors.c", "-o", library], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("name", CASES)
def test_quota(name: str, in_c: ctypes.CDLL, tmp_path: Path) -> None:
    mounts, groups, files, expected = CASES[name]
    for path, text in {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **files}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert quota(tmp_path) == expected
    assert in_c.tvmconv_quota(str(tmp_path).encode()) == (expected or UNLIMITED)


# Name: the lists of siblings by processor, the processors allowed, threads.
CORES: dict[str, tuple[dict[int, str], list[int], int]] = {
    "two of a core, up to eight": ({each: f"{each // 2 * 2}-{each // 2 * 2 + 1}" for each in range(8)}, list(range(8)), 8),
    "neighbours": ({each: f"{each // 2 * 2}-{each // 2 * 2 + 1}" for each in range(24)}, list(range(24)), 12),
    "halves": ({each: f"{each % 64},{each % 64 + 64}" for each in range(128)}, list(range(128)), 64),
    "four of a core": ({each: ",".join(str(each % 16 + 16 * n) for n in range(4)) for each in range(64)}, list(range(64)), 16),
    "never fewer than eight": ({each: f"{each // 2 * 2}-{each // 2 * 2 + 1}" for each in range(10)}, list(range(10)), 8),
    "some of both halves": ({each: f"{each % 64},{each % 64 + 64}" for each in range(128)}, [*range(10), *range(70, 76)], 12),
    "cores of one thread": ({each: str(each) for each in range(16)}, list(range(16)), 16),
    "some cores have two": ({each: f"{each // 2 * 2}-{each // 2 * 2 + 1}" if each < 16 else str(each) for each in range(24)}, list(range(24)), 16),
    "nothing known": ({}, list(range(12)), 12),
}  # fmt: skip


@pytest.mark.parametrize("name", CORES)
def test_cores(name: str, in_c: ctypes.CDLL, tmp_path: Path) -> None:
    siblings, allowed, expected = CORES[name]
    for processor, text in siblings.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n")
    flags = bytes(each in allowed for each in range(256))
    assert cores(allowed, tmp_path) == in_c.tvmconv_cores(str(tmp_path).encode(), flags, len(flags)) == expected


# Name: lists of nodes, capacities, the processors allowed, threads; two processors of each core where it says so.
TOPOLOGIES: dict[str, tuple[dict[int, str], list[int], list[int], int]] = {
    "two sockets": ({0: "0-15,32-47", 1: "16-31,48-63"}, [], list(range(64)), 32),
    "most of one socket": ({0: "0-15,32-47", 1: "16-31,48-63"}, [], list(range(4, 32)), 16),
    "nodes of no processor are none": ({0: "0-23", 2: ""}, [], list(range(24)), 24),
    "never fewer than eight": ({0: "0-5", 1: "6-11"}, [], list(range(12)), 8),
    "up to eight": ({0: "0-3", 1: "4-7"}, [1024] * 4 + [512] * 4, list(range(8)), 8),
    "strong cores and others": ({0: "0-23"}, [1024] * 10 + [512] * 14, list(range(24)), 10),
    "the strongest that are allowed": ({0: "0-23"}, [1024] * 10 + [512] * 14, list(range(8, 24)), 8),
    "others alone": ({}, [1024] * 4 + [512] * 12, list(range(4, 16)), 12),
}
# Name: the list of cores of performance, capacities, the processors allowed, threads.
PERFORMANCE: dict[str, tuple[str, list[int], list[int], int]] = {
    "of performance and others": ("0-9", [], list(range(24)), 10),
    "others alone": ("0-9", [], list(range(10, 24)), 14),
    "capacities say more": ("0-9", [1024] * 9 + [512] * 15, list(range(24)), 9),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_nodes_and_capacities(name: str, in_c: ctypes.CDLL, tmp_path: Path) -> None:
    lists, capacities, allowed, expected = TOPOLOGIES[name]
    system = tmp_path / "sys/devices/system"
    files = {f"node/node{each}/cpulist": text for each, text in lists.items()}
    files |= {f"cpu/cpu{each}/cpu_capacity": str(number) for each, number in enumerate(capacities)}
    if lists:
        files["node/has_cpu"] = ",".join(str(each) for each, text in lists.items() if text)
    for path, text in files.items():
        (system / path).parent.mkdir(parents=True, exist_ok=True)
        (system / path).write_text(f"{text}\n")
    flags = bytes(each in allowed for each in range(256))
    assert cores(allowed, tmp_path) == in_c.tvmconv_cores(str(tmp_path).encode(), flags, len(flags)) == expected


@pytest.mark.parametrize("name", PERFORMANCE)
def test_cores_of_performance(name: str, in_c: ctypes.CDLL, tmp_path: Path) -> None:
    performance, capacities, allowed, expected = PERFORMANCE[name]
    files = {f"system/cpu/cpu{each}/cpu_capacity": str(number) for each, number in enumerate(capacities)}
    for path, text in {"cpu_core/cpus": performance, **files}.items():
        (file := tmp_path / "sys/devices" / path).parent.mkdir(parents=True)
        file.write_text(f"{text}\n")
    flags = bytes(each in allowed for each in range(256))
    assert cores(allowed, tmp_path) == in_c.tvmconv_cores(str(tmp_path).encode(), flags, len(flags)) == expected


def test_a_quota_that_changes(tmp_path: Path) -> None:
    """It is looked at again after some seconds, not in every call."""
    objects = {
        "shared": compile_runtime(Path(__file__).with_name("changing_quota.c")),
        "quota": compile_runtime("processors.c", "-Dtvmconv_default_threads=unused"),
    }
    for name, content in objects.items():
        (tmp_path / f"{name}.o").write_bytes(content)
    subprocess.run(["cc", "-shared", *(f"{name}.o" for name in objects), "-o", "quota.so"], check=True, cwd=tmp_path)
    files = {"proc/self/mountinfo": TWO.format(root="/", at="/g"), "proc/self/cgroup": "0::/a\n"}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "g/a").mkdir(parents=True)
    script = """
import ctypes, os, tvm_ffi
from pathlib import Path
root = Path(sys.argv[1])
ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi(), os.RTLD_GLOBAL)
after = ctypes.CDLL(str(root / "quota.so")).threads_after
after.argtypes = [ctypes.c_double, ctypes.c_char_p]
for processors, seconds in ((33, 0), (2, 1), (2, 6), (16, 1), (16, 6), (1, 60)):
    (root / "g/a/cpu.max").write_text(f"{processors}00000 100000\\n")
    print(after(seconds, str(root).encode()), end=" ")
"""
    assert run_python(script, tmp_path) == "33 33 2 2 16 1"


def test_no_such_folder(in_c: ctypes.CDLL, tmp_path: Path) -> None:
    assert quota(tmp_path / "none") is None
    assert in_c.tvmconv_quota(str(tmp_path / "none").encode()) == UNLIMITED


@pytest.mark.parametrize("text", ["1", " 1 ", "1,4", "100000", "0", "-3", "many", "1x", "", None])
def test_environment(text: str | None, in_c: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least counts; what is no number does not."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if text is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", text)
    one = text is not None and text.strip()[:1] == "1" and text.strip() not in ("1x", "100000")
    assert kernel_threads() == in_c.tvmconv_default_threads() == (1 if one else usable_processors())


def test_affinity(in_c: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert kernel_threads() == in_c.tvmconv_default_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)
