"""The header of a network's library, and the tables that go with it."""

from __future__ import annotations

import re
from math import prod

from ..isa import Isa
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
  NAME_ERROR_NETWORK = 5   /* the network failed, as NAME_error_text() says */
};
const char *NAME_error_string(int status);
const char *NAME_error_text(void); /* of this thread's last call that failed */

/* 1 if this CPU runs the network, else 0. */
int NAME_supported(void);

/* The arrays that a call reads and writes: contiguous, aligned to their elements, best to NAME_ALIGNMENT bytes, without which they
 * are copied. Outputs do not overlap inputs. */
#define NAME_ALIGNMENT 64
enum { NAME_INPUTS = INPUT_COUNT, NAME_OUTPUTS = OUTPUT_COUNT };
typedef struct NAME_tensor {
  const char *name, *type; /* "float32", "float16", "bfloat16", "int64", ... */
  int rank;
  const int64_t *shape;
  size_t elements, bytes;
} NAME_tensor;
extern const NAME_tensor NAME_inputs[], NAME_outputs[];
ENDS

/* A network has the memory of its calls: as many arenas of ARENA bytes as calls run at a time. Its weights, WEIGHTS bytes, are in the
 * library. */
typedef struct NAME_network NAME_network;
int NAME_open(NAME_network **network);
void NAME_close(NAME_network *network); /* when no call of it runs */

/* Computes outputs of inputs, in the order of the tables, by the library's own threads: as many as this process may use processors.
 * Calls of one network may come from several threads. */
int NAME_run(NAME_network *network, const void *const *inputs, void *const *outputs);

/* Runs task(argument, index) once for each index from 0 to count - 1, at the same time or not, in any threads, and returns 0 when
 * all have returned; another number if it cannot. Tasks need STACK KiB of stack. */
typedef int (*NAME_parallel_for)(void *context, int count, void (*task)(void *argument, int index), void *argument);

/* How one call is to be made. Zeros: as NAME_run does. */
typedef struct NAME_call {
  NAME_parallel_for parallel_for; /* NULL: the library's threads */
  void *context;
  int threads; /* tasks at a time; 0, without parallel_for: as many as this process may use processors */
} NAME_call;
int NAME_run_with(NAME_network *network, const NAME_call *call, const void *const *inputs, void *const *outputs);

#ifdef __cplusplus
}
#endif

#endif
"""


def header(part: NetworkPart, name: str, model: str) -> str:
    """Return the text of ``NAME.h``."""
    lines, taken, counts = [], set[str](), {}
    for kind in ("input", "output"):
        tensors = tensors_of(part.description, f"{kind}s")
        counts[f"{kind.upper()}_COUNT"] = str(len(tensors))
        for number, each in enumerate(tensors):
            macro = f"{name}_{kind.upper()}_{tensor_name(each.name)}"
            if macro in taken:
                macro = f"{macro}_{number}"
            taken.add(macro)
            lines.append(f"#define {macro} {number} /* {each.dtype} {list(each.shape)} */")
    filled = counts | {
        "NAME": name,
        "MODEL": re.sub(r"\*/|/\*|[^ -~]", "?", model),
        "TARGET": part.description["target"],
        "VERSION": __version__,
        "ENDS": "\n".join(lines),
        "ARENA": str(part.description["arena_bytes"]),
        "WEIGHTS": str(weight_bytes(part)),
        "STACK": str(STACK_KIB),
    }
    # In one pass: what is put in may have these words, too.
    return re.sub(rf"\b({'|'.join(filled)})(?![A-Z])", lambda found: filled[found[1]], _HEADER)


def weight_bytes(part: NetworkPart) -> int:
    """Return how many bytes the weights have, with what is between them."""
    return max((offset + array.nbytes for offset, array in part.weights), default=0)


def tables(part: NetworkPart, name: str) -> str:
    """Return ``tables.c``: the inputs and outputs."""
    lines = [f'#include "{name}.h"']
    for kind in ("inputs", "outputs"):
        rows = []
        for number, each in enumerate(tensors_of(part.description, kind)):
            lines.append(f"static const int64_t {kind}{number}[] = {{{', '.join(map(str, each.shape)) or 0}}};")
            elements = prod(each.shape)
            sizes = f"{len(each.shape)}, {kind}{number}, {elements}, {elements * each.numpy.itemsize}"
            rows.append(f"{{{quote(each.name)}, {quote(each.dtype)}, {sizes}}}")
        lines.append(f"const {name}_tensor {name}_{kind}[] = {{\n    {join_rows(rows or ['{0}'])}}};")
    return "\n".join((*lines, ""))


def targets(part: NetworkPart, isa: Isa) -> str:
    """Return ``tvmconv-targets.h``, which follows ``struct feature``: the features of the target."""
    features = isa.c_rows(part.description["features"])
    rows = join_rows(features or ["{0}"])
    return f"""\
static const struct feature features[] = {{
    {rows}}};
static const struct {{
  const struct feature *features;
  int count;
}} targets[] = {{{{features, {len(features)}}}}};
enum {{ TARGETS = 1 }};
"""
