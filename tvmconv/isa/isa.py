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
    """An instruction that adds the product of two bf16 matrices to a matrix of sums in a vector register.

    Attributes
    ----------
    feature
        Linux's name of its feature.
    intrinsic
        LLVM's intrinsic.
    rows, columns
        Rows of the sums are pixels, whose channels are the rows of the first operand; columns are output channels, whose weights
        are the rows of the second.
    depth
        Products added to each sum: channels.
    """

    feature: str
    intrinsic: str
    rows: int
    columns: int
    depth: int


def isa_named(name: str) -> Isa:
    """Return the instruction set called `name`."""
    return _NAMED[name]


@dataclass(frozen=True)
class Tiles:
    """Instructions for tile registers: products of pairs of bf16 added to f32 sums, and of quads of integers to s32 sums.

    Attributes
    ----------
    features, of_integers
        Linux's names of the features that kernels with tiles of bf16 need, and those with tiles of integers.
    registers
        Number of tile registers.
    rows, row_bytes
        Largest number of rows of a register, and of bytes in a row.
    configuration
        Returns the operand of `configure` for the rows, and bytes of a row, of each register.
    configure, release, zero, load, store
        LLVM's intrinsics.
    multiply
        LLVM's intrinsics that multiply, by the types of data and filter.
    allow
        The C function that requests tiles from the system; results other than 0 are errors.
    round_line
        LLVM's intrinsic that rounds the second half of a line of sums, and the first, to bf16.
    awake
        The function that each step of a sum calls beside its products (`text`).
    text
        LLVM IR of that function.
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
    round_line: str
    awake: str
    text: str

    @property
    def side(self) -> int:
        """Number of sums, pairs or quads in a row, which is also that of rows."""
        return self.row_bytes // 4


@dataclass(frozen=True, eq=False)
class Isa:
    """An instruction set that kernels are compiled for: one object each, `ISA` of its folder, in `tvmconv.isa.ISAS`.

    Attributes
    ----------
    name
        Its name in messages.
    machine
        Result of ``platform.machine()`` on its CPUs.
    triple
        LLVM's target triple.
    linux_names
        Linux's names of features, in /proc/cpuinfo and AT_HWCAP, where LLVM's differ.
    used
        LLVM's names of the features that kernels may use. A CPU model's other features are not required of a machine.
    without
        LLVM's names of features that are disabled: LLVM would use them here and there where a CPU's name implies them, to no gain.
    options
        Further attributes of TVM's target, for LLVM.
    needed
        LLVM's names of the features that every kernel needs.
    least
        Message for CPUs without these, with the least CPU that has them.
    vectors
        Width in bits and number of vector registers by the Linux feature that adds them, the widest first.
    working_registers
        Vector registers not used for a tile's sums, left to the filter's vectors and data.
    fused
        Whether its CPUs have a multiply-add that rounds once.
    saturates
        Whether they have instructions that round vectors to integers, and that narrow these with saturation.
    steps_together
        Channels that a step of a direct sum unrolls, at most.
    dot
        Linux's name of the feature with a dot product of bf16.
    dot_intrinsic
        LLVM's intrinsic for it, for vectors of ``{lanes}`` sums, ``{halves}`` bf16, ``{bits}`` bits.
    dots_by_element
        Whether it broadcasts a pair from an element of a vector register, not from memory.
    pairs
        Linux's names, by a vector's bits, of the features with products of pairs of 16-bit integers added pairwise (vpmaddwd).
    packs
        LLVM's intrinsics that narrow two vectors to one, for the vectors of `pairs`; ``{}`` is the operation.
    sums_of_pairs
        Linux's name of the feature whose instruction also adds these products to sums; empty: there is none.
    quads
        Dot products of quads of 8-bit integers by Linux's names of features: mnemonics by the types of data and filter.
    quads_by_evex
        The feature whose instruction has an encoding for all vectors and registers; others are written with a prefix.
    matrices
        An instruction that multiplies matrices of bf16 in vector registers; None: there is none.
    tiles
        Instructions for tiles; None: there are none.
    known_cpus
        CPUs by vendor, older ones first, one of which is assumed where LLVM does not know a machine's model or the model is hidden.
    models
        CPU names, each with the features that it adds to LLVM's ``generic``; empty: the names are LLVM's.
    detect
        Returns Linux's names of the features that this machine has and programs may use.
    cross_compilers
        C compilers for it on machines of other instruction sets, each with the flags that it always needs.
    install
        Command that installs one on Debian and Ubuntu.
    assembly
        Name of the module whose ``READER`` reads its assembly; imported on first use.
    native
        Folder of the C files of every library, and of headers: ``processor.h`` has instructions for threads.
    c_file
        The C file in `exporting/native` by which exported libraries detect features.
    c_features
        Initializers of its ``struct feature`` by Linux's names.
    c_flags
        Flags for the C files of exported libraries.
    cpu_flag
        Flag that a CPU's name follows.
    operator_flags
        Flags for the C files of operators (`lowering/native/operators`), each with the Linux features that a target must have for it.
    aliases
        CPU names that LLVM accepts but does not list.
    platform
        The system of its libraries.
    emulators
        Programs that run its code on machines of other instruction sets.
    emulated_cpus
        CPUs of the emulators, each with those of `used` that it has by Linux's names, the least first.
    port
        The port that this instruction set is of, on another platform than its folder's; None: it is the folder's.
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
        """Return the width in bits and the number of vector registers of a CPU with `features`, by Linux's names."""
        there = set(features)
        return next((vectors for feature, vectors in self.vectors.items() if feature in there), (128, 16))

    def flags(self, features: Iterable[str]) -> tuple[str, ...]:
        """Return the C compiler's flags for a CPU with `features`, by Linux's names."""
        there = set(features)
        return tuple(flag for flag, needed in self.operator_flags if needed <= there)

    def c_rows(self, features: Iterable[str]) -> list[str]:
        """Return the initializers of the features that C code detects."""
        return [self.c_features[each] for each in features if each not in self.platform.marks]

    @property
    def tools(self) -> str:
        """Prefix of the names of its binutils."""
        return self.port.tools if self.port else f"{self.triple}-"

    @property
    def zig(self) -> str:
        """Target name of `zig cc`; empty: Zig has no C library for it."""
        return self.port.zig if self.port else f"{self.triple}{self.platform.zig_suffix}"

    @property
    def reader(self) -> AssemblyReader:
        """Reader of its assembly."""
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
        # One object in other processes, too.
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
