"""Annotations by which a schedule for a GPU asks lowering for rewrites."""

from __future__ import annotations

# Of the loop over a tile's depth: how many tiles are in shared memory at once.
STAGES = "tvmconv_stages"
# The smallest asynchronous copy, in bytes; 8 and 16 are the others.
LEAST_ASYNCHRONOUS = 4
# Of wgmma's block: the number of its tile, and the stages.
WGMMA_TILE, WGMMA_STAGES = "tvmconv.wgmma_tile", "tvmconv.wgmma_stages"
