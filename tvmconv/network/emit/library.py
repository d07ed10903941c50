"""Write a planned network as one library: functions compiled by LLVM, the plan as a C table, the executor, and the weights."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Call, save_json
from tvm.tirx.buffer import is_buffer_var

from ...algorithms.annotations import FIXED
from ...building.cache import key_of_functions
from ...errors import SourceError
from ...exporting.network_part import ENTRIES, PREFIX, NetworkPart
from ...isa import Isa
from ...lowering.common.rewrites import find_all
from ...lowering.cpu.linker import (
    WHOLE_ALONE,
    compile_beside,
    compile_runtime,
    compile_text,
    link_objects,
    link_relocatable,
    operator_object,
    runtime_objects,
    write_object,
)
from ...platforms.platform import Threaded
from ...runtime.networks.file import append
from ...runtime.networks.placing import whole_lines
from ...runtime.networks.sizes import ENDINGS, OF_SIZES, SIZES, of_size
from ...runtime.processors import usable_processors
from ...support.cache import open_cache
from ...support.files import whole_file
from ...support.timing import stage
from ...support.toolchain import has_selection, select_symbols
from ...targets.target import CpuTarget
from ..ir.constants import DistinctArrays
from ..kernels.build import CODE, LOWERED, SYMBOL_OF_CODE
from ..kernels.tabulate import FUNCTION as LOOKUP
from ..operators.attention import FUNCTION as ATTENTION
from ..operators.matmul import FUNCTION as PRODUCT
from ..operators.max_pool import FUNCTION as MAX_POOL
from ..operators.mean_pool import FUNCTION as MEAN_POOL
from ..operators.recurrent import FUNCTION as RECURRENT
from ..operators.resize import BEFORE, CUBIC, NEAREST, SHARE
from ..operators.separable import FUNCTION as WINDOWS
from ..operators.sort import FUNCTION as SORT
from ..rewrite.check_indices import FUNCTION as CHECK
from .families import family_source, is_family
from .free_table import FreeTable
from .network_plan import COPY, IF, OWN, Array, NetworkPlan, PlanStep, Region, Storage, item_bytes
from .tir_pipeline import NETWORK_PIPELINE

_NATIVE = Path(__file__).parent / "native"
_INCLUDE = f"-I{_NATIVE}"
_EXPORTS = ("__tvm_ffi_tvmconv_network*",)
# C files of operators, each linked only where it is called (compiling one takes a second), with their functions.
_OPERATORS = {
    "attention": (ATTENTION,),
    "indices": (CHECK,),
    "lookup": (LOOKUP,),
    "pools": (MAX_POOL, MEAN_POOL),
    "product": (PRODUCT,),
    "recurrent": (RECURRENT,),
    "windows": (WINDOWS,),
}
_OF_RESIZES = (NEAREST, BEFORE, SHARE, CUBIC)
# Number of modules in which LLVM compiles functions between kernels, in parallel.
_PARTS = 2
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}  # DLPack's type codes


@dataclass(frozen=True)
class Planned:
    """A network before it is written: its plan, its steps' scheduled functions, and its description without the steps."""

    plan: NetworkPlan
    functions: Mapping[str, tirx.PrimFunc]
    description: Mapping[str, Any]

    def described(self) -> dict[str, Any]:
        """Return the description, with the bytes accessed by each step, and a call's memory."""
        return {**self.description, **_measures(self.plan)}


def write(network: Planned, target: CpuTarget, path: Path, sizes: Sequence[Planned] = ()) -> None:
    """Write a network's library, replaced atomically.

    `sizes` are the same network compiled for some fixed sizes, used for inputs of these sizes; equal weights are stored once.
    """
    weights = _share_weights([network.plan, *(each.plan for each in sizes)]) if sizes else network.plan.weights
    described = network.described()
    if sizes:
        described[SIZES] = [{key: each.described()[key] for key in OF_SIZES} for each in sizes]
    identity = _identity(described, weights)
    with whole_file(path, mapped=True) as library:
        work = library.parent
        objects = _objects(network, target, identity, work)
        objects += [_size_object(each, number, target, identity, work) for number, each in enumerate(sizes)]
        link_objects(work, (*objects, *runtime_objects(work, target.isa), "-lm"), library, _EXPORTS, target.isa)
        with stage("write"):
            append(library, _offsets(weights), described, identity)


def _share_weights(plans: Iterable[NetworkPlan]) -> list[Storage]:
    """Set the offsets of all plans' weights in one file, where equal ones are stored once; return the stored ones."""
    found: dict[int, Storage] = {}
    arrays = DistinctArrays()
    offset = 0
    for storage in (each for plan in plans for each in plan.weights):
        first = found.setdefault(arrays.number(storage.array), storage)
        if first is storage:
            storage.offset, offset = offset, whole_lines(offset + storage.size)
        storage.offset = first.offset
    return list(found.values())


def _size_object(network: Planned, number: int, target: CpuTarget, identity: str, work: Path) -> str:
    """Write a network at one size as an object file into the folder `work`, with its entry points renamed; return the file's name."""
    folder, file = work / f"size{number}", f"size{number}.o"
    folder.mkdir()
    objects = [*_objects(network, target, identity, folder), *runtime_objects(folder, target.isa, ("launcher",))]
    names = {f"{PREFIX}{ending}": f"__tvm_ffi_{of_size(number)}{ending}" for ending in ENDINGS}
    (work / file).write_bytes(link_relocatable(folder, objects, names, target.isa))
    select_symbols(file, file, names.values(), work, target.isa, names)
    return file


def part(network: Planned, target: CpuTarget) -> NetworkPart:
    """Return a network as an object for another library; parameters and errors are those of :func:`write`."""
    described = network.described()
    identity = _identity(described, network.plan.weights)
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        work = Path(folder)
        objects = _objects(network, target, identity, work)
        if target.isa.platform.has_parts:
            objects += runtime_objects(work, target.isa, ("launcher",))
            linked, threaded = link_relocatable(work, objects, ENTRIES, target.isa), None
        else:
            linked = _link_whole(work, objects, target.isa)
            more = target.isa.platform.threaded
            threaded = _link_whole(work, objects, target.isa, more) if more else None
    return NetworkPart(linked, tuple(_offsets(network.plan.weights)), described, identity, threaded)


def _link_whole(work: Path, objects: list[str], isa: Isa, threaded: Threaded | None = None) -> bytes:
    """Return the library linked from objects in a folder, with the platform's services or those of `threaded`."""
    services, flags, link_flags = (
        (threaded.services, threaded.compile_flags, threaded.link_flags) if threaded else (None, (), ())
    )
    services_objects = runtime_objects(work, isa, services, flags)
    link_objects(work, (*link_flags, *objects, *services_objects, "-lm"), work / "whole", _EXPORTS, isa)
    return (work / "whole").read_bytes()


def _identity(described: Mapping[str, Any], weights: Iterable[Storage]) -> str:
    """Return 32 hexadecimal digits, a digest of description and weights, by which a plan finds its weights in a file of several networks."""
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for offset, array in _offsets(weights):
        digest.update(f"{offset} {array.nbytes} {zlib.crc32(array.tobytes())}\n".encode())
    return digest.hexdigest()[:32]


def _objects(network: Planned, target: CpuTarget, identity: str, work: Path) -> list[str]:
    """Write all but the run-time services as object files into the folder `work`; return their names."""
    plan, functions = network.plan, network.functions
    called, fixed, isa = _find_called(functions), _is_fixed(functions), target.isa
    types = () if any(map(_has_bf16, functions.values())) else WHOLE_ALONE
    free = {name: each for name, each in functions.items() if is_family(each)}
    text, of_families = family_source(free) if free else ("", {})
    # Without objcopy, which renames kernels' symbols, kernels are compiled a second time.
    static = {name: each for name, each in functions.items() if name not in free}
    renames = has_selection(isa)
    built = {name: each for name, each in static.items() if renames and CODE in (each.attrs or {})}
    others = {name: each.without_attr(CODE) for name, each in static.items() if name not in built}
    # C compilers and objcopy are processes, and LLVM releases the GIL.
    with stage("LLVM"), ThreadPoolExecutor(usable_processors()) as pool:
        parts = [
            pool.submit(_compile, part, target, fixed, work, f"functions{number}.o")
            for number, part in enumerate(_parts_of(others))
        ]
        objects = [
            pool.submit(_write, work / "network.o", lambda: _executor(isa)),
            pool.submit(
                _write, work / "plan.o", lambda: compile_text(_table(plan, identity), _INCLUDE, name="plan.c", isa=isa)
            ),
        ]
        for file, names in _OPERATORS.items():
            if called.intersection(names):
                objects.append(pool.submit(operator_object, work, file, target, fixed, types))
        if called.intersection(_OF_RESIZES):
            objects.append(pool.submit(_write, work / "resizing.o", lambda: _resizing(isa)))
        if SORT in called:
            objects.append(pool.submit(_write, work / "sorting.o", lambda: _sorting(isa)))
        if free:
            objects.append(pool.submit(_write, work / "families.o", lambda: compile_text(text, isa=isa)))
        objects += [pool.submit(_rename_code, each, name, isa, work) for name, each in (of_families | built).items()]
        return [each.result() for each in (*objects, *parts)]


def _write(path: Path, compiled: Callable[[], bytes]) -> str:
    path.write_bytes(compiled())
    return path.name


def _parts_of(functions: Mapping[str, tirx.PrimFunc]) -> list[tvm.IRModule]:
    """Return functions as modules for parallel compilation; a fixed number, so that libraries are the same on every machine."""
    named = [(name, each.with_attr("global_symbol", name)) for name, each in functions.items()]
    return [tvm.IRModule(dict(some)) for number in range(_PARTS) if (some := named[number::_PARTS])]


def _is_fixed(functions: Mapping[str, tirx.PrimFunc]) -> bool:
    """Return whether operations must be rounded alike on every CPU."""
    return any(FIXED in (each.attrs or {}) and LOWERED not in each.attrs for each in functions.values())


def _compile(module: tvm.IRModule, target: CpuTarget, fixed: bool, work: Path, name: str) -> str:
    """Write the object file of functions between kernels, from the user's cache if it is there; return its name."""
    path = work / name
    known = open_cache()
    if known is not None:
        key = key_of_functions(f"{save_json(module)} {fixed}", target)
        content = known.read(key)
        if content is not None:
            path.write_bytes(content)
            return name
    # Only the executor calls these functions, with correct arguments; compiling checks of them took a third of LLVM's time.
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        executable = tvm.compile(module, target.tvm(fixed), tir_pipeline=NETWORK_PIPELINE)
    write_object(executable, path, target.isa)
    if known is not None:
        known.write(key, path.read_bytes())
    return name


def _rename_code(function: tirx.PrimFunc, name: str, isa: Isa, work: Path) -> str:
    """Write a kernel's verified object code with its symbol renamed to `name`; return the file's name."""
    file, symbol = f"{name}.o", f"__tvm_ffi_{name}"
    (work / file).write_bytes(function.attrs[CODE].numpy().tobytes())
    renamed = {f"__tvm_ffi_{function.attrs[SYMBOL_OF_CODE]}": symbol}
    # Slots that launcher.c fills, and Windows' pointers to them.
    visible = (symbol, "__TVMBackend*", ".refptr.__TVMBackend*")
    select_symbols(file, file, visible, work, isa, renamed, "--strip-debug")
    return file


def _find_called(functions: Mapping[str, tirx.PrimFunc]) -> set[str]:
    """Return the names of C functions that are called."""
    calls = (each for function in functions.values() for each in find_all(function.body, Call))
    return {str(each.args[0].value) for each in calls if getattr(each.op, "name", "") == "tirx.call_extern"}


def _has_bf16(function: tirx.PrimFunc) -> bool:
    own = (each.buffer for each in find_all(function.body, tirx.AllocBuffer, tirx.DeclBuffer))
    arrays = (*filter(is_buffer_var, function.params), *own)  # parameters may be extents, too
    return any(str(each.dtype) == "bfloat16" for each in arrays)


def _offsets(weights: Iterable[Storage]) -> Iterator[tuple[int, np.ndarray]]:
    return ((each.offset, each.array) for each in weights)


def prepare_executor(isa: Isa) -> Thread:
    """Compile the executor in a thread."""
    return compile_beside(lambda: _executor(isa))


@cache
def _executor(isa: Isa) -> bytes:
    return compile_runtime(_NATIVE / "executor.c", _INCLUDE, "-D_GNU_SOURCE", isa=isa)


@cache
def _sorting(isa: Isa) -> bytes:
    return compile_runtime("operators/sorting.c", isa=isa)


@cache
def _resizing(isa: Isa) -> bytes:
    return compile_runtime("operators/resizing.c", "-ffp-contract=off", isa=isa)


def _measures(plan: NetworkPlan) -> dict[str, Any]:
    """Return each step's accessed bytes, a call's arena, and the peak with weights, inputs and outputs; 0 where extents are free."""
    if plan.is_free:
        return {"steps": [_step(each, 0) for each in plan.steps], "arena_bytes": 0, "peak_bytes": 0}
    steps = [_step(each, sum(array.size for array in each.arguments)) for each in plan.steps]
    ends = sum(each.size for each in (*plan.inputs, *plan.outputs))
    peak = sum(each.size for each in plan.weights) + plan.prepared_bytes + plan.arena_bytes + ends
    prepared = {"prepared_bytes": plan.prepared_bytes} if plan.prepared else {}
    return {"steps": steps, "arena_bytes": plan.arena_bytes, "peak_bytes": peak, **prepared}


def _step(step: PlanStep, size: int) -> dict[str, Any]:
    return {"function": step.function, "bytes": size, **({"nodes": list(step.nodes)} if step.nodes else {})}


def _table(plan: NetworkPlan, identity: str) -> str:
    """Return the plan as a C table."""
    called = sorted({step.symbol for step in plan.steps} - OWN)
    free = FreeTable(plan) if plan.is_free else None
    arrays = [array for step in plan.steps for array in step.given]
    shapes = sorted({array.shape for array in arrays if array.shape and (free is None or not free.has(array))})
    shape_names = {shape: f"shape{number}" for number, shape in enumerate(shapes)} | {(): "NULL"}
    lines = ['#include "executor.h"', "#include <stddef.h>"]
    lines += [f"int __tvm_ffi_{name}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);" for name in called]
    lines += [f"static const int64_t {shape_names[shape]}[] = {{{', '.join(map(str, shape))}}};" for shape in shapes]
    for number, step in enumerate(plan.steps):
        given = [_argument(each, shape_names.get(each.shape, "NULL"), free) for each in step.given]
        lines.append(f"static const Argument arguments{number}[] = {{{', '.join(given) or '{0}'}}};")
    steps = ", ".join(
        f"{{{_symbol(step)}, arguments{at}, {len(step.given)}, {step.free[0]}, {step.free[1]}, {step.passed}, {step.beside}}}"
        for at, step in enumerate(plan.steps)
    )
    lines.append(f"static const Step steps[] = {{{steps or '{NULL, NULL, 0, 0, 0, 0, 0}'}}};")
    sizes = ", ".join("0" if free else str(each.size) for each in (*plan.inputs, *plan.outputs))
    lines.append(f"static const uint64_t bytes[] = {{{sizes or 0}}};")
    lines += free.lines() if free else []
    counts = f"{len(plan.steps)}, {len(plan.inputs)}, {len(plan.outputs)}"
    prepared = f"{plan.prepared}, {sum(len(step.given) for step in plan.steps[: plan.prepared])}, {plan.prepared_bytes}"
    lines.append(
        f"const Plan tvmconv_plan = {{steps, {counts}, bytes, {plan.arena_bytes}, {prepared},"
        f' "{identity}", {"&extents" if free else "NULL"}}};'
    )
    return "\n".join((*lines, ""))


def _symbol(step: PlanStep) -> str:
    return {COPY: COPY, IF: "NULL"}.get(step.function, f"__tvm_ffi_{step.symbol}")


def _argument(array: Array, shape: str, free: FreeTable | None) -> str:
    storage = array.storage
    number, at = (free.number(storage), free.at(array.shape)) if free and free.has(array) else (storage.number, 0)
    if free and storage.region is Region.ARENA:
        number = free.number(storage)
    dtype = tvm.DataType(array.dtype)
    kind = next((name for name in _CODES if array.dtype.startswith(name)), None)
    if kind is None:
        raise SourceError(f"the network has a tensor of {array.dtype}; allowed: {', '.join(_CODES)} of any width")
    code = f"{{{_CODES[kind]}, {8 * item_bytes(array.dtype) if kind == 'bool' else int(dtype.bits)}, 1}}"
    return f"{{{int(storage.region)}, {number}, {storage.offset}, {code}, {len(array.shape)}, {shape}, {at}}}"
