"""Names of the stages of definitions, by which schedules and lowering find them.

Traces, golden files and ``tvmconv inspect`` have these names, so a value here changes only with them.
"""

from __future__ import annotations

FILTER = "filter"  # the argument; of no window
FILL = "fill"  # the output where no window writes it; of no window
DATA_PAD = "data_pad"
DATA_PHASES = "data_phases"  # columns a stride apart, together
FILTER_PACK = "filter_pack"
FILTER_SUMS = "filter_sums"  # of what each output multiplies
ACC = "acc"
LANE_SUMS = "lane_sums"  # sums of which some lanes are added
PARTIAL = "part"  # sums of a tap, or of a part of the depth
SUM = "sum"  # partial sums added
TILE = "tile"  # sums out of the registers
OUT = "out"
# Winograd's transforms, along rows and then along columns.
DATA_ROWS, DATA_TILES = "data_rows", "data_tiles"
FILTER_ROWS, FILTER_TILES = "filter_rows", "filter_tiles"
OUT_ROWS = "out_rows"
# Stages transformed as pairs of halves, and their products out of AMX's registers.
DATA_HALVES, FILTER_HALVES, PRODUCTS = "data_halves", "filter_halves", "products"
# Tiles on GPUs, in shared memory and in registers.
DATA_TILE, FILTER_TILE = "data_tile", "filter_tile"
PATCH = "patch"


def stage_name(stage: str, number: int) -> str:
    """Return the name of a stage of the window of that number."""
    return f"{stage}{number}"
