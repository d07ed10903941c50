"""Annotations by which schedules for GPUs request rewrites from lowering."""

from __future__ import annotations

# Number of tiles in shared memory at a time, on the loop over a tile's depth.
STAGES = "tvmconv_stages"
# The smallest asynchronous copy, in bytes; 8 and 16 are the others.
LEAST_ASYNCHRONOUS = 4
# Index of wgmma's tile, and number of its stages, on the block.
WGMMA_TILE, WGMMA_STAGES = "tvmconv.wgmma_tile", "tvmconv.wgmma_stages"
