"""The launch that copies data and filter as wgmma reads them: `lowering/cuda/native/packing.cuh` with the constants of each copy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod

from ...algorithms.cuda.wgmma_packing import ALIGNED, Packing
from ...dtypes import DTYPE_BYTES
from . import NATIVE
from .source import WORKSPACE, WORKSPACE_ALIGNMENT, Argument, Launch

# Threads, as in packing.cuh.
_THREADS = 256
_TILE_ELEMENTS = 4096
# Columns (x) of a tile: shorter rows leave threads idle, longer ones take more loads that are not contiguous.
_TILES_X = (8, 16, 32, 64)


@dataclass(frozen=True)
class _Copy:
    """Constants of a copy, as packing.cuh names them."""

    batch: int
    outer: int
    inner: int
    x: int
    padded_outer: int
    padded_inner: int
    padded_x: int
    left: int
    from_batch: int
    from_outer: int
    from_inner: int
    from_x: int
    to_outer: int
    to_inner: int
    transposes: bool
    group: int
    together: int
    group_channels: int
    from_group: int
    inner_channels: bool

    @property
    def elements(self) -> int:
        """Elements of the copy, zeros included."""
        return self.batch * self.padded_outer * self.padded_inner * self.padded_x

    @property
    def tile_x(self) -> int:
        """Columns of a tile of a copy that transposes."""
        return next((x for x in _TILES_X if x >= self.padded_x), _TILES_X[-1])

    @property
    def blocks(self) -> int:
        """Blocks of the launch, for this copy."""
        if not self.transposes:
            return -(-self.elements // (ALIGNED * _THREADS))
        tiles_y = -(-self.padded_outer * self.padded_inner // (_TILE_ELEMENTS // self.tile_x))
        return self.batch * tiles_y * -(-self.padded_x // self.tile_x)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: a tile, its rows padded by a word."""
        return (_TILE_ELEMENTS // self.tile_x) * (self.tile_x + 2) * 2 if self.transposes else 0

    def declared(self, name: str) -> str:
        """Return the C++ of the constants."""
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            kind = "bool" if isinstance(value, bool) else "int"
            lines.append(_constant(kind, field.name, str(value).lower()))
        lines += [_constant("int", "tile_x", self.tile_x), _constant("unsigned", "blocks", self.blocks)]
        return "\n".join([f"struct {name} {{", *lines, "};", ""])


def _constant(kind: str, name: str, value: object) -> str:
    return f"  static constexpr {kind} k{name.title().replace('_', '')} = {value};"


@dataclass(frozen=True)
class Packed:
    """The C++ of the copies, their launch, if there are any, their offsets, and the workspace's bytes."""

    source: str
    launches: tuple[Launch, ...]
    data: Argument
    filter: Argument
    workspace_bytes: int


def pack_arrays(packing: Packing) -> Packed:
    """Return the copies of a problem's arrays, in the workspace, or the arrays themselves."""
    size = DTYPE_BYTES[packing.source.dtype]
    found: dict[str, Argument] = {"data": Argument("data"), "filter": Argument("filter")}
    copies: list[tuple[_Copy, str]] = []
    workspace = 0
    for name, copied, make in (
        ("data", packing.copies_data, _data_copy),
        ("filter", packing.copies_filter, _filter_copy),
    ):
        if copied:
            copy = make(packing)
            found[name] = Argument(WORKSPACE, workspace)
            workspace += -(-copy.elements * size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
            copies.append((copy, name))
    if not copies:
        return Packed("", (), found["data"], found["filter"], 0)
    # If one array is copied, it stands for both, and the second has no blocks.
    (first, name), (second, other) = copies[0], copies[-1]
    blocks = sum(copy.blocks for copy, _ in copies)
    shared = max(copy.shared_bytes for copy, _ in copies)
    arguments = (Argument(name), found[name], Argument(other), found[other])
    launch = Launch("tvmconv_pack", (blocks, 1, 1), (_THREADS, 1, 1), shared, arguments)
    text = first.declared("First") + second.declared("Second") + (NATIVE / "packing.cuh").read_text()
    return Packed(text, (launch,), found["data"], found["filter"], workspace)


def _data_copy(packing: Packing) -> _Copy:
    """Return the copy of data: rows of pixels, with their padding if steps read rows of taps."""
    source = packing.source
    channels, (depth, height, width) = source.in_channels, source.in_spatial
    last = source.data_format == "NXC"
    pixels = prod(source.in_spatial)
    return _Copy(
        batch=source.batch,
        outer=depth * height,
        inner=width,
        x=channels,
        padded_outer=depth * height,
        padded_inner=packing.width,
        padded_x=packing.channels,
        left=packing.left,
        from_batch=pixels * channels,
        from_outer=width * (channels if last else 1),
        from_inner=channels if last else 1,
        from_x=1 if last else pixels,
        to_outer=packing.width,
        to_inner=1,
        # With few channels, or no whole vectors of them, neighbouring threads read neighbouring pixels of a plane without that.
        transposes=not last and packing.channels > ALIGNED and packing.channels % ALIGNED == 0,
        group=1,
        together=1,
        group_channels=0,
        from_group=0,
        inner_channels=False,
    )


def _filter_copy(packing: Packing) -> _Copy:
    """Return the copy of a filter, by taps, input channels, padded to as many as those of data, and outputs."""
    source = packing.source
    taps, inputs, outputs = prod(source.kernel), source.in_channels, source.out_channels
    channels, columns = inputs // source.groups, outputs // source.groups
    backprop, by_taps = source.op != "convolution", source.filter_format == "XIO"
    # Distances between taps, input channels, output channels and groups.
    apart = (
        (1, columns * taps, taps, channels * columns * taps)
        if backprop
        else (1, taps, channels * taps, columns * channels * taps)
    )
    if by_taps:
        apart = (inputs * columns, 1, inputs, channels) if backprop else (channels * outputs, outputs, 1, columns)
    # Channels of one tap, of all steps.
    depth = packing.filter_channels if packing.columns else packing.channels
    to = (depth, 1)
    # The faster index is the inner one.
    order = (0, 1) if by_taps else (1, 0)
    extents, padded = (taps, channels), (taps, depth)
    return _Copy(
        batch=1,
        outer=extents[order[0]],
        inner=extents[order[1]],
        x=outputs,
        padded_outer=padded[order[0]],
        padded_inner=padded[order[1]],
        padded_x=packing.outputs,
        left=0,
        from_batch=0,
        from_outer=apart[order[0]],
        from_inner=apart[order[1]],
        from_x=apart[2],
        to_outer=to[order[0]],
        to_inner=to[order[1]],
        transposes=apart[2] > 1,
        group=columns,
        together=packing.columns or 1,
        group_channels=channels,
        from_group=apart[3] if packing.columns else 0,
        inner_channels=by_taps,
    )
