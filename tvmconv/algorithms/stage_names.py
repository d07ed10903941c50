"""Names of the stages of definitions, by which schedules and lowering find them.

Traces, golden files and ``tvmconv inspect`` contain these names: a change here changes them all.
"""

from __future__ import annotations

FILTER = "filter"  # the argument; belongs to no window
FILL = "fill"  # the output where no window writes it; belongs to no window
DATA_PAD = "data_pad"
DATA_PHASES = "data_phases"  # columns a stride apart, gathered
FILTER_PACK = "filter_pack"
FILTER_SUMS = "filter_sums"  # sums of each output channel's filter
ACC = "acc"
LANE_SUMS = "lane_sums"  # sums after some lanes are added
PARTIAL = "part"  # products of one tap, or sums of a part of the depth
SUM = "sum"  # partial sums added
TILE = "tile"  # sums copied out of registers
OUT = "out"
# Winograd's transforms, along rows and then along columns.
DATA_ROWS, DATA_TILES = "data_rows", "data_tiles"
FILTER_ROWS, FILTER_TILES = "filter_rows", "filter_tiles"
OUT_ROWS = "out_rows"
# Transformed stages as pairs of halves, and their products copied out of AMX's registers.
DATA_HALVES, FILTER_HALVES, PRODUCTS = "data_halves", "filter_halves", "products"
# Tiles on GPUs, in shared memory and in registers.
DATA_TILE, FILTER_TILE = "data_tile", "filter_tile"
PATCH = "patch"


def stage_name(stage: str, number: int) -> str:
    """Return the name of a stage of window `number`."""
    return f"{stage}{number}"
