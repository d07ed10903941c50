"""Costs of work on each CPU: the coefficients of the cost model (tvmconv/algorithms/cpu/model/cost.py).

The rows are data: `costs.json`, and the user's own from `tvmconv calibrate`. A CPU without a row takes the nearest one, by vector registers
and ports, then by caches. docs/cost-model.md explains the coefficients, benchmarks/results/coefficients.md has their measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from .cpus import L1_WAY_BYTES, L1_WAYS


@dataclass(frozen=True)
class StepCosts:
    """A step's cost in a tile whose sums are in registers, in multiply-adds of whole vectors.

    Three bounds compete, and the largest counts: multiply-adds, loads that start beside them, and the chain of sums. Other costs
    are added.

    Attributes
    ----------
    scale
        Factor of the whole step.
    chain
        Least multiply-adds of a step: its sums wait for those of the step before.
    vector, broadcast
        In the bound of loads: a vector, and an element that a multiply-add broadcasts.
    from_l2, from_l3
        In the bound of loads: a vector of the filter from that cache.
    far
        Factor of vector loads from L2, in the bound and in what is added.
    step, beside_vector, beside_part, beside_broadcast
        Added for a step; for a vector of the filter, and for the part of a whole vector that it is; for a broadcast.
    crowded
        Added for a broadcast of data that share sets of L1 with the filter.
    spill
        Added for a sum that has no register.
    single
        Added for each pixel of spilling tiles of one vector, if sums are of one tap.
    pair
        Loads for each vector and broadcast that start beside a multiply-add, where tiles of several rows are compared.
    addresses
        Pixels of a tile whose addresses stay in registers, if pixels are at arbitrary places in data.
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
    """A tap's cost in a tile whose lanes have data of their own, in multiply-adds for each vector of outputs.

    Attributes
    ----------
    scale
        Factor of the whole tap.
    chain
        Least multiply-adds of a tap.
    load
        A vector of data or of the filter.
    long, long_in_place
        For each vector of a tile, as long tiles wait for caches: of copied data, and of data read in place.
    single
        For tiles of one vector, which waste half of a pair of lines.
    reload, reload_beyond
        A vector of data that left its register before its last tap, of images that L2 keeps, and of others.
    crowded
        A vector of data or of the filter that is not in L1, because pixels share few of its sets.
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
    """Cycles of copying, transposing or storing an element.

    Attributes
    ----------
    copy, transpose, transpose_pairs, transpose_across
        A copy in order (widened, padded); from planes to channels in lanes or back; the same for pairs of bf16, and for lanes across
        groups.
    to_planes, panel
        A copy from pixels to planes; in pieces of whole vectors.
    apart
        A copy from planes to channels in lanes or back, element by element.
    scattered
        Added for an array that L2 does not keep.
    store, store_apart
        A store of one element; added where lines are stored to again after others.
    add_lanes
        Adding the lanes of a sum.
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
        Read from that cache.
    again
        Of a filter that L2 does not keep, each time that tasks read it.
    memory
        Of a filter that L3 does not keep from call to call.
    cold, cold_wait
        Added for a filter that a network's other layers evict from L3: all of its lines, and those read before anything can be
        prefetched.
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
        Of a copy from planes before all tasks that L2 does not keep; added for lines that L3 does not keep either.
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
        A multiply-add of the products' matrices, for tiles of 4 and 6 points.
    data_again
        A vector of a point of data that several tasks transform, where task sizes are compared.
    data, output, output_row
        A vector of a point of data; of outputs tiled along two axes, and along one.
    transpose
        An element of data or outputs in planes, transposed by squares.
    data_line, filter_line, memory_line
        A line of transformed data to or from a core; of the transformed filter; of a filter that is transformed as it is read from
        memory.
    filter, tap, tap_oix, tap_apart, tap_oix_apart
        A vector of a point of the filter; and of a tap: with lanes contiguous (XIO), with the taps of a lane contiguous (OIX), and the
        same for transposed convolutions.
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
        A step of a register tile of the products.
    tile
        Clearing and storing the sums of a register tile at a point.
    data_line, copy_line
        A line of transformed data to and from L3; of the padded copy of data.
    filter_line, filter_line_memory
        A line of a filter that L3 keeps, mostly hidden behind the products; of a larger filter.
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
    """Cycles of AMX's tiles; absent in rows of CPUs without AMX.

    Attributes
    ----------
    multiply, latency
        A multiplication of tiles; the latency between dependent ones.
    data_line, filter_line
        A line of data and of the filter from L2, while other tiles are multiplied.
    crossing_row
        A row of a tile that two cache lines have parts of, loaded from L1.
    store, store_half, store_half_late, store_planes, store_strided
        A vector of sums: stored by whole lines; by halves of lines; by halves that do not follow each other; by squares to planes; by
        elements.
    copy, split
        A line of data that is copied; one of bf16 terms that f32 or f16 is split into.
    scale
        Factor of the whole estimate.
    shared_line
        A line of the output that several threads write to.
    """

    multiply: float
    latency: float
    data_line: float
    filter_line: float
    crossing_row: float
    store: float
    store_half: float
    store_half_late: float
    store_planes: float
    store_strided: float
    copy: float
    split: float
    shared_line: float
    scale: float = 1.0


@dataclass(frozen=True)
class Costs:
    """Costs of work on a CPU.

    Attributes
    ----------
    vector_bits, vector_registers, multiply_adds, l2, l3
        Facts about the measured CPU, by which the nearest row is found.
    l1
        Bytes of its L1.
    source
        Origin of the coefficients: the method and the machine.
    tile, rows, shared_rows, taps, products
        Steps of tiles: of direct; with lanes along a row; of several rows that share loads; of single taps; of Winograd's products.
    rows_depthwise_scale
        `rows.scale` of depthwise convolutions.
    lanes
        Costs of tiles with lanes across groups.
    elements, lines, points, structures, amx
        Costs that their classes describe.
    latency
        Latency of a multiply-add.
    product_reduced
        A multiply-add with lanes along summed channels, each of which loads its own vector.
    add_tap, add_tap_far
        Adding a vector of one tap's products to an output, in multiply-adds; the same for products larger than half of L1.
    add_passes
        A line of these products that L2 does not keep, to and from L3.
    start, task, plane
        Starting and ending a tile; starting a task; a task's planes of another channel, which are copied and read at once.
    pays
        Names of choices that were measured to pay on this CPU (benchmarks/results/coefficients.md explains each).
    pieces, pages
        Bytes of a filter from which reading it in place is slow: in pieces of lines, and on many pages.
    residuals
        Residuals of the fit by term: standard deviations of the logarithms of estimates by times.
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
        """Return the cycles of an event by its name: ``group.name``, or ``name`` without a group."""
        value = self
        for part in name.split("."):
            value = getattr(value, part)
        assert isinstance(value, float)
        return value
