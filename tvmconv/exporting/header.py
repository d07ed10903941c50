"""The C header of an exported library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

from ..dtypes import ROWS
from ..family import ProblemFamily
from ..problem import Problem
from ..version import __version__
from .plan import Function, Plan

_ERRORS = (
    ("CPU", "this CPU lacks features that the kernel was built for"),
    ("ARGUMENT", "an argument is NULL, not aligned to its elements, or out of range"),
    ("MEMORY", "the allocator has no memory"),
    ("WORKSPACE", "the workspace is too small for this number of threads"),
    ("THREADS", "the hook for threads failed, or did not run every task once"),
    ("TILES", "the system does not let this process use AMX's tiles"),
    ("KERNEL", "the kernel refused its arguments: an error in tvmconv"),
)
_COMMON = """\
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
ERRORS
};

/* Returns the text of an error number; it is never freed. */
const char *NAME_error_string(int status);

/* Returns 1 if this CPU runs all kernels, else 0. The functions of other kernels return NAME_ERROR_CPU. The kernels are for
 * TARGETS. */
int NAME_supported(void);

/* Best alignment of arrays; they must be aligned to their elements. */
#define NAME_ALIGNMENT 64

/* Runs task(argument, index) once for each index from 0 to count - 1, at the same time or not, in any threads, and returns 0 when
 * all have returned; another number if it cannot. Tasks need THREAD_STACK KiB of stack. */
typedef int (*NAME_parallel_for)(void *context, int count, void (*task)(void *argument, int index), void *argument);

/* Sets the function that runs the tasks of calls, up to `threads` at a time. NULL: ONE_BY_DEFAULT, in `threads` shares.
 * Set hooks before the first call of a kernel. */
int NAME_set_parallel_for(NAME_parallel_for fn, void *context, int threads);

/* Sets the allocator of workspaces for calls without one, called from any thread; NULL and NULL: malloc. `allocate` may return NULL. */
int NAME_set_allocator(void *(*allocate)(void *context, size_t bytes, size_t alignment),
    void (*release)(void *context, void *block), void *context);

/* Options of one call, for the functions that end in _with. Zeros: the hooks'. */
typedef struct NAME_call {
  NAME_parallel_for parallel_for; /* NULL: the hook's */
  void *context;
  int threads;                 /* tasks at a time; 0: the hook's */
  void *workspace;             /* NULL: the allocator's; else at least ..._workspace_bytes(threads), of this call alone */
  size_t workspace_bytes;
} NAME_call;

/* All kernels by their signatures, for programs that choose at run time. */
typedef struct NAME_array {
  const char *name, *type; /* "data", "filter", "bias", "scale", "slope", "residual", "output"; "f32", "f16", "bf16", "u8", "s8", "s16", "s32" */
  size_t elements, bytes;
} NAME_array;
typedef struct NAME_kernel {
  const char *name, *signature;
  int inputs;               /* data, filter and so on, as in the function's arguments */
  const NAME_array *arrays; /* of the inputs, then of the output */
  int (*run)(const NAME_call *call, const void *const *inputs, void *output);
  int (*run_packed)(const NAME_call *call, const void *const *inputs, void *output);
  int (*pack)(const void *filter, void *packed);
  size_t (*packed_bytes)(void);
  size_t (*workspace_bytes)(int threads);
  size_t (*packed_workspace_bytes)(int threads);
} NAME_kernel;
extern const NAME_kernel *const NAME_kernels[];
extern const int NAME_kernel_count;
const NAME_kernel *NAME_find(const char *signature); /* NULL if there is none */
"""
# Marks NAME in a bundle's file name, which must not be replaced by the library's name.
_KEPT = "\0"
# Stack of a task: frames of kernels, with room for the program's own.
STACK_KIB = 1024


def header(plan: Plan, threads: str) -> str:
    """Return the text of ``NAME.h``; `threads` as in `ArchiveOptions`."""
    errors = ",\n".join(f"  NAME_ERROR_{name} = {n} /* {text} */" for n, (name, text) in enumerate(_ERRORS, 1))
    own = {"none": "the calling thread", "pthreads": "the library's own threads", "openmp": "OpenMP"}[threads]
    common = _COMMON.replace("ERRORS", _commas_first(errors)).replace("TARGETS", ", ".join(plan.targets))
    common = common.replace("THREAD_STACK", str(STACK_KIB)).replace("ONE_BY_DEFAULT", own)
    used = {dtype for each in (*plan.functions, *plan.families) for _, dtype in each.problem.arrays.values()}
    types = sorted(each for each in used if ROWS[each].c_definition)
    parts = [
        f"/* {plan.name}.h: convolution kernels of {_comment(plan.bundle.path.name)}, for {plan.isa.name}, by tvmconv {__version__}. Functions"
        " return 0, or an error's\n * number. They may be called from several threads. See docs/c.md of tvmconv. */",
        common,
        *(ROWS[each].c_definition for each in types),
        *map(_function, (*plan.functions, *plan.families)),
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    ]
    return re.sub(r"\bNAME(?=[_.])", plan.name, "\n".join(parts)).replace(_KEPT, "")


def _commas_first(errors: str) -> str:
    """Return enumerators with each comma before the comment."""
    lines = errors.split(",\n")
    return "\n".join(line.replace(" /*", ", /*") if n < len(lines) - 1 else line for n, line in enumerate(lines))


def parameters(problem: Problem, names: Iterable[str], packed: bool = False) -> str:
    """Return the typed parameters of a function: the inputs `names`, then the output."""
    operands = problem.operands
    texts = [
        "const void *packed" if packed and name == "filter" else f"const {ROWS[operands[name][1]].c} *{name}"
        for name in names
    ]
    return ", ".join([*texts, f"{ROWS[problem.types.output].c} *output"])


def _function(function: Function) -> str:
    """Return a kernel's comment and declarations in the header."""
    problem, name = function.problem, f"NAME_{function.name}"
    arrays = {each: shape for each, (shape, _) in problem.operands.items()}
    algorithms = dict.fromkeys(f"{each.entry.algorithm} for {each.entry.target}" for each in function.variants)
    extents = "" if function.family is None else "const int64_t *extents, "
    plain, packed = (extents + parameters(problem, arrays, packed=each) for each in (False, True))
    if function.family is None:
        shapes = ", ".join(f"{each} {list(shape)}" for each, shape in arrays.items())
        about = [f" * {shapes} -> output {list(problem.output_shape)}; {', '.join(algorithms)}. */"]
        sizes = arrays | {"output": problem.output_shape}
        about += [f"#define {name}_{each.upper()}_ELEMENTS {prod(shape)}" for each, shape in sizes.items()]
    else:
        about = [*_extents(function.family), f" * {', '.join(algorithms)}. */"]
        about.append(
            f"int {name}_output_extents(const int64_t *extents, int64_t *output); /* batch and {problem.rank} spatial extents */"
        )
    of = "" if function.family is None else " /* of any extents */"
    return "\n".join(
        [
            "",
            f"/* {function.signature}",
            *about,
            f"#define {name}_PACKED_BYTES {function.packed_bytes} /* at most; {name}_packed_bytes() on this CPU */",
            f"int {name}({plain});",
            f"int {name}_pack(const {ROWS[problem.types.filter].c} *filter, void *packed);",
            f"int {name}_packed({packed});",
            f"int {name}_with(const NAME_call *call, {plain});",
            f"int {name}_packed_with(const NAME_call *call, {packed});",
            f"size_t {name}_packed_bytes(void);",
            f"size_t {name}_workspace_bytes(int threads);{of}",
            f"size_t {name}_packed_workspace_bytes(int threads);{of}",
        ]
    )


def _extents(family: ProblemFamily) -> list[str]:
    """Return the comment line that lists the extents of a family's call, in order."""
    given = f"batch and {family.rank} spatial extents of data"
    if family.pads == "?":
        given += f", {family.rank} pads at the begin, {family.rank} at the end"
        given += ", less output padding" if family.op != "convolution" else ""
    return [f" * Any extents of this family, in the order: {given}. Others are NAME_ERROR_ARGUMENT."]


def _comment(text: str) -> str:
    """Return a text for a C comment, on one line."""
    escaped = text.encode("ascii", "backslashreplace").decode()
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in escaped)
    return line.replace("*/", "* /").replace("/*", "/ *").replace("NAME", f"NA{_KEPT}ME")


def quote(text: str) -> str:
    """Return a text as a C string literal."""
    escaped = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{escaped}"'.replace("NAME_", "NAME\\137")  # keep it from `fill_name`


def join_rows(items: Sequence[str]) -> str:
    """Return initializers, one a line."""
    return ",\n    ".join(items)


def with_imports(text: str, name: str) -> str:
    """Return a header whose data is declared dllimport for Microsoft's compiler if a program defines NAME_DLL."""
    data = f"{name}_DATA"
    choice = f"#if defined(_MSC_VER) && defined({name}_DLL)\n#define {data} extern __declspec(dllimport)\n#else\n#define {data} extern\n#endif\n"
    include = "#include <stdint.h>\n"
    return text.replace(
        include, f"{include}\n/* Define {name}_DLL to link the shared library by Microsoft's tools. */\n{choice}", 1
    ).replace("\nextern const", f"\n{data} const")
