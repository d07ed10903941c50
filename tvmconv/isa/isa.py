"""`Isa`: the facts about an instruction set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..platforms.linux import PLATFORM as LINUX
from ..platforms.platform import Platform, Port

if TYPE_CHECKING:
    from .hot_loop import HotLoop
    from .instructions import AssemblyReader

_NAMED: dict[str, Isa] = {}


@dataclass(frozen=True)
class Matrices:
    """An instruction that adds to a matrix of sums, in a vector register, the product of two matrices of bf16.

    Attributes
    ----------
    feature
        Linux's name of the feature that has it.
    intrinsic
        LLVM's.
    rows, columns
        Of the sums: pixels, whose channels are the first operand's rows, and output channels, whose weights are the second's.
    depth
        Products that it adds to each: channels.
    """

    feature: str
    intrinsic: str
    rows: int
    columns: int
    depth: int


def isa_named(name: str) -> Isa:
    """Return the instruction set of a name."""
    return _NAMED[name]


@dataclass(frozen=True)
class Tiles:
    """Instructions for tiles, in registers of their own: products of pairs of bf16, added to sums of f32, and of quads of integers.

    Attributes
    ----------
    features, of_integers
        Linux's names of the features that a kernel by tiles of bf16 needs, and one of integers.
    registers
        Tile registers.
    rows, row_bytes
        Rows of a register, and bytes of a row, at most.
    configuration
        From the rows of each register, and the bytes of one, to what `configure` reads.
    configure, release, zero, load, store
        LLVM's intrinsics.
    multiply
        Those that multiply, by the types of data and filter.
    allow
        The C function that asks the system for tiles; other results than 0 are errors.
    awake
        The function that a step of a sum calls beside its products.
    text
        That, in LLVM IR.
    """

    features: tuple[str, ...]
    of_integers: tuple[str, ...]
    registers: int
    rows: int
    row_bytes: int
    configuration: Callable[[Sequence[tuple[int, int]]], bytes]
    configure: str
    release: str
    zero: str
    load: str
    store: str
    multiply: Mapping[tuple[str, str], str]
    allow: str
    awake: str
    text: str

    @property
    def side(self) -> int:
        """Sums, pairs or quads in a row: as many as rows."""
        return self.row_bytes // 4


@dataclass(frozen=True, eq=False)
class Isa:
    """An instruction set that kernels are compiled for. There is one object of each, `ISA` of its folder, in `tvmconv.isa.ISAS`.

    Attributes
    ----------
    name
        What messages call it.
    machine
        What ``platform.machine()`` is on CPUs that have it.
    triple
        LLVM's.
    linux_names
        Linux's names of features, in /proc/cpuinfo and AT_HWCAP, where LLVM's differ.
    used
        LLVM's names of the features that kernels may use. A CPU model's other features are not required of a machine.
    without
        LLVM's names of those that it would use here and there if a CPU's name implies them, to nobody's gain.
    options
        What TVM's target has beside, for LLVM.
    needed
        LLVM's names of those that every kernel needs.
    least
        The least CPU that has them, in words.
    vectors
        Width in bits and number of vector registers, by the Linux feature that makes them so, the widest first.
    working_registers
        Vector registers that a tile's sums leave to the filter's vectors and data.
    fused
        Whether its CPUs have a multiply-add that rounds once.
    saturates
        Whether they have instructions that round vectors to integers, and that narrow these with saturation.
    steps_together
        Channels of a direct sum that stand unrolled in a step, at most.
    dot
        Linux's name of the feature that has a dot product of bf16.
    dot_intrinsic
        LLVM's intrinsic of that, for vectors of ``{lanes}`` sums, ``{halves}`` bf16, ``{bits}`` bits.
    dots_by_element
        Whether that takes one pair for all lanes from an element of a vector register, and not from memory.
    pairs
        Linux's names of the features that multiply pairs of 16-bit integers, whose products they add (vpmaddwd), by the bits of a vector.
    packs
        LLVM's intrinsics that narrow two vectors to one, by the bits of a vector that `pairs` has, too; ``{}`` is the operation.
    sums_of_pairs
        Linux's name of the feature whose instruction also adds those products to sums; empty: it has none.
    quads
        By Linux's names of features, the dot products of quads of 8-bit integers that each has: mnemonics by the types of data and filter.
    quads_by_evex
        The feature whose instruction is encoded for all vectors and registers; the others' are written with a prefix.
    matrices
        An instruction that multiplies matrices of bf16 in vector registers; None: it has none.
    tiles
        Instructions for tiles; None: it has none.
    known_cpus
        CPUs of a maker, older ones first: a machine whose model LLVM does not know, or that hides its number, is taken for one of them.
    models
        Names of its CPUs, and by each what LLVM's ``generic`` has with it; none: they are LLVM's.
    detect
        Returns Linux's names of the features that this machine has and programs may use.
    cross_compilers
        C compilers for it on machines of another instruction set, each with flags that it always needs.
    install
        What gets one on Debian and Ubuntu.
    assembly
        Name of the module whose ``READER`` reads its assembly. It is imported when it is asked.
    native
        Folder of its C files, which every library has, and of headers: ``processor.h`` has what threads need.
    c_file
        The C file of an exported library that asks a CPU for features, in `exporting/native`.
    c_features
        What that asks for, by Linux's names: initializers of its ``struct feature``.
    c_flags
        The C compiler's flags for the C files of exported libraries.
    cpu_flag
        The C compiler's flag that a CPU's name follows.
    operator_flags
        The C compiler's flags for `lowering/native/operators/pools.c`, `attention.c` and their like: each beside the Linux features that a target must have.
    aliases
        CPU names that LLVM takes and does not list.
    platform
        The system that its libraries are for.
    emulators
        Programs that run code for it on machines of another instruction set.
    emulated_cpus
        Their CPUs, and what those have of `used` by Linux's names, the least first.
    port
        The instruction set on a platform that its folder does not name; None: this is the folder's.
    """

    name: str
    machine: str
    triple: str
    linux_names: Mapping[str, str]
    used: frozenset[str]
    without: tuple[str, ...]
    needed: frozenset[str]
    least: str
    vectors: Mapping[str, tuple[int, int]]
    working_registers: int
    dot: str
    dot_intrinsic: str
    dots_by_element: bool
    known_cpus: Mapping[str, tuple[str, ...]]
    cross_compilers: tuple[str, ...]
    install: str
    c_file: str
    c_features: Mapping[str, str]
    detect: Callable[[], frozenset[str]]
    assembly: str
    native: Path
    fused: bool = True
    saturates: bool = False
    steps_together: int = 4
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    c_flags: tuple[str, ...] = ()
    cpu_flag: str = "-march="
    operator_flags: tuple[tuple[str, frozenset[str]], ...] = ()
    aliases: frozenset[str] = frozenset()
    options: Mapping[str, int] = field(default_factory=dict)
    pairs: Mapping[int, str] = field(default_factory=dict)
    packs: Mapping[int, str] = field(default_factory=dict)
    sums_of_pairs: str = ""
    quads: Mapping[str, Mapping[tuple[str, str], str]] = field(default_factory=dict)
    quads_by_evex: str = ""
    matrices: Matrices | None = None
    tiles: Tiles | None = None
    platform: Platform = LINUX
    emulators: tuple[str, ...] = ()
    emulated_cpus: tuple[tuple[str, frozenset[str]], ...] = ()
    port: Port | None = None

    def __post_init__(self) -> None:
        _NAMED[self.name] = self

    def linux_name(self, feature: str) -> str:
        """Return Linux's name of a feature by LLVM's."""
        return self.linux_names.get(feature, feature)

    def registers(self, features: Iterable[str]) -> tuple[int, int]:
        """Return the width in bits and the number of the vector registers of a CPU, by Linux's names of its features."""
        there = set(features)
        return next((vectors for feature, vectors in self.vectors.items() if feature in there), (128, 16))

    def flags(self, features: Iterable[str]) -> tuple[str, ...]:
        """Return the C compiler's flags for a CPU, by Linux's names of its features."""
        there = set(features)
        return tuple(flag for flag, needed in self.operator_flags if needed <= there)

    def c_rows(self, features: Iterable[str]) -> list[str]:
        """Return the initializers of those features that C code asks a CPU for."""
        return [self.c_features[each] for each in features if each not in self.platform.marks]

    @property
    def tools(self) -> str:
        """Begin of the names of binutils for it."""
        return self.port.tools if self.port else f"{self.triple}-"

    @property
    def zig(self) -> str:
        """Name by which `zig cc` knows it; empty: that has no C library for it."""
        return self.port.zig if self.port else f"{self.triple}{self.platform.zig_suffix}"

    @property
    def reader(self) -> AssemblyReader:
        """Syntax in which LLVM writes its machine code."""
        reader: AssemblyReader = import_module(self.assembly).READER
        return reader

    def hot_loop(self, asm: str) -> HotLoop | None:
        """Return the hot loop of a module's assembly; None if no loop has a multiply-add."""
        from .hot_loop import hot_loop

        return hot_loop(asm, self.reader)

    def listing(self, asm: str) -> str:
        """Return a module's assembly as text: the hot loop with its counts, then all functions."""
        from .hot_loop import listing

        return listing(asm, self.reader)

    def multiply_adds(self, lines: Iterable[str]) -> int:
        """Return the number of multiply-adds, and dot products, among instructions."""
        return self.reader.multiply_adds(lines)

    def loops(self, asm: str) -> list[list[str]]:
        """Return the innermost loops with a multiply-add of a module's assembly."""
        from .assembly import functions_of, innermost_loops

        reader = self.reader
        functions = functions_of(asm).values()
        return [loop for lines in functions for loop in innermost_loops(lines, reader.multiply_adds, reader.branches)]

    def __reduce__(self) -> tuple[Any, ...]:
        # The one object, in another process, too.
        return isa_named, (self.name,)

    def __repr__(self) -> str:
        return f"<Isa {self.name}>"


def port_isa(platform: Platform, port: Port) -> Isa:
    """Return an instruction set on a platform that its folder does not name."""
    isa = isa_named(port.isa)

    def detect() -> frozenset[str]:
        found: frozenset[str] = import_module(port.detect).features() if port.detect else isa.detect()
        return found.union(platform.marks)

    return replace(
        isa,
        name=f"{isa.name} on {platform.name}",
        machine=port.machine,
        triple=port.triple,
        used=isa.used.difference(port.lacking),
        without=(*isa.without, *sorted(port.lacking)),
        cross_compilers=port.cross_compilers,
        install=port.install,
        emulators=port.emulators,
        emulated_cpus=(),
        detect=detect,
        platform=platform,
        port=port,
    )
