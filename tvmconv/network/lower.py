"""A Relax module to one library: our kernels, TVM's operators between them, and the program that calls them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

import tvm
from tvm import relax
from tvm.ir import StringImm, TupleType

from ..checks import as_path
from ..errors import BuildError, InputError, SourceError, TargetError, TvmconvError, last_line
from ..isa import native
from ..lowering.cpu.linker import link_objects, runtime_objects
from ..runtime.networks.file import KIND, NO_IDENTITY, RELAX, append
from ..support.files import whole_file
from ..support.progress import Progress
from ..support.toolchain import find_compiler
from ..targets.target import CpuTarget, Target
from ..tuning.records import Records
from ..version import __version__
from .emit.tir_pipeline import NETWORK_PIPELINE
from .operators.attention import with_attention
from .operators.elementwise import FUNCTIONS
from .operators.gather import take
from .operators.matmul import matmul_of
from .operators.max_pool import max_pool
from .operators.mean_pool import mean_pool
from .operators.minmax import EXTREMES
from .operators.normalization import group_norm, instance_norm, layer_norm, narrow_groups, rms_norm
from .operators.resampling import resampled
from .operators.resize import resize2d
from .operators.scan import SCANS
from .operators.scatter import scatter_elements
from .operators.softmax import log_softmax, softmax
from .operators.sort import sorting
from .operators.transcendental import ELEMENTARY
from .passes import model_bytes, report, rewrites, use_kernels
from .rewrite.simplify import static_shape
from .schedule.rules import schedule_others
from .virtual_machine import DESCRIBE, MAIN

# Slots that TVM's runtime fills with functions that operators call, such as top-k's, which would else be null pointers. Those
# that the launcher fills are hidden in its object, and so stay the launcher's: parallel loops run by its threads.
_EXPORTS = ("__tvm_ffi_*", "__TVM*")
# Attribute of a module's function `main`: what its outputs are called. Without it they have numbers.
OUTPUT_NAMES = "tvmconv.output_names"


def build(
    mod: tvm.IRModule,
    target: str = "host",
    records: Records | None = None,
    layout: str | None = None,
    math: str = "default",
    progress: Progress | None = None,
    bundle: str | os.PathLike[str] | None = None,
    memory: str = "default",
) -> relax.VMExecutable:
    """Compile a Relax module, its convolutions by our kernels.

    Parameters and errors are those of :class:`tvmconv.relax.UseKernels`.

    Returns
    -------
    tvm.relax.VMExecutable
        For ``relax.VirtualMachine``, or for :func:`export`.
    """
    return compile_module(use_kernels(mod, target, records, layout, math, progress, bundle, memory), target)


def compile_module(mod: tvm.IRModule, target: str = "host") -> relax.VMExecutable:
    """Compile what :func:`tvmconv.relax.use_kernels` returned for the same target.

    Raises
    ------
    SourceError
        If an input or output of its function ``main`` has no fixed shape, or there is no such function.
    TargetError
        If `target` is a CPU of another instruction set than this machine's.
    BuildError
        If TVM cannot compile it.
    """
    known = check_target(target)
    if known.isa is not native():
        raise TargetError(
            f"target {known.name} is of {known.isa.name}: TVM's virtual machine is compiled for on machines of the same instruction set;"
            " compile a plan"
        )
    mod = _with_description(mod, known)
    with tvm_errors():
        return _compiled(mod, known)


def check_target(target: str) -> CpuTarget:
    """Return the target that a network is compiled for.

    Raises
    ------
    TargetError
        If it is no CPU.
    """
    known = Target.parse(target)
    if not isinstance(known, CpuTarget):
        raise TargetError(f"target is {target!r}; networks are compiled for CPUs alone")
    return known


def scheduled(mod: tvm.IRModule, target: CpuTarget, planned: bool) -> tvm.IRModule:
    """Return a module whose operators are functions, joined where one element needs few others, and scheduled.

    For a plan, whose library has C functions that these call, or for TVM's virtual machine.
    """
    table = sorting(planned) | {"relax.image.resize2d": partial(resize2d, planned)}
    for rank in (1, 2, 3):
        table |= {
            f"relax.nn.{name}_pool{rank}d": partial(each, planned)
            for name, each in (("max", max_pool), ("avg", mean_pool))
        }
    mod = narrow_groups(resampled(with_attention(mod)) if planned else mod)
    with target.tvm():
        return tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.LegalizeOps(_LEGALIZATIONS | table | {"relax.matmul": matmul_of(target)}),
                relax.transform.RewriteDataflowReshape(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(),
                schedule_others(target),
            ]
        )(mod)


def _compiled(mod: tvm.IRModule, target: CpuTarget) -> relax.VMExecutable:
    mod, parsed = scheduled(mod, target, planned=False), target.tvm()
    with parsed:
        return relax.build(
            mod, parsed, relax_pipeline=relax.get_pipeline("default_build"), tir_pipeline=NETWORK_PIPELINE
        )


_LEGALIZATIONS = (
    FUNCTIONS
    | ELEMENTARY
    | EXTREMES
    | SCANS
    | {
        "relax.nn.group_norm": group_norm,
        "relax.nn.instance_norm": instance_norm,
        "relax.nn.layer_norm": layer_norm,
        "relax.nn.rms_norm": rms_norm,
        "relax.nn.log_softmax": log_softmax,
        "relax.nn.softmax": softmax,
        "relax.scatter_elements": scatter_elements,
        "relax.take": take,
    }
)


def described(mod: tvm.IRModule, target: CpuTarget) -> dict[str, Any]:
    """Return what a network's library says of itself (`tvmconv.runtime.network_base`).

    Raises
    ------
    SourceError
        If the module has no function ``main``, or an input or output of it has no fixed shape.
    """
    if MAIN not in [variable.name_hint for variable in mod.get_global_vars()]:
        raise SourceError(f"the module has no function {MAIN!r}, which a network is called by")
    main = mod[MAIN]
    result = main.ret_ty
    outputs = list(result.fields) if isinstance(result, TupleType) else [result]
    names = [str(name) for name in main.attrs[OUTPUT_NAMES]] if OUTPUT_NAMES in (main.attrs or {}) else []
    if len(set(names)) != len(outputs):
        names = [f"output{number}" for number in range(len(outputs))]
    return {
        "tvmconv": __version__,
        "tvm": version("apache-tvm"),
        "target": target.name,
        "features": list(target.features),
        "inputs": [_tensor(str(each.name), each.ty) for each in main.params],
        "outputs": [_tensor(name, each) for name, each in zip(names, outputs, strict=True)],
        "report": [asdict(row) for row in report(mod)],
        "rewrites": rewrites(mod),
        "model_bytes": model_bytes(mod),
    }


def _with_description(mod: tvm.IRModule, target: CpuTarget) -> tvm.IRModule:
    """Return a module with the function that `tvmconv.network.virtual_machine` reads."""
    builder = relax.BlockBuilder(mod)
    with builder.function(DESCRIBE, []):
        builder.emit_func_output(StringImm(json.dumps(described(mod, target))))
    return builder.finalize()


@contextmanager
def tvm_errors() -> Iterator[None]:
    """Make a BuildError of whatever TVM's passes stumble over; errors of ours, and of files, stay what they are."""
    try:
        yield
    except (TvmconvError, OSError):
        raise
    except Exception as error:
        raise BuildError(
            f"TVM cannot compile the network: {last_line(error)}; tvmconv build compiles its convolutions"
        ) from error


def _tensor(name: str, type_: Any) -> dict[str, Any]:
    shape = static_shape(type_)
    if shape is None:
        raise SourceError(
            f"{name} of the network has no fixed shape: {type_}; give the inputs' shapes, or, if the inputs' numbers decide"
            " it, as NonZero's, cut the network before it (--cut TENSOR)"
        )
    return {"name": name, "shape": shape, "dtype": str(type_.dtype)}


def export(executable: relax.VMExecutable, path: str | os.PathLike[str]) -> None:
    """Write a compiled module as one shared library, which is replaced whole.

    Its parallel loops run by the threads of TVM's runtime.

    Raises
    ------
    InputError
        If `executable` or `path` is something else.
    ToolchainError
        If there is no C compiler, or it fails.
    """
    if not isinstance(executable, relax.VMExecutable):
        raise InputError(f"executable is a {type(executable).__name__}; give what tvmconv.relax.build returned")
    find_compiler()
    path = as_path("path", path)

    with whole_file(path, mapped=True) as library:
        work = library.parent

        def link(_: str, objects: list[str], **options: Any) -> None:
            link_objects(work, (*objects, *runtime_objects(work)), library, _EXPORTS)

        executable.export_library(str(library), fcompile=link, workspace_dir=str(work))
        append(library, (), {KIND: RELAX}, NO_IDENTITY)
