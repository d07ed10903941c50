"""Kernels of families in a network's library: their objects, and a C function for each padding that they are called with."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

from ..kernels.build import CODE
from ..kernels.families import PADS

_HEAD = """\
#include <string.h>
#include <tvm/ffi/c_api.h>

enum { MOST_ARGUMENTS = 16 };
typedef int (*Function)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static inline int call(Function function, const int64_t* pads, int rank, void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  TVMFFIAny given[MOST_ARGUMENTS];
  memcpy(given, args, (size_t)count * sizeof *args);
  for (int axis = 0; axis < rank; axis++) given[count++] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = pads[axis]};
  return function(self, given, count, result);
}
"""


def is_family(function: tirx.PrimFunc) -> bool:
    """Return whether a function is a stub for a family's kernel."""
    return PADS in (function.attrs or {})


def family_source(functions: Mapping[str, tirx.PrimFunc]) -> tuple[str, dict[str, tirx.PrimFunc]]:
    """Return the C file of the stubs for families' kernels, and the distinct kernels by their names in this file."""
    text, kernels = _HEAD, dict[bytes, tuple[str, tirx.PrimFunc]]()
    for name, function in functions.items():
        code = function.attrs[CODE].numpy().tobytes()
        kernel, _ = kernels.setdefault(code, (f"{name}_family", function))
        pads = [int(pad) for pad in function.attrs[PADS]]
        text += f"""\
int __tvm_ffi_{kernel}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
int __tvm_ffi_{name}(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {{
  static const int64_t pads[] = {{{", ".join(map(str, pads))}}};
  return call(__tvm_ffi_{kernel}, pads, {len(pads)}, self, args, count, result);
}}
"""
    return text, dict(kernels.values())
