"""Plan an exported library: the kernels of a bundle with their variants, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BundleError, TargetError
from ..family import ProblemFamily
from ..family_text import is_family, parse_family
from ..isa import ISAS, Isa, isa_of, native
from ..platforms.platform import Packaged
from ..problem import Problem
from ..runtime.bundle import Bundle, BundleTarget, Entry
from ..runtime.kernel_object import KernelObject, read_object
from ..runtime.selection import BACKENDS, rank
from ..signature import parse_signature
from ..version import __version__
from .names import digest, family_name, kernel_name

# Suffixes of a kernel's name in functions and macros.
KERNEL_ENDINGS = (
    *("", "_with", "_pack", "_packed", "_packed_with"),
    *("_packed_bytes", "_workspace_bytes", "_packed_workspace_bytes", "_PACKED_BYTES"),
    *(f"_{each}_ELEMENTS" for each in ("DATA", "FILTER", "BIAS", "SCALE", "SLOPE", "RESIDUAL", "OUTPUT")),
)
FAMILY_ENDINGS = (*KERNEL_ENDINGS, "_output_extents")
# Names that every library defines. Internal ones begin with `rt_`.
COMMON = (
    *("OK", "error_string", "supported", "set_parallel_for", "set_allocator", "parallel_for", "call", "f16", "bf16"),
    *("array", "kernel", "find", "kernels", "kernel_count", "ALIGNMENT", "H", "DATA", "DLL"),
)
_MOST_TARGETS = 31


@dataclass(frozen=True)
class FunctionVariant:
    """A kernel for one target: its entry, its object, and the number of the target in the library."""

    entry: Entry
    object: KernelObject
    target: int


@dataclass(frozen=True)
class Function:
    """A kernel of the library.

    Attributes
    ----------
    name
        Its name without the library's prefix.
    signature, problem
        The problem that it computes; for a family, one of its problems.
    variants
        The best first.
    family
        The family that it computes; None: the problem alone.
    """

    name: str
    signature: str
    problem: Problem
    variants: tuple[FunctionVariant, ...]
    family: ProblemFamily | None = None

    @property
    def packed_bytes(self) -> int:
        """Bytes of the largest packed filter of its variants."""
        return max(packed_bytes(self.problem, each.entry) for each in self.variants)


@dataclass(frozen=True)
class Plan:
    """Content of an exported library: kernels for CPUs of one instruction set; variants refer to `targets` by number."""

    name: str
    bundle: Bundle
    targets: tuple[str, ...]
    isa: Isa
    functions: tuple[Function, ...]
    families: tuple[Function, ...] = ()


def packed_bytes(problem: Problem, entry: Entry) -> int:
    """Return the bytes of a kernel's packed filter."""
    plain = problem.filter_bytes
    return plain if entry.packed_filter is None else int(entry.packed_filter["bytes"])


def plan(bundle: Bundle, name: str, targets: Sequence[str] | None = None) -> Plan:
    """Return the plan of the library `name` with a bundle's kernels.

    Parameters
    ----------
    targets
        Targets of the bundle to include; None: all CPU targets.

    Raises
    ------
    BundleError
        If the bundle has no kernel for CPUs, or one of its libraries is damaged or has no object to link.
    TargetError
        If it has no kernel for one of `targets`, or that is no CPU; if they are of several instruction sets.
    """
    chosen = _targets(bundle, targets)
    isa = _isa_of(bundle, chosen)
    packaging_of(isa)
    entries: dict[str, list[Entry]] = {}
    for entry in bundle.all_entries:
        if entry.target in chosen and entry.verified is not False:
            entries.setdefault(entry.signature, []).append(entry)
    if not entries:
        raise BundleError(f"every kernel of {bundle.path} for {', '.join(chosen)} is marked as wrong: build it again")
    functions: list[Function] = []
    families: list[Function] = []
    for signature, found in sorted(entries.items()):
        found.sort(key=lambda entry: rank(bundle, entry))
        variants = tuple(FunctionVariant(each, read_object(bundle, each), chosen.index(each.target)) for each in found)
        family = parse_family(signature) if is_family(signature) else None
        problem = family.typical if family else parse_signature(signature)
        function = family_name(family) if family else kernel_name(problem)
        (families if family else functions).append(Function(function, signature, problem, variants, family))
    return _with_unique_names(Plan(name, bundle, tuple(chosen), isa, tuple(functions), tuple(families)))


def empty_plan(name: str) -> Plan:
    """Return the plan of a library `name` without kernels, for this machine's instruction set."""
    bundle = Bundle(Path(name), __version__, "", None, {}, ())
    return Plan(name, bundle, (), native() or ISAS[0], ())


def with_targets(plan: Plan, features: Mapping[str, tuple[str, ...]]) -> Plan:
    """Return a plan with more targets, by their CPU features, for networks in the library.

    Raises
    ------
    TargetError
        If targets are of several instruction sets.
    """
    new = {name: BundleTarget("cpu", needed) for name, needed in features.items() if name not in plan.targets}
    if not new:
        return plan
    bundle = replace(plan.bundle, targets=plan.bundle.targets | new)
    targets = (*plan.targets, *new)
    return replace(plan, bundle=bundle, targets=targets, isa=_isa_of(bundle, targets))


def packaging_of(isa: Isa) -> Packaged:
    """Return the facts about an instruction set's libraries for C; raise TargetError if its platform has none."""
    found = isa.platform.packaged
    if found is None:
        raise TargetError(f"libraries for C are not supported for {isa.name}")
    return found


def _targets(bundle: Bundle, wanted: Sequence[str] | None) -> list[str]:
    """Return the names of the chosen targets, in the manifest's order."""
    there = {entry.target for entry in bundle.all_entries}
    cpus = [name for name, each in bundle.targets.items() if name in there and BACKENDS[each.kind].in_c]
    others = sorted(there - set(cpus))
    if not cpus:
        raise BundleError(
            f"{bundle.path} has no kernel for a CPU, only for {', '.join(others) or 'nothing'}; C libraries are for CPUs:"
            " build it with --target host, x86-64-v3 or another CPU"
        )
    for name in wanted or ():
        if name not in cpus:
            what = "is for GPUs, and C libraries are for CPUs" if name in others else "has no kernel in the bundle"
            raise TargetError(f"target {name!r} {what}; {bundle.path} has {', '.join(cpus)}")
    chosen = [name for name in cpus if not wanted or name in wanted]
    if len(chosen) > _MOST_TARGETS:
        raise TargetError(
            f"there are {len(chosen)} targets; a library has up to {_MOST_TARGETS}: choose some with --target"
        )
    return chosen


def _isa_of(bundle: Bundle, targets: Sequence[str]) -> Isa:
    """Return the targets' instruction set; raise TargetError if there are several, or C code cannot detect a feature."""
    # A target without features is for CPUs like the one that built it.
    of = {name: isa_of(bundle.targets[name].features) or native() or ISAS[0] for name in targets}
    first = of[targets[0]]
    if any(isa is not first for isa in of.values()):
        raise TargetError(
            f"targets are {', '.join(f'{name} ({isa.name})' for name, isa in of.items())}, and a C library is of one instruction set:"
            " choose some with --target, and export once for each"
        )
    for name in targets:
        if unknown := sorted(set(bundle.targets[name].features) - first.c_features.keys() - set(first.platform.marks)):
            raise TargetError(f"target {name!r} needs {', '.join(unknown)}, which C libraries cannot detect")
    return first


def _with_unique_names(plan: Plan) -> Plan:
    """Return the plan with unique function names: on a clash, a hash of the signature is appended."""
    taken = set(COMMON)

    def unique(name: str, endings: Iterable[str], what: str) -> str:
        if name.startswith("rt_") or name.startswith("ERROR_") or taken & {name + ending for ending in endings}:
            name = f"{name}_{digest(what)}"
        if taken & {name + ending for ending in endings}:
            raise BundleError(
                f"{plan.bundle.path} has two kernels called {name}, of which one is {what}; please report it"
            )
        taken.update(name + ending for ending in endings)
        return name

    def named(functions: Iterable[Function], endings: Iterable[str]) -> tuple[Function, ...]:
        return tuple(replace(each, name=unique(each.name, endings, each.signature)) for each in functions)

    return replace(plan, functions=named(plan.functions, KERNEL_ENDINGS), families=named(plan.families, FAMILY_ENDINGS))
