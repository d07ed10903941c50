"""The algorithm of a family: by the sizes that it is for, of a network those that its layers see."""

from __future__ import annotations

import random
from math import prod
from pathlib import Path

import pytest
from models import fixed, model, save, value
from onnx import helper

from tvmconv import parse_family
from tvmconv.building.decision.rank_families import rank_family
from tvmconv.family import Extent
from tvmconv.frontends.onnx.graph import declared_inputs
from tvmconv.lowering.cpu.cover import Cost, Covers, choose
from tvmconv.network.ir.graph import MAIN
from tvmconv.network.kernels.family_sizes import sizes_of, typical_extents
from tvmconv.network.kernels.place import chains_of
from tvmconv.network.read.onnx.free import free_dims
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, load_file
from tvmconv.targets.target import CpuTarget, Target

LAYER = "conv2d-n?-i{0}x?x?-o{0}x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def target() -> CpuTarget:
    found = Target.parse("znver3")
    assert isinstance(found, CpuTarget)
    return found


@pytest.mark.parametrize(
    ("extents", "best"), [((1, 2, 3), "direct"), ((4, 8, 16), "winograd2"), ((28, 56, 112), "winograd4")]
)
def test_an_algorithm_is_the_best_of_all_sizes(extents: tuple[int, ...], best: str) -> None:
    family = parse_family(LAYER.format(512))
    sizes = [family.problem(1, (size, size)) for size in extents]
    assert next(iter(rank_family(family, target(), "default", sizes, cold=True))) == best


def test_few_pixels_have_blocks_of_another_algorithm_where_filters_are_large() -> None:
    def algorithms(channels: int, joined: bool) -> set[str]:
        ranked = rank_family(parse_family(LAYER.format(channels)), target(), "default", joined=joined)
        return {name for name, _ in next(iter(ranked.values()))}

    assert algorithms(512, joined=False) == {"winograd4"}
    assert algorithms(512, joined=True) == {"winograd4", "direct"}
    assert len(algorithms(8, joined=True)) == 1


def test_sizes_of_a_family_are_of_its_ranges() -> None:
    assert [each.in_spatial for each in parse_family(LAYER.format(8)).sizes()][::5] == [(7, 7), (224, 224)]
    text = "conv2d-n?-i8x[20:100]x48-o8x?x48-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
    assert [each.in_spatial for each in parse_family(text).sizes()] == [(20, 48), (28, 48), (56, 48), (100, 48)]
    row = "conv1d-n?-i8x?-o8x?-k3-s1-d1-p1_1-g1-NXC-XIO-f32"
    assert [each.in_spatial for each in parse_family(row).sizes()][:3] == [(49,), (196,), (784,)]


@pytest.mark.parametrize("seed", range(20))
def test_a_cover_takes_no_less_than_its_outputs_and_no_more_than_one_kind_of_block(seed: int) -> None:
    rng = random.Random(seed)
    rank = rng.randint(1, 3)
    sizes = [tuple(rng.randint(1, 9) for _ in range(rank)) for _ in range(3)]
    blocks = [Cost(each, 10.0 + 2 * prod(each), 0.0, 0.0) for each in sizes]
    outputs = tuple(rng.randint(1, 40) for _ in range(rank))
    least = prod(outputs) * min(each.cycles / prod(each.outputs) for each in blocks)
    alone = [each.cycles * prod(-(-x // y) for x, y in zip(outputs, each.outputs, strict=True)) for each in blocks]
    whole = tuple(3 * y for y in sizes[0])
    covers = Covers(blocks, [outputs, whole])
    assert least <= covers.cycles(range(3))[0] + 1e-9 <= min(alone) + 2e-9
    assert covers.cycles([0])[1] == 3**rank * blocks[0].cycles


def test_blocks_are_chosen_for_the_outputs() -> None:
    blocks = [Cost(each, cycles, 0.0, 0.0) for each, cycles in (((1, 1), 30.0), ((8, 8), 100.0), ((3, 5), 40.0))]
    assert choose(blocks, [(8, 8), (16, 24)], 3, 0.01) == [1]
    assert choose(blocks, [(1, 1), (8, 8)], 3, 0.01) == [2, 1, 0]
    assert choose(blocks, [(1, 1), (8, 8)], 1, 0.01) == [2]
    assert choose(blocks, [(1, 1), (8, 8)], 3, 0.2) == [2, 1]


def test_layers_of_a_network_have_the_sizes_that_they_see(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], strides=[4, 2]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w1"], ["y"]),
    ]
    source = save(
        model(
            nodes,
            [value("x", ["n", 3, "h", "w"])],
            [value("y", None)],
            weights=[fixed("w0", 8, 3, 3, 3), fixed("w1", 8, 8, 1, 1)],
        ),
        tmp_path,
    )
    given = [Extent(), Extent.of(3), Extent(multiple=8, low=32), Extent(low=64, high=256)]
    free = free_dims(declared_inputs(load_file(source).graph), {"": given}, source)
    module = as_relax(fix_shapes(source, free=free), source, free)
    inputs = typical_extents(module)
    assert [tuple(each.values()) for each in inputs] == [
        (1, h // 8, w) for h, w in zip((64, 128, 256, 512, 1024, 2048), (64, 84, 111, 147, 194, 256), strict=True)
    ]
    chains, _ = chains_of(MAIN, module[MAIN])
    first, second = sizes_of(chains.values(), module).values()
    assert [each.in_spatial for each in first] == [(8 * each["h"], each["w"]) for each in inputs]
    assert [each.in_spatial for each in second] == [(each["h"], (each["w"] + 1) // 2 // 2) for each in inputs]
