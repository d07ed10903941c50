"""Annotations that request rewrites from lowering: of loops by schedules for CPUs, and of functions by definitions.

Annotations of loops, and the modules that rewrite them:

    ==============  ======================================================  =====================
    TRANSPOSE       TO_PIXELS, TO_PLANES (also _IF_..) or INTERLEAVE        tvmconv/lowering/cpu/rewrites/transposing.py
    TAP_COLUMNS     taps of a channel that are contiguous in the filter     tvmconv/lowering/cpu/rewrites/tap_columns.py
    STRIDED         columns a stride apart, where a phase has PART of them  tvmconv/lowering/cpu/rewrites/striding.py
    SKIP            products with padding are skipped                       tvmconv/lowering/cpu/rewrites/padding.py
    SKIP_TILE       tiles without stored outputs are skipped                tvmconv/lowering/cpu/rewrites/padding.py
    SOME_INSIDE     a tile with some pixels in the padding                  tvmconv/lowering/cpu/rewrites/padding.py
    UNREAD          rows of padding are not copied                          tvmconv/lowering/cpu/rewrites/padding.py
    OVERLAP         vectors of so many channels, the last shifted           tvmconv/lowering/cpu/rewrites/overlapping.py
    COLUMNS         columns of padding, separated from the others           tvmconv/lowering/cpu/rewrites/columns.py
    TAPS            taps of a row that pixels share, taken together         tvmconv/lowering/cpu/rewrites/taps.py
    SHUFFLE         lanes that read in another order, by shuffles           tvmconv/lowering/cpu/rewrites/shuffles.py
    ROUND_STORES    sums rounded to bf16 by an instruction                  tvmconv/lowering/cpu/rewrites/instructions.py
    MATRICES        a register's sums of quads, by one instruction          tvmconv/lowering/cpu/rewrites/matrices.py
    PREFETCH        a filter that no cache keeps, named by `copy_of_filter` tvmconv/lowering/cpu/rewrites/prefetching.py
    PREFETCH_NEXT   the filter of a loop's next iteration, named likewise   tvmconv/lowering/cpu/rewrites/prefetching.py
    PREFETCH_PART   the next part of a filter read in place, while one is   tvmconv/lowering/cpu/rewrites/streaming.py
                    multiplied, by the name of the buffer that sums read
    PREFETCH_TILES  the filter of a loop's next iteration, for AMX's tiles, tvmconv/lowering/cpu/rewrites/tile_prefetching.py
                    by its name
    APART           steps of a sum that LLVM may not reorder                tvmconv/lowering/cpu/rewrites/apart.py
    CUT             loops of a task that may be cut at run time, by the     tvmconv/lowering/cpu/rewrites/tasks/cuts.py
                    name of their axis, and the further cost of a piece
    PACK            a stage that depends on the filter alone                tvmconv/lowering/cpu/packing.py
    CONFIGURE       a task that uses AMX's tiles, its loops marked by ROLE  tvmconv/lowering/cpu/rewrites/tiles.py
    ==============  ======================================================  =====================

A definition calls IN_PIECE(axis, first, last) as the condition of a store that only the pieces of a task from `first` to `last` of an
axis need; both grow with the loops around. cuts.py replaces the calls.

Annotations of functions, for rewrites whose loops are known only in lowering:

    ==============  ======================================================  =====================
    ONE_THREAD      serial loops in place of parallel ones                  tvmconv/lowering/cpu/rewrites/tasks/threads.py
    QUOTIENTS       indices that divide by whole vectors                    tvmconv/lowering/cpu/rewrites/lanes.py
    HOIST           conditions moved out of loops                           tvmconv/lowering/cpu/rewrites/padding.py
    CHOOSE_ONCE     choices that unrolling decides                          tvmconv/lowering/cpu/rewrites/choices.py
    BY_ELEMENT      dot products with an element of a register (ARM)        tvmconv/lowering/cpu/rewrites/instructions.py
    BY_VEX          dot products of integers as AVX-VNNI encodes them       tvmconv/lowering/cpu/rewrites/instructions.py
    BY_SUM          dot products of pairs of integers added by one instruction  tvmconv/lowering/cpu/rewrites/instructions.py
    CONSTANTS_LAST  constants of indices added last                         tvmconv/lowering/cpu/rewrites/offsets.py
    FIXED           operations rounded alike on every CPU                   tvmconv/lowering/common/fixed_rounding.py
    ==============  ======================================================  =====================

`tvmconv/lowering/cpu/passes.py` has their order. Schedules and lowering also share the roles of loops and the sizes that rewrites take,
which are defined here.
"""

from __future__ import annotations

PREFIX = "tvmconv."
# Attributes that identify a function's problem and target for MetaSchedule; no rewrites.
SIGNATURE, TARGET, ALGORITHM, VERSION = (f"{PREFIX}{each}" for each in ("signature", "target", "algorithm", "version"))
IDENTITY = (SIGNATURE, TARGET, ALGORITHM, VERSION)
TRANSPOSE, TO_PIXELS, TO_PLANES, INTERLEAVE = f"{PREFIX}transpose", "to_pixels", "to_planes", "interleave"
# The same for loops whose extents are decisions; if these leave fewer than PART columns, or cut a part, element by element.
TO_PIXELS_IF_WHOLE, TO_PLANES_IF_WIDE = "to_pixels_if_whole", "to_planes_if_wide"
TAP_COLUMNS = f"{PREFIX}tap_columns"
STRIDED = f"{PREFIX}strided"
SKIP = f"{PREFIX}skip"
SKIP_TILE = f"{PREFIX}skip_tile"
SOME_INSIDE = f"{PREFIX}some_inside"
UNREAD = f"{PREFIX}unread"
OVERLAP = f"{PREFIX}overlap"
COLUMNS = f"{PREFIX}columns"
TAPS = f"{PREFIX}taps"
SHUFFLE = f"{PREFIX}shuffle"
ROUND_STORES = f"{PREFIX}round_stores"
MATRICES = f"{PREFIX}matrices"
BY_ELEMENT = f"{PREFIX}by_element"
BY_VEX = f"{PREFIX}by_vex"
BY_SUM = f"{PREFIX}by_sum"
PREFETCH = f"{PREFIX}prefetch"
PREFETCH_NEXT = f"{PREFIX}prefetch_next"
PREFETCH_PART = f"{PREFIX}prefetch_part"
PREFETCH_TILES = f"{PREFIX}prefetch_tiles"
APART = f"{PREFIX}apart"
CUT = f"{PREFIX}cut"
IN_PIECE = "tvmconv_in_piece"
PACK = f"{PREFIX}pack"
ROLE = f"{PREFIX}tile"
CONFIGURE = f"{PREFIX}tiles"
ONE_THREAD = f"{PREFIX}one_thread"
QUOTIENTS = f"{PREFIX}quotients"
HOIST = f"{PREFIX}hoist"
CHOOSE_ONCE = f"{PREFIX}choose_once"
CONSTANTS_LAST = f"{PREFIX}constants_last"
FIXED = f"{PREFIX}fixed"
# Annotations that move conditions; all but HOIST add some first.
PADDING = (SKIP, SKIP_TILE, SOME_INSIDE, UNREAD, HOIST)
# Roles of the loops of a block of tiles.
TILES, ROWS, VECTORS, LANES, PAIRS = "tiles", "rows", "vectors", "lanes", "pairs"
PART = 4  # floats in 128 bits, within which shuffles take one cycle on every x86
TRANSPOSED_LANES = (16, 8, 4)


def copy_of_filter(name: str, channels: int) -> str:
    """Return the value of PREFETCH and PREFETCH_NEXT for a buffer whose summed axis is the one `channels` from its end."""
    return f"{name}[-{channels}]"
