"""Windows whose lanes run along a row of the output, instead of along its channels.

The windows are those of window.py, but vectors hold neighbouring outputs of a row, and filter elements are broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ....targets.cpus import L1_WAY_BYTES, L1_WAYS
from ...shapes import F32_BITS
from ...subconvolution import Expr, SubConvolution, shift_last
from .plan import PlanarPlan

# Most bytes of a task's copies of rows. Each task requests memory beyond the launcher's 31 MiB for a thread from the system: 32 to 3
# channels of f16 in rows of 262143 took 0.6 s then, and take 0.005 s.
MOST_ROW_BYTES = 8 * 1024 * 1024
MOST_CHANNELS = 16  # of a tile; registers also hold the row's data and the broadcast


@dataclass(frozen=True)
class PlanarWindow(SubConvolution):
    """A sub-convolution whose vectors are neighbouring outputs of a row.

    Attributes
    ----------
    lanes
        Number of outputs in a vector.
    row
        Outputs computed along the last axis, whole vectors.
    prepacked
        Whether the filter is prepacked, in the order of the sum.
    together
        Output channels that are adjacent in a packed filter.
    panels
        Whether each tile's data is copied, in the order of the sum.
    channel_tile
        Output channels of a tile if a group's last tile is shifted, to end with its channels; 0: tiles divide the channels.
    row_tile
        Rows of a tile if an image's last tile is shifted inwards, to end with its rows (as the last vector of a row by
        `overlaps`); 0: tiles divide the rows.
    plans
        Plans of tasks and tiles, the best first (planar_plan.py); empty: not planned yet.
    """

    lanes: int
    row: int
    prepacked: bool
    together: int = 1
    panels: bool = False
    channel_tile: int = 0
    row_tile: int = 0
    plans: tuple[PlanarPlan, ...] = ()

    @property
    def interleaves(self) -> bool:
        """Return whether a row's phases are neighbours in the output, in order, and so fill whole vectors."""
        axis = self.axes[-1]
        return axis.phases > 1 and axis.store_index(1, 0) == axis.store_index(0, 0) + 1

    @property
    def tile_phases(self) -> int:
        """Number of phases of the row whose sums a tile holds."""
        return self.axes[-1].phases if self.interleaves else 1

    @property
    def contiguous(self) -> bool:
        """Return whether neighbouring outputs of a row, all its phases taken together, are neighbours in the output."""
        together = self.problem.op == "convolution" or self.problem.strides[-1] == 1 or self.interleaves
        return self.problem.data_format == "NCX" and together and self.axes[-1].always_inside

    @property
    def overlaps(self) -> bool:
        """Return whether the last vector of a row overlaps the one before, so that it ends with the row.

        Both vectors compute and store the same sums where they overlap: nothing outside of the row is read or written. TVM does not
        bound the part of such a row that a task copies, and allocates the whole row for each task, which must not be too much.
        """
        outputs = self.axes[-1].outputs
        if self.row == outputs or outputs < self.lanes or not self.contiguous:
            return False
        copied = 4 * self.problem.in_channels * self.axes[-1].extent
        return len(self.axes) > 1 or self.panels or not self._copies_data or copied <= MOST_ROW_BYTES

    @property
    def excess(self) -> int:
        """Number of a row's elements that are computed but not stored."""
        return 0 if self.overlaps else self.row - self.axes[-1].outputs

    def column(self, x: Expr) -> Expr:
        """Return the output of a row that element `x` computes."""
        return shift_last(x, self.lanes, self.axes[-1].outputs) if self.overlaps else x

    @property
    def computed(self) -> tuple[int, ...]:
        """Outputs computed along all axes but the last: the image's, its rows rounded up to whole tiles."""
        outputs = tuple(axis.outputs for axis in self.axes[:-1])
        return (*outputs[:-1], -(-outputs[-1] // self.row_tile) * self.row_tile) if self.row_tile else outputs

    @property
    def computed_outputs(self) -> int:
        """Output channels computed of a group: its own, rounded up to whole tiles."""
        return -(-self.outputs // self.channel_tile) * self.channel_tile if self.channel_tile else self.outputs

    def output(self, o: Expr) -> Expr:
        """Return the output channel of a group that element `o` of its tiles computes."""
        return shift_last(o, self.channel_tile, self.outputs) if self.channel_tile else o

    def line(self, y: Expr) -> Expr:
        """Return the row of an image that element `y` computes."""
        return shift_last(y, self.row_tile, self.axes[-2].outputs) if self.row_tile else y

    @property
    def stages_data(self) -> bool:
        """Return whether data is padded, widened or transposed before it is read."""
        return self._copies_data or self.excess > 0

    @property
    def separates(self) -> bool:
        """Return whether the copy separates columns by their residue by the stride."""
        return (
            self.axes[-1].stride > 1
            and self.problem.data_format == "NCX"
            and (self.problem.dtype == "f32" or self.problem.is_quantized)
        )

    @property
    def _copies_data(self) -> bool:
        """Return whether data is copied for other reasons than an excess of rows."""
        return (
            self.panels
            or any(axis.padded for axis in self.axes)
            or self.axes[-1].stride != 1
            or self.problem.dtype != "f32"
            or self.problem.data_format == "NXC"
            or self._channels_conflict
        )

    @property
    def _channels_conflict(self) -> bool:
        """Return whether a row's data of all channels shares one set of L1, and several tiles read it; also with one axis."""
        plane = F32_BITS // 8 * prod(self.problem.in_spatial)
        return self.channels > L1_WAYS and self.outputs > MOST_CHANNELS and plane % L1_WAY_BYTES == 0

    @property
    def stores_rows(self) -> bool:
        """Return whether whole vectors of a row are contiguous in the output."""
        return self.contiguous and self.excess == 0

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside (None: always).

        The last of `indices` are the output channel and the element of the row, and after them the phase if phases interleave.
        """
        rank = len(self.axes)
        if self.interleaves:
            indices = [*indices[: 1 + rank], indices[-1], *indices[1 + rank : -1]]
        rows = indices[2 + rank : -2]
        rows[-1:] = map(self.line, rows[-1:])
        return super().store_index([*indices[: 2 + rank], *rows, self.column(indices[-1]), self.output(indices[-2])])
