"""Memory on huge pages: zeros, apart from each other, where the system may use such pages, and given back."""

from __future__ import annotations

import errno
import gc
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tvmconv.runtime import pages
from tvmconv.runtime.arrays import LINE_BYTES

F32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No slab of other tests."""
    monkeypatch.setattr(pages, "_rests", [])


def mappings() -> Iterator[tuple[int, int, list[str]]]:
    """Yield where each mapping of this process begins and ends, and its flags."""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first:
            begin, end = (int(each, 16) for each in first.split("-"))
        elif first == "VmFlags:":
            yield begin, end, rest


def test_arrays_are_zeros_that_share_no_memory() -> None:
    shapes = [(3, 5), (), (0, 4), (100, 100), (1 << 22,), (1,), (1 << 23,), (7,)]
    with ThreadPoolExecutor(4) as threads:
        arrays = list(threads.map(lambda shape: pages.zeros(shape, F32), shapes * 20))
    assert [array.shape for array in arrays] == shapes * 20
    assert all(array.flags.carray and array.ctypes.data % LINE_BYTES == 0 for array in arrays)
    for number, array in enumerate(arrays):
        assert not array.any()
        array.fill(number + 1)
    assert all((array == number + 1).all() for number, array in enumerate(arrays))
    places = sorted((array.ctypes.data, array.nbytes) for array in arrays if array.nbytes)
    assert all(begin + size <= after for (begin, size), (after, _) in pairwise(places))


def test_filters_of_a_model_share_pages() -> None:
    first, second = pages.zeros((9,), F32), pages.zeros((64,), F32)
    assert second.ctypes.data - first.ctypes.data == LINE_BYTES


def test_the_system_may_use_huge_pages_and_gets_them_back() -> None:
    array = pages.zeros((100,), F32)
    address = array.ctypes.data
    ((_, _, flags),) = [each for each in mappings() if each[0] <= address < each[1]]
    if Path("/sys/kernel/mm/transparent_hugepage").exists():
        assert "hg" in flags and "sh" not in flags  # memory that forks share gets none
    pages._rests.clear()
    gc.collect()
    array[:] = 1  # still there
    del array
    gc.collect()
    assert not [each for each in mappings() if each[0] <= address < each[1] and "hg" in each[2]]


class RefusedMmap(mmap.mmap):
    """Memory of a system that was built without huge pages."""

    def madvise(self, *advice: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


def test_memory_is_there_where_the_system_refuses_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages.mmap, "mmap", RefusedMmap)
    array = pages.zeros((1 << 23,), F32)
    assert array.flags.carray and not array.any()


@pytest.mark.parametrize(
    ("text", "setting"),
    [("always [madvise] never\n", "madvise"), ("[always] madvise never\n", "always"), ("", "never"), (None, "never")],
)
def test_what_the_system_gives_is_said(
    text: str | None, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "enabled"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(pages, "_SETTING", path)
    assert pages.setting() == setting
