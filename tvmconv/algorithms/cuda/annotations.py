"""Annotations by which a schedule for a GPU asks lowering for rewrites."""

from __future__ import annotations

# Number of tiles in shared memory at once, on the loop over a tile's depth.
STAGES = "tvmconv_stages"
# The smallest asynchronous copy, in bytes; 8 and 16 are the others.
LEAST_ASYNCHRONOUS = 4
# Number of the tile, and the stages, of wgmma's block.
WGMMA_TILE, WGMMA_STAGES = "tvmconv.wgmma_tile", "tvmconv.wgmma_stages"
