"""Layers of real networks, written down from their papers and reference implementations.

One line of a table is ``extents inputs>outputs kernel stride``, then what is not usual: ``gN`` groups (``gdw``: one a
channel), ``dN`` dilation, ``valid`` no padding (otherwise the output has ceil(extent / stride) elements), ``up`` a
transposed convolution, whose output is `stride` times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Layer:
    """A convolution of a network.

    Attributes
    ----------
    extents, kernel
        Of each spatial axis of the data; the filter's taps.
    inputs, outputs, groups
        Channels.
    stride, dilation
        Of every axis.
    padded
        Whether the output has ceil(extent / stride) elements.
    transposed
        Whether it is the transposed operation.
    """

    extents: tuple[int, ...]
    inputs: int
    outputs: int
    kernel: tuple[int, ...]
    stride: int
    groups: int = 1
    dilation: int = 1
    padded: bool = True
    transposed: bool = False

    def halved(self) -> Layer:
        """Return it with half the extent of every axis."""
        return replace(self, extents=tuple(-(-x // 2) for x in self.extents))

    def pads(self, x: int, k: int) -> tuple[int, int]:
        """Return the pads of an axis of `x` elements and `k` taps."""
        span = self.dilation * (k - 1) + 1
        if not self.padded:
            return 0, 0
        if self.transposed:
            total = max(span - self.stride, 0)
        else:
            total = max((-(-x // self.stride) - 1) * self.stride + span - x, 0)
        return total // 2, total - total // 2


def parse(line: str) -> Layer:
    """Return the layer that a line of a table describes."""
    extents, channels, kernel, stride, *rest = line.split()
    inputs, outputs = map(int, channels.split(">"))
    layer = Layer(_numbers(extents), inputs, outputs, _numbers(kernel), int(stride))
    for word in rest:
        if word == "gdw":
            layer = replace(layer, groups=inputs)
        elif word == "valid":
            layer = replace(layer, padded=False)
        elif word == "up":
            layer = replace(layer, transposed=True)
        elif word[0] == "g":
            layer = replace(layer, groups=int(word[1:]))
        else:
            layer = replace(layer, dilation=int(word.removeprefix("d")))
    return layer


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


_TABLES = {
    "mobilenet_v2": """
        224x224 3>32 3x3 2
        112x112 32>32 3x3 1 gdw
        112x112 32>16 1x1 1
        112x112 16>96 1x1 1
        112x112 96>96 3x3 2 gdw
        56x56 96>24 1x1 1
        56x56 24>144 1x1 1
        56x56 144>144 3x3 1 gdw
        56x56 144>24 1x1 1
        56x56 144>144 3x3 2 gdw
        28x28 144>32 1x1 1
        28x28 32>192 1x1 1
        28x28 192>192 3x3 1 gdw
        28x28 192>192 3x3 2 gdw
        14x14 192>64 1x1 1
        14x14 64>384 1x1 1
        14x14 384>384 3x3 1 gdw
        14x14 384>64 1x1 1
        14x14 384>96 1x1 1
        14x14 96>576 1x1 1
        14x14 576>576 3x3 1 gdw
        14x14 576>96 1x1 1
        14x14 576>576 3x3 2 gdw
        7x7 576>160 1x1 1
        7x7 160>960 1x1 1
        7x7 960>960 3x3 1 gdw
        7x7 960>160 1x1 1
        7x7 960>320 1x1 1
        7x7 320>1280 1x1 1
        1x1 1280>1000 1x1 1
    """,
    "mobilenet_v3": """
        224x224 3>16 3x3 2
        112x112 16>64 1x1 1
        112x112 64>64 3x3 2 gdw
        56x56 24>72 1x1 1
        56x56 72>72 5x5 2 gdw
        1x1 72>24 1x1 1
        1x1 24>72 1x1 1
        28x28 72>40 1x1 1
        28x28 40>120 1x1 1
        28x28 120>120 5x5 1 gdw
        28x28 240>240 3x3 2 gdw
        14x14 240>80 1x1 1
        14x14 80>200 1x1 1
        14x14 200>200 3x3 1 gdw
        14x14 80>184 1x1 1
        14x14 184>80 1x1 1
        14x14 80>480 1x1 1
        14x14 480>480 3x3 1 gdw
        14x14 112>672 1x1 1
        14x14 672>672 5x5 2 gdw
        1x1 672>168 1x1 1
        1x1 168>672 1x1 1
        7x7 672>160 1x1 1
        7x7 160>960 1x1 1
        7x7 960>960 5x5 1 gdw
        1x1 960>240 1x1 1
        1x1 960>1280 1x1 1
    """,
    "efficientnet": """
        224x224 3>32 3x3 2
        112x112 32>16 1x1 1
        1x1 32>8 1x1 1
        112x112 16>96 1x1 1
        112x112 96>96 3x3 2 gdw
        1x1 96>4 1x1 1
        1x1 4>96 1x1 1
        56x56 24>144 1x1 1
        56x56 144>144 5x5 2 gdw
        1x1 144>6 1x1 1
        28x28 144>40 1x1 1
        28x28 40>240 1x1 1
        28x28 240>240 5x5 1 gdw
        1x1 240>10 1x1 1
        1x1 10>240 1x1 1
        28x28 240>240 3x3 2 gdw
        14x14 480>480 3x3 1 gdw
        14x14 480>112 1x1 1
        14x14 480>480 5x5 1 gdw
        14x14 672>672 5x5 2 gdw
        1x1 672>28 1x1 1
        7x7 672>192 1x1 1
        7x7 192>1152 1x1 1
        7x7 1152>1152 5x5 1 gdw
        1x1 1152>48 1x1 1
        1x1 48>1152 1x1 1
        7x7 1152>320 1x1 1
        7x7 320>1280 1x1 1
        190x190 48>24 1x1 1
        95x95 192>192 5x5 2 gdw
        48x48 56>336 1x1 1
        24x24 960>160 1x1 1
        12x12 1344>2064 1x1 1
    """,
    "patches": """
        224x224 3>768 16x16 16 valid
        224x224 3>1024 14x14 14 valid
        224x224 3>768 32x32 32 valid
        224x224 3>96 4x4 4 valid
        56x56 96>192 2x2 2 valid
        28x28 256>512 2x2 2 valid
        16x64x64 4>96 4x4x4 4 valid
    """,
    "inception_v3": """
        299x299 3>32 3x3 2 valid
        149x149 32>32 3x3 1 valid
        147x147 32>64 3x3 1
        73x73 64>80 1x1 1
        73x73 80>192 3x3 1 valid
        35x35 192>64 1x1 1
        35x35 192>48 1x1 1
        35x35 48>64 5x5 1
        35x35 64>96 3x3 1
        35x35 96>96 3x3 1
        35x35 192>32 1x1 1
        35x35 288>384 3x3 2 valid
        35x35 96>96 3x3 2 valid
        17x17 768>192 1x1 1
        17x17 768>128 1x1 1
        17x17 128>128 1x7 1
        17x17 128>192 7x1 1
        17x17 160>160 7x1 1
        17x17 160>192 1x7 1
        17x17 192>192 7x1 1
        17x17 192>320 3x3 2 valid
        17x17 192>192 3x3 2 valid
        8x8 1280>320 1x1 1
        8x8 1280>384 1x1 1
        8x8 384>384 1x3 1
        8x8 384>384 3x1 1
        8x8 1280>448 1x1 1
        8x8 448>384 3x3 1
        8x8 2048>192 1x1 1
    """,
    "densenet": """
        224x224 3>64 7x7 2
        56x56 64>128 1x1 1
        56x56 128>32 3x3 1
        56x56 96>128 1x1 1
        56x56 224>128 1x1 1
        56x56 256>128 1x1 1
        28x28 128>32 3x3 1
        28x28 288>128 1x1 1
        28x28 512>256 1x1 1
        14x14 256>128 1x1 1
        14x14 672>128 1x1 1
        14x14 128>32 3x3 1
        14x14 1024>512 1x1 1
        7x7 544>128 1x1 1
        7x7 992>128 1x1 1
        7x7 128>32 3x3 1
        112x112 96>192 1x1 1
        28x28 192>48 3x3 1
        14x14 2112>192 1x1 1
    """,
    "yolo": """
        640x640 3>16 6x6 2
        640x640 3>48 3x3 2
        416x416 3>32 3x3 1
        416x416 32>64 3x3 2
        208x208 64>32 1x1 1
        208x208 32>64 3x3 1
        104x104 128>64 1x1 1
        160x160 32>64 3x3 2
        80x80 64>64 3x3 1
        52x52 128>256 3x3 1
        52x52 384>128 1x1 1
        26x26 512>1024 3x3 2
        26x26 768>256 1x1 1
        13x13 1024>512 1x1 1
        13x13 512>1024 3x3 1
        13x13 1024>255 1x1 1
        26x26 512>255 1x1 1
        52x52 256>255 1x1 1
        80x80 64>80 3x3 1
        80x80 80>80 1x1 1
        40x40 192>128 1x1 1
        20x20 512>256 1x1 1
        20x20 384>256 1x1 1
        80x80 16>1 1x1 1
    """,
    "unet": """
        572x572 1>64 3x3 1 valid
        570x570 64>64 3x3 1 valid
        284x284 64>128 3x3 1 valid
        140x140 128>256 3x3 1 valid
        68x68 256>512 3x3 1 valid
        32x32 512>1024 3x3 1 valid
        28x28 1024>512 2x2 2 up
        56x56 1024>512 3x3 1 valid
        52x52 512>256 2x2 2 up
        104x104 512>256 3x3 1 valid
        100x100 256>128 2x2 2 up
        196x196 128>64 2x2 2 up
        388x388 64>2 1x1 1
        64x64 4>320 3x3 1
        64x64 320>4 3x3 1
        32x32 640>640 3x3 1
        16x16 1280>1280 3x3 2
        8x8 1280>1280 3x3 1
    """,
    "hifi_gan": """
        32 80>512 7 1
        32 512>256 16 8 up
        256 256>256 3 1
        256 256>256 7 1 d3
        256 256>256 11 1 d5
        256 256>128 16 8 up
        2048 128>128 3 1 d3
        2048 128>128 7 1 d5
        2048 128>128 11 1
        2048 128>64 4 2 up
        4096 64>64 3 1 d5
        4096 64>64 7 1 d3
        4096 64>32 4 2 up
        8192 32>32 11 1 d5
        8192 32>32 3 1 d3
        8192 32>1 7 1
        8192 1>32 5 3
        2048 32>128 5 3
        4096 1>128 15 1
        4096 128>128 41 2 g4
        2048 128>256 41 2 g16
        512 256>512 41 4 g16
        128 512>1024 41 4 g16
        32 1024>1024 5 1
        32 1024>1 3 1
    """,
    "wavenet": """
        2048 1>32 1 1
        2048 32>64 2 1 d1
        2048 32>64 2 1 d2
        2048 32>64 2 1 d4
        2048 32>64 2 1 d16
        2048 32>64 2 1 d64
        2048 32>64 2 1 d512
        2048 64>128 2 1 d8
        2048 64>128 3 1 d9
        2048 64>256 1 1
        2048 32>32 1 1
        2048 256>256 1 1
        2048 80>128 1 1
        40 80>80 16 8 up
        320 80>80 32 16 up
    """,
    "unet_3d": """
        64x64x64 1>32 3x3x3 1
        64x64x64 32>32 3x3x3 1
        64x64x64 32>64 3x3x3 2
        32x32x32 64>64 3x3x3 1
        16x16x16 64>128 3x3x3 1
        16x16x16 128>256 3x3x3 2
        8x8x8 256>320 3x3x3 2
        4x4x4 320>320 3x3x3 1
        4x4x4 320>320 2x2x2 2 up
        8x8x8 320>256 2x2x2 2 up
        16x16x16 256>128 2x2x2 2 up
        32x32x32 64>32 2x2x2 2 up
        64x64x64 32>3 1x1x1 1
        20x28x28 192>64 1x1x1 1
        16x14x14 480>96 1x1x1 1
        8x7x7 832>384 1x1x1 1
        16x56x56 64>64 3x1x1 1
        16x56x56 64>144 1x3x3 1
        8x28x28 144>128 3x1x1 2
    """,
}
LAYERS = {name: [parse(line) for line in table.strip().splitlines()] for name, table in _TABLES.items()}
