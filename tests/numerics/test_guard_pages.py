"""No kernel reads or writes outside its arrays: each lies against memory that may not be touched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from toys import compile_bundle, run_python, small_problem

from tvmconv import ops
from tvmconv.problem import Problem

# `place(array, at_end)` copies an array into pages of its own, against an unmapped page before or after it.
PLACE = """
import ctypes, mmap
import numpy as np
libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
def place(array, at_end):
    pages = -(-array.nbytes // PAGE) + 2
    memory = mmap.mmap(-1, pages * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (address, address + (pages - 1) * PAGE):
        assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0) == 0
    start = (pages - 1) * PAGE - array.nbytes if at_end else PAGE
    placed = np.frombuffer(memory, np.uint8, array.nbytes, start).view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed
"""
RUN = """
import tvmconv
from tvmconv import fills
from tvmconv.measure import difference
registry = tvmconv.load(sys.argv[1], threads=int(sys.argv[2]))
for signature in registry:
    print(signature, flush=True)
    kernel = registry[signature]
    arrays, expected = fills.exact_case(kernel.problem)
    def check(*inputs):
        out = place(np.zeros(expected.shape, arrays.data.dtype), at_end)
        kernel(*inputs, out=out)
        wrong = difference(out, expected, kernel.info.numerical_class, kernel.problem.dtype)
        assert not wrong, (signature, wrong)
    for at_end in (False, True):
        data, filter, *bias = [place(array, at_end) for array in arrays if array is not None]
        check(data, filter, *bias)
        # The packed filter too lies against such a page, when it is written and when it is read.
        tvmconv.kernel.aligned_empty = lambda shape, dtype: place(np.zeros(shape, dtype), at_end)
        packed = kernel.pack(filter)
        check(data, packed, *bias)
print("all within bounds")
"""


def _problems() -> Iterable[Problem]:
    for dtype in ("f32", "f16", "bf16"):
        yield small_problem(dtype, bias=True)
    yield small_problem(in_channels=0, bias=True)
    for data_format in ("NXC", "NCX"):
        for filter_format in ("XIO", "OIX"):
            yield small_problem(data_format=data_format, filter_format=filter_format)
    for groups, inputs, outputs in ((3, 9, 15), (5, 5, 5), (17, 17, 34), (16, 16, 16), (4, 12, 16), (8, 32, 32)):
        for dtype in ("f32", "bf16"):
            yield small_problem(dtype, groups=groups, in_channels=inputs, out_channels=outputs)
    for extents in ((10, 14), (9, 11)):
        for auto_pad in ("valid", "same_upper"):
            # Winograd: whole tiles read in place, and tiles that reach outside.
            yield ops.convolution(
                (2, *extents, 24), (3, 3, 24, 40), strides=(1, 1), dilations=(1, 1), auto_pad=auto_pad
            )
    pads = {"strides": (2, 3), "dilations": (2, 1), "pads_begin": (3, 0), "pads_end": (1, 2)}
    yield ops.convolution((1, 11, 13, 3), (3, 5, 3, 40), **pads)
    yield ops.convolution((2, 30, 5), (4, 5, 33), strides=(3,), dilations=(2,), pads_begin=(2,), pads_end=(0,))
    yield ops.convolution((1, 5, 6, 7, 6), (2, 3, 2, 6, 18), strides=(1, 2, 1), dilations=(1,) * 3, auto_pad="valid")
    yield ops.convolution((1, 1, 1, 129), (1, 1, 129, 1), strides=(1, 1), dilations=(1, 1), auto_pad="valid")
    # Rows whose last tile is moved back, and pixels copied together.
    yield ops.convolution((2, 7, 7, 18), (1, 1, 18, 48), strides=(1, 1), dilations=(1, 1), auto_pad="valid")
    yield ops.convolution((2, 9, 15, 18), (1, 1, 18, 48), strides=(2, 2), dilations=(1, 1), auto_pad="valid")
    # A filter that is prefetched, also beyond its end.
    yield ops.convolution_backprop_data(
        (1, 3, 4, 520), (4, 4, 512, 520), strides=(2, 2), dilations=(1, 1), auto_pad="valid"
    )
    for dtype in ("f32", "f16"):
        for attributes in (pads, {**pads, "strides": (1, 1)}, {**pads, "strides": (3, 2), "dilations": (1, 2)}):
            yield ops.convolution_backprop_data((2, 5, 7, 18), (3, 4, 7, 18), dtype=dtype, **attributes)
    yield ops.convolution_backprop_data(
        (1, 6, 4, 8), (2, 2, 3, 8), (20, 9), strides=(2, 2), dilations=(1, 1), groups=2, auto_pad="same_lower"
    )


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
def test_guard_pages(tmp_path: Path, target: str) -> None:
    bundle = compile_bundle(tmp_path / "bundle", dict.fromkeys(_problems()), target)
    for threads in (1, 3):
        assert run_python(PLACE + RUN, bundle, threads).endswith("all within bounds")


@pytest.mark.parametrize(("at_end", "index"), [(False, -1), (True, 1000)])
def test_the_guards_guard(at_end: bool, index: int) -> None:
    script = f"""import sys
{PLACE}
placed = place(np.zeros(1000, np.float32), {at_end})
first = ctypes.c_float.from_address(placed.ctypes.data)
last = ctypes.c_float.from_address(placed.ctypes.data + 4 * 999)
print(first.value + last.value, flush=True)
ctypes.c_float.from_address(placed.ctypes.data + 4 * {index}).value
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0.0\n", -11), done.stderr
