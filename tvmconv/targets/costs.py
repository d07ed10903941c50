"""Costs of work on each CPU: the coefficients of the cost model (tvmconv/algorithms/cpu/model/cost.py).

The rows are data: `costs.json`, and beside the user's tuning records what `tvmconv calibrate` wrote. A CPU without a row has the
nearest's, by its registers and ports, then by its caches. docs/cost-model.md says what each coefficient means,
benchmarks/results/coefficients.md which measurements it is from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from .cpus import L1_WAY_BYTES, L1_WAYS


@dataclass(frozen=True)
class StepCosts:
    """A step's cost in a tile whose sums are in registers, in multiply-adds of whole vectors.

    Multiply-adds, what starts with them, and the chain of sums bound a step: the slowest counts. The rest is added.

    Attributes
    ----------
    scale
        Of the whole step.
    chain
        Multiply-adds that a step takes at least: its sums wait for those of the step before.
    vector, broadcast
        A load of a vector, and of an element that a multiply-add broadcasts, among what bounds a step.
    from_l2, from_l3
        A vector of the filter that comes from there, among what bounds a step.
    far
        How many times as long the load of a vector takes that comes from L2, whether it bounds a step or is added.
    step, beside_vector, beside_part, beside_broadcast
        Added for a step; for a vector of the filter, and for the part of a whole vector that it is; for a broadcast.
    crowded
        Added for a broadcast of data that share sets of L1 with the filter.
    spill
        Added for a sum that has no register.
    single
        Added for a pixel of tiles of one vector that spill, if a sum is of one tap.
    pair
        Loads that start with a multiply-add, for each vector and broadcast, where tiles of several rows are compared.
    addresses
        Pixels of a tile whose addresses stay in registers, if they are anywhere in data.
    """

    scale: float = 1.0
    chain: float = 0.0
    vector: float = 0.0
    broadcast: float = 0.0
    from_l2: float = 0.0
    from_l3: float = 0.0
    far: float = 1.0
    step: float = 0.0
    beside_vector: float = 0.0
    beside_part: float = 0.0
    beside_broadcast: float = 0.0
    crowded: float = 0.0
    spill: float = 0.0
    single: float = 0.0
    pair: float = 0.0
    addresses: float = inf


@dataclass(frozen=True)
class Lanes:
    """A tap's cost in a tile whose lanes have data of their own, in multiply-adds, for each vector of outputs.

    Attributes
    ----------
    scale
        Of the whole tap.
    chain
        Multiply-adds that a tap takes at least.
    load
        A vector of data or of the filter.
    long, long_in_place
        For each vector of a tile: long tiles wait for caches; the same of data that is read where it lies.
    single
        Of tiles of one vector, which waste half of a pair of lines.
    reload, reload_beyond
        A vector of data that left its register before its last tap, of images that L2 keeps, and of others.
    crowded
        A vector of data or of the filter that is not in L1, for pixels lie in few of its sets.
    """

    chain: float
    load: float
    long: float
    long_in_place: float
    single: float
    reload: float
    reload_beyond: float
    crowded: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Elements:
    """Cycles of an element that is copied, transposed or stored by itself.

    Attributes
    ----------
    copy, transpose, transpose_pairs, transpose_across
        In order (widened, padded); from planes to channels in lanes or back; the same of pairs of bf16, and by lanes across groups.
    to_planes, panel
        From pixels to planes; in pieces of whole vectors.
    apart
        From planes to channels in lanes or back, one by one.
    scattered
        Of an array that L2 does not keep, more.
    store, store_apart
        Stored by itself; more, where a line is stored to again after others.
    add_lanes
        The lanes of a sum added up.
    """

    copy: float
    transpose: float
    transpose_pairs: float
    transpose_across: float
    to_planes: float
    panel: float
    apart: float
    scattered: float
    store: float
    store_apart: float
    add_lanes: float


@dataclass(frozen=True)
class Lines:
    """Cycles of a cache line of 64 bytes.

    Attributes
    ----------
    l2, l3
        Read from there.
    again
        Of a filter that L2 does not keep, for each time that tasks read it.
    memory
        Of a filter that L3 does not keep from call to call.
    cold, cold_wait
        Of a filter that other layers of a network drive out of L3, more than from a cache: of all of it, and of what is read before
        anything could fetch it ahead.
    streamed
        Of a filter that is prefetched from L3.
    stored
        Of an output that L2 does not keep.
    planes
        Of planes that L2 does not keep, from which channels are gathered, or to which they are scattered.
    copy
        Copied by a task.
    part
        Of a copied part of a filter whose rows are not contiguous.
    beside
        Of a filter that every tile reads from L3 again, beside its products.
    passed, passed_memory
        Of a copy from planes, made before all tasks, that L2 does not keep; more, of what L3 does not keep of it.
    """

    l2: float
    l3: float
    again: float
    memory: float
    cold: float
    streamed: float
    stored: float
    planes: float
    copy: float
    part: float
    beside: float
    cold_wait: float = 0.0
    passed: float = 0.0
    passed_memory: float = 0.0


@dataclass(frozen=True)
class Points:
    """Cycles of Winograd's transforms.

    Attributes
    ----------
    product4, product6
        A multiply-add of the products' matrices, of tiles of 4 and 6 points.
    data_again
        A vector of a point of data that several tasks transform, where they are compared.
    data, output, output_row
        A vector of a point of data; of output, of two axes and of one.
    transpose
        An element of planes, of data or outputs, by squares.
    data_line, filter_line, memory_line
        A line of transformed data that passes a core; of the transformed filter, as it is read; of a filter that is transformed as it is
        read from memory.
    filter, tap, tap_oix, tap_apart, tap_oix_apart
        A vector of a point of the filter; and of one of its taps: lanes together (XIO), taps of a lane together (OIX), and the same of
        transposed convolutions.
    """

    product4: float
    product6: float
    data_again: float
    data: float
    output: float
    output_row: float
    transpose: float
    data_line: float
    filter_line: float
    memory_line: float
    filter: float
    tap: float
    tap_oix: float
    tap_apart: float
    tap_oix_apart: float


@dataclass(frozen=True)
class Structures:
    """Cycles of cache traffic beside Winograd's products, to compare its two structures.

    Attributes
    ----------
    step
        Of a tile of the products.
    tile
        Of each tile of registers and point, whose sums are cleared and stored.
    data_line, copy_line
        A line of transformed data to and from L3; of the copy of data that is padded.
    filter_line, filter_line_memory
        A line of the filter that L3 keeps, hidden behind the products for the most part; of one that it does not.
    sums
        A vector of sums that L2 does not keep.
    tap, filter
        A vector of a tap, and of a point, of a filter that is transformed as it is used.
    """

    step: StepCosts
    tile: float
    data_line: float
    copy_line: float
    filter_line: float
    filter_line_memory: float
    sums: float
    tap: float
    filter: float


@dataclass(frozen=True)
class Amx:
    """Cycles of AMX's tiles; absent for CPUs of which none was measured.

    Attributes
    ----------
    multiply, latency
        A multiplication of tiles; what one waits for the one before.
    data_line, filter_line
        A line of data and of the filter from L2, while others are multiplied.
    store, store_half, store_half_late, store_planes, store_strided
        A vector of sums: written by whole lines; by halves; those not one soon after the other; by squares to planes; by elements.
    copy
        A line of data that is copied.
    scale
        Of all of it.
    shared_line
        A line of the output that several threads write to.
    """

    multiply: float
    latency: float
    data_line: float
    filter_line: float
    store: float
    store_half: float
    store_half_late: float
    store_planes: float
    store_strided: float
    copy: float
    shared_line: float
    scale: float = 1.0


@dataclass(frozen=True)
class Costs:
    """Costs of work on a CPU.

    Attributes
    ----------
    vector_bits, vector_registers, multiply_adds, l2, l3
        Of the CPU that they were measured on: by these, the nearest row is found.
    l1
        Bytes of its L1.
    source
        How they were found, and on which machine.
    tile, rows, shared_rows, taps, products
        Steps of tiles: direct's, those with lanes along a row, of several rows that share loads, of single taps, and of Winograd's products.
    rows_depthwise_scale
        `rows.scale` of depthwise convolutions.
    lanes
        Of tiles with lanes across groups.
    elements, lines, points, structures, amx
        Each as its class says.
    latency
        Of a multiply-add.
    product_reduced
        A multiply-add with lanes along summed channels, each of which loads its own vector.
    add_tap, add_tap_far
        Adding a vector of what a tap gave an output, in multiply-adds; the same where these leave half of L1.
    add_passes
        A line of these that L2 does not keep, to and from L3.
    start, task, plane
        Starting and ending a tile; starting a task; a task's planes of another channel, which it copies and reads at once.
    pays
        What schedules do on this CPU, because it was measured to pay: the names are in benchmarks/results/coefficients.md.
    pieces, pages
        Bytes of a filter in place from which on pieces of lines, and pages, make reading it slow.
    residuals
        Of the fit, by term: how far estimates are from times, as standard deviations of logarithms.
    """

    vector_bits: int
    vector_registers: int
    multiply_adds: int
    l2: int
    l3: int
    source: str
    tile: StepCosts
    rows: StepCosts
    shared_rows: StepCosts
    taps: StepCosts
    products: StepCosts
    rows_depthwise_scale: float
    lanes: Lanes
    elements: Elements
    lines: Lines
    points: Points
    latency: float
    product_reduced: float
    add_tap: float
    add_tap_far: float
    add_passes: float
    start: float
    task: float
    pays: frozenset[str]
    pieces: float
    pages: float
    structures: Structures | None = None
    amx: Amx | None = None
    residuals: Mapping[str, float] | None = None
    l1: int = L1_WAYS * L1_WAY_BYTES
    plane: float = 0.0

    @property
    def core(self) -> tuple[int, int, int]:
        """Bits and number of vector registers, and multiply-adds in a cycle."""
        return self.vector_bits, self.vector_registers, self.multiply_adds

    def coefficient(self, name: str) -> float:
        """Return an event's cycles; its coefficient is ``group.name``, or ``name`` without a group."""
        value = self
        for part in name.split("."):
            value = getattr(value, part)
        assert isinstance(value, float)
        return value
