"""The C header of a network's library, and its tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from ..family import Extent
from ..runtime.networks.extents import FreeExtents
from ..runtime.networks.tensors import tensors_of
from ..version import __version__
from .header import STACK_KIB, join_rows, quote
from .names import tensor_name
from .network_part import NetworkPart

_HEADER = """\
/* NAME.h: the network MODEL, for TARGET, by tvmconv VERSION. See docs/c.md of tvmconv. */
#ifndef NAME_H
#define NAME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */
enum {
  NAME_OK = 0,
  NAME_ERROR_CPU = 1,      /* this CPU lacks features that the network was compiled for */
  NAME_ERROR_ARGUMENT = 2, /* an argument is NULL, not aligned to its elements, or out of range */
  NAME_ERROR_MEMORY = 3,   /* there is no memory */
  NAME_ERROR_THREADS = 4,  /* the function for threads failed, or did not run every task once */
  NAME_ERROR_NETWORK = 5@COMMA@  /* the network failed, as NAME_error_text() says */
@ERRORS@};
const char *NAME_error_string(int status);
const char *NAME_error_text(void); /* of this thread's last call that failed */

/* Returns 1 if this CPU runs the network, else 0. */
int NAME_supported(void);

/* Inputs and outputs: contiguous arrays, aligned to their elements, best to NAME_ALIGNMENT bytes; others are copied. Outputs must
 * not overlap inputs. */
#define NAME_ALIGNMENT 64
enum { NAME_INPUTS = INPUT_COUNT, NAME_OUTPUTS = OUTPUT_COUNT@AXES@ };
typedef struct NAME_tensor {
  const char *name, *type; /* "float32", "float16", "bfloat16", "int64", ... */
  int rank;
@SIZES@
} NAME_tensor;
extern const NAME_tensor NAME_inputs[], NAME_outputs[];
ENDS
@EXTENTS@
/* A network owns an arena for each call that runs at the same time, of @ARENA@.
 * Its weights, WEIGHTS bytes, are in the library. */
typedef struct NAME_network NAME_network;
int NAME_open(NAME_network **network);
void NAME_close(NAME_network *network); /* when no call of it runs */
@MEASURES@
/* Computes outputs from inputs, in the order of the tables, by the library's own threads: one for each processor that the process
 * may use. Calls of one network may come from several threads. */
int NAME_run(NAME_network *network, @GIVEN@const void *const *inputs, void *const *outputs);

/* Runs task(argument, index) once for each index from 0 to count - 1, at the same time or not, in any threads, and returns 0 when
 * all have returned; another number if it cannot. Tasks need STACK KiB of stack. */
typedef int (*NAME_parallel_for)(void *context, int count, void (*task)(void *argument, int index), void *argument);

/* Options of one call. Zeros: as NAME_run. */
typedef struct NAME_call {
  NAME_parallel_for parallel_for; /* NULL: the library's threads */
  void *context;
  int threads; /* tasks at a time; 0, without parallel_for: one for each processor that the process may use */
@WORKSPACE@} NAME_call;
int NAME_run_with(NAME_network *network, const NAME_call *call, @GIVEN@const void *const *inputs, void *const *outputs);

#ifdef __cplusplus
}
#endif

#endif
"""
# Parts of the header for a network whose extents are all fixed.
_FIXED = {
    "COMMA": " ",
    "ERRORS": "",
    "AXES": "",
    "SIZES": "  const int64_t *shape;\n  size_t elements, bytes;",
    "EXTENTS": "",
    "ARENA": "ARENA bytes",
    "MEASURES": "",
    "GIVEN": "",
    "WORKSPACE": "",
}
# The same for a network with free extents.
_FREE = {
    "COMMA": ",",
    "ERRORS": """\
  NAME_ERROR_EXTENTS = 6,  /* the network does not take these extents, as NAME_error_text() says */
  NAME_ERROR_WORKSPACE = 7 /* the workspace is smaller than NAME_workspace_bytes() says for these extents */
""",
    "AXES": ", NAME_OUTPUT_AXES = AXIS_COUNT",
    "SIZES": """\
  const int64_t *shape; /* -1 - n: extent n; of outputs -1 - NAME_EXTENTS: as NAME_output_extents() says */
  size_t element_bytes;""",
    "EXTENTS": """
/* The extents that each call gives, in the order of the table. */
typedef struct NAME_extent {
  const char *name;
  int64_t least, greatest, multiple;
} NAME_extent;
#define NAME_EXTENTS EXTENT_COUNT
extern const NAME_extent NAME_extents[];
EXTENT_LINES
""",
    "ARENA": "what the largest takes, as NAME_workspace_bytes() says",
    "MEASURES": """
/* Writes the shapes of the outputs for some extents, one behind the other: NAME_OUTPUT_AXES numbers. */
int NAME_output_extents(NAME_network *network, const int64_t *extents, int64_t *shapes);
/* Returns the bytes of a workspace for some extents; 0: the network does not take them, as NAME_error_text() says. */
size_t NAME_workspace_bytes(NAME_network *network, const int64_t *extents);
""",
    "GIVEN": "const int64_t *extents, ",
    "WORKSPACE": """\
  void *workspace; /* NULL: the network's; else at least NAME_workspace_bytes(), of this call alone */
  size_t workspace_bytes;
""",
}


def header(part: NetworkPart, name: str, model: str) -> str:
    """Return the text of ``NAME.h``."""
    lines, counts, extents = [], {}, extents_in(part)
    for kind in ("input", "output"):
        tensors = tensors_of(part.description, f"{kind}s")
        counts[f"{kind.upper()}_COUNT"] = str(len(tensors))
        described = [f"{each.dtype} {shape_text(each.shape, extents if kind == 'output' else ())}" for each in tensors]
        lines += _positions(f"{name}_{kind.upper()}", [each.name for each in tensors], described)
    filled = counts | {
        "NAME": name,
        "MODEL": _comment(model),
        "TARGET": part.description["target"],
        "VERSION": __version__,
        "ENDS": "\n".join(lines),
        "WEIGHTS": str(part.weight_bytes),
        "STACK": str(STACK_KIB),
    }
    described = [f"{each.low} to {each.high}{multiple_text(each)}" for each in extents]
    filled |= {
        "ARENA": str(part.description["arena_bytes"]),
        "AXIS_COUNT": str(sum(len(each.shape) for each in tensors_of(part.description, "outputs"))),
        "EXTENT_COUNT": str(len(extents)),
        "EXTENT_LINES": "\n".join(_positions(f"{name}_EXTENT", [each.name for each in extents], described)),
    }
    text = _HEADER
    for place, content in (_FREE if extents else _FIXED).items():
        text = text.replace(f"@{place}@", content)
    # In one pass: the inserted texts may have these words, too.
    return re.sub(rf"\b({'|'.join(filled)})(?![A-Z])", lambda found: filled[found[1]], text)


def extents_in(part: NetworkPart) -> list[Extent]:
    """Return the free extents; empty: all are fixed."""
    return FreeExtents(part.description, tensors_of(part.description, "inputs")).extents


def _positions(prefix: str, names: Sequence[str], described: Sequence[str]) -> list[str]:
    """Return the definitions of macros that give the positions of tensors by name."""
    taken: list[str] = []
    for number, each in enumerate(names):
        macro = f"{prefix}_{tensor_name(each)}"
        while macro in taken:
            macro += f"_{number}"
        taken.append(macro)
    return [f"#define {each} {at} /* {text} */" for at, (each, text) in enumerate(zip(taken, described, strict=True))]


def shape_text(shape: Sequence[int | str], divided: Sequence[Extent]) -> str:
    """Return a shape for comments: numbers, and names or formulas of free extents, those `divided` by their multiples."""
    text = f"[{', '.join(map(str, shape))}]"
    for each in divided:
        if each.multiple > 1:
            text = re.sub(rf"(?<!\w){re.escape(each.name)}(?![\w\[])", f"{each.name}/{each.multiple}", text)
    return _comment(text)


def _comment(text: str) -> str:
    return re.sub(r"\*/|/\*|[^ -~]", "?", text)


def multiple_text(extent: Extent) -> str:
    """Return the part of a comment that names an extent's multiple; empty if that is 1."""
    return f", a multiple of {extent.multiple}" if extent.multiple > 1 else ""


def tables(part: NetworkPart, name: str) -> str:
    """Return ``tables.c``: the inputs, the outputs and the free extents."""
    lines = [f'#include "{name}.h"']
    extents = extents_in(part)
    places = {each.name: -1 - at for at, each in enumerate(extents)}
    for kind in ("inputs", "outputs"):
        rows = []
        for number, each in enumerate(tensors_of(part.description, kind)):
            named = places if kind == "inputs" else {}
            shape = [named.get(size, -1 - len(extents)) if isinstance(size, str) else size for size in each.shape]
            lines.append(f"static const int64_t {kind}{number}[] = {{{', '.join(map(str, shape)) or 0}}};")
            elements = 1 if extents else prod(each.shape)
            bytes_ = elements * each.numpy.itemsize
            sizes = f"{len(shape)}, {kind}{number}, {bytes_ if extents else f'{elements}, {bytes_}'}"
            rows.append(f"{{{quote(each.name)}, {quote(each.dtype)}, {sizes}}}")
        lines.append(f"const {name}_tensor {name}_{kind}[] = {{\n    {join_rows(rows or ['{0}'])}}};")
    if extents:
        rows = [f"{{{quote(each.name)}, {each.low}, {each.high}, {each.multiple}}}" for each in extents]
        lines.append(f"const {name}_extent {name}_extents[] = {{\n    {join_rows(rows)}}};")
    return "\n".join((*lines, ""))
