"""Families of problems: their text, their members, and the messages on others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import fixed, model, save, value
from onnx import helper
from strategies import calls

from tvmconv import format_family, format_signature, ops, parse_family
from tvmconv.errors import InvalidProblemError, SignatureError, SourceError
from tvmconv.family import Extent, ProblemFamily
from tvmconv.family_text import is_family
from tvmconv.frontends.families import any_size, read_families, served_by

FREE = "conv2d-n?-i16x?x?-o32x?x?-k3x3-s2x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
TEXTS = (
    FREE,
    "conv2d-n1-i3xh%32xw%32[32:4096]-o16x?x?-k3x3-s2x2-d1x1-psame_upper-g1-NXC-XIO-f32-bias-relu",
    "conv2d-n[2:8]-i3x20x?-o16x9x?-k3x3-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-bf16-clip_0_6",
    "conv1d-n?-i64x?%4[8:]-o32x?-k3-s2-d1-p?-g1-NCX-OIX-f16-gelu",
    "conv2d-n1-i8x3x?-o8x?x?-k5x5-s1x1-d1x1-p?-g1-NXC-XIO-f32",
    "backprop2d-n?-i64x?x?-o32x?x?-k3x3-s2x2-d1x1-p1x1_1x1+1x1-g1-NXC-XIO-f32",
    "backprop3d-n?-i64x?x?x?-o32x?x?x?-k3x3x3-s2x2x2-d1x1x1-p?-g1-NXC-XIO-f32-add",
)


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    """Draw an extent that is free."""
    low, multiple = draw(st.integers(1, 9)), draw(st.sampled_from((1, 1, 2, 5)))
    high = draw(st.integers(low + 10, low + 99) | st.just(Extent().high))
    return Extent(low, high, multiple, draw(st.sampled_from(("", "h", "w2"))))


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_parsed_and_printed(text: str) -> None:
    family = parse_family(text)
    assert format_family(family) == text
    assert is_family(text)
    assert not is_family(format_signature(family.typical))
    assert all(family.obstacle(each) is None for each in (family.typical, *family.examples()))


@given(calls(), st.lists(extents(), min_size=4, max_size=4))
def test_drawn_families_are_parsed_and_printed(call, drawn: list[Extent]) -> None:
    family = family_of(call.problem(), call, drawn)
    if family is not None:
        assert parse_family(format_family(family)) == family


def family_of(problem, call, drawn: list[Extent]) -> ProblemFamily | None:
    """Return the family of a call, of drawn extents; None if it is of none."""
    pads = (call.attributes["pads_begin"], call.attributes["pads_end"])
    try:
        return ProblemFamily(
            problem.op, drawn[0], problem.in_channels, tuple(drawn[1 : 1 + problem.rank]), problem.out_channels, problem.kernel,
            call.attributes["strides"], problem.dilations, pads, problem.groups, problem.data_format, problem.filter_format,
            problem.dtype, problem.bias, problem.epilogue, tuple(call.attributes.get("output_padding", ())),
        )  # fmt: skip
    except InvalidProblemError:  # pads that leave no output
        return None


@given(calls())
def test_a_family_serves_the_calls_of_its_attributes(call) -> None:
    problem = call.problem()
    family = family_of(problem, call, [Extent()] * 4)
    if family is not None:
        assert family.problem(problem.batch, problem.in_spatial) == problem
        assert family.obstacle(problem) is None
        assert replace(family, pads="?", output_padding=()).obstacle(problem) is None


@pytest.mark.parametrize(
    ("text", "batch", "spatial", "said"),
    [
        (TEXTS[1], 2, (64, 64), "batch is 2; it must be 1"),
        (TEXTS[1], 1, (64, 100), "spatial axis 1 is 100, no multiple of 32; pad it by 28 to 128"),
        (TEXTS[1], 1, (64, 8192), "spatial axis 1 is 8192; it must be w%32[32:4096]"),
        (TEXTS[2], 9, (20, 30), "batch is 9; it must be [2:8]"),
        (FREE.replace("i16x?x?", "i16xhxh"), 1, (5, 6), "both h, which is one extent"),
    ],
)
def test_a_problem_outside_is_told_why(text: str, batch: int, spatial: tuple[int, ...], said: str) -> None:
    family = parse_family(text)
    assert said in str(family.obstacle(family.problem(batch, spatial)))


def test_other_pads_and_strides_are_told() -> None:
    family = parse_family(FREE)
    other = ops.convolution(
        (1, 8, 8, 16), (3, 3, 16, 32), strides=(2, 1), dilations=(1, 1), pads_begin=(1, 0), pads_end=(1, 2)
    )
    assert (
        family.obstacle(other)
        == "pads_begin is [1, 0], and the family's [1, 1]; pads_end is [0, 2], and the family's [0, 1]"
    )
    assert replace(family, pads="?").obstacle(other) is None
    low = ops.convolution(
        (1, 3, 20, 8), (5, 5, 8, 8), strides=(1, 1), dilations=(1, 1), pads_begin=(2, 2), pads_end=(2, 2)
    )
    assert parse_family(TEXTS[4]).obstacle(low) is None  # lower than its filter without pads
    small = ops.convolution((1, 1, 1, 16), (3, 3, 16, 32), strides=(1, 1), dilations=(1, 1), auto_pad="same_upper")
    assert family.obstacle(small) is None  # a stride that is never taken


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FREE.replace("n?", "nx"), "field 2"),
        (FREE.replace("i16x?x?", "i16x?x?%0"), "is not an extent"),
        (FREE.replace("i16x?x?", "i16x?x[9:3]"), "no extent is from 9 to 3"),
        (FREE.replace("i16x?x?", "i16x?x?%8[3:7]"), "no extent is from 3 to 7 and a multiple of 8"),
        (FREE.replace("i16x?x?", "i16x?"), "says 2d"),
        (FREE.replace("o32x?x?", "o32x4x?"), "the other fields give o32x?x?"),
        (FREE.replace("p1x1_1x1", "p1_1x1"), "pads_begin"),
        (FREE.replace("p1x1_1x1", "psame"), "field 8"),
        (TEXTS[5].replace("p1x1_1x1+1x1", "psame_upper"), "give zeros"),
        (FREE.replace("i16", "i15").replace("g1", "g2"), "groups"),
        ("conv2d", "field 2"),
        (FREE + "-", "ends in '-'"),
        (FREE.replace("d1x1", "d1"), "dilations is [1], 1 numbers; 2 are needed"),
        (FREE.replace("k3x3", "k3"), "kernel is [3], 1 numbers; 2 are needed"),
        (FREE.replace("g1", "g0"), "groups is 0"),
        (FREE.replace("1x1-g1", "1x1+1x1-g1"), "only transposed convolutions have one"),
    ],
)
def test_a_text_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(SignatureError) as error:
        parse_family(text)
    assert said in str(error.value)


def network(tmp_path: Path) -> str:
    """Write a model of an image of free height and width: a stride of 2, a sum of branches, one pixel at the end."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], name="down", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["h", "b"], ["i"], name="mix"),
        helper.make_node("ConvTranspose", ["i", "c"], ["j"], name="up", strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["j"], ["p"]),
        helper.make_node("Conv", ["p", "d"], ["y"], name="head"),
    ]
    weights = [fixed("a", 8, 3, 3, 3), fixed("b", 8, 8, 1, 1), fixed("c", 8, 4, 2, 2), fixed("d", 5, 4, 1, 1)]
    return save(model(nodes, [value("x", (1, 3, "h", "w"))], weights=weights), tmp_path)


def test_a_model_of_free_extents_has_families(tmp_path: Path) -> None:
    read = read_families(network(tmp_path), {"x": tuple(map(Extent.parse, ("1", "3", "?%32", "w%32[64:]")))})
    families = [node.family for node in read.nodes if node.family]
    own = ["p1x1_1x1", "p0x0_0x0", "p0x0_0x0"]
    texts = [
        "conv2d-n1-i3x?x?-o8x?x?-k3x3-s2x2-d1x1-p?-g1-NCX-OIX-f32",
        "conv2d-n1-i8x?x?-o8x?x?-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
        "backprop2d-n1-i8x?x?-o4x?x?-k2x2-s2x2-d1x1-p?-g1-NCX-OIX-f32",
    ]
    assert [format_family(served_by(each)) for each in families] == texts
    assert [*map(format_family, families)] == [text.replace("p?", p) for text, p in zip(texts, own, strict=True)]
    assert [format_signature(node.problem) for node in read.nodes if node.family is None] == [
        "conv2d-n1-i4x1x1-o5x1x1-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32"
    ]
    read = read_families(network(tmp_path), {"": tuple(map(Extent.parse, ("1", "3", "40", "[16:24]")))})
    assert format_family(read.nodes[0].family).startswith("conv2d-n1-i3x40x?-o8x20x?")


def test_extents_of_one_name_have_the_multiples_and_limits_of_all() -> None:
    text = "conv2d-n1-i3xh%32[40:]xh%48[:900]-o16x?x?-k3x3-s2x2-d1x1-psame_upper-g1-NXC-XIO-f32".replace("[:", "[1:")
    family = parse_family(text)
    assert family.in_spatial == (Extent(40, 900, 96, "h"),) * 2
    assert not any(family.obstacle(each) for each in family.examples())
    with pytest.raises(SignatureError, match="no extent is from 40 to 90"):
        parse_family(text.replace("900", "90"))


def test_an_extent_is_no_multiple_of_zero() -> None:
    with pytest.raises(InvalidProblemError, match="a multiple of 0"):
        Extent(1, 5, 0)


def test_another_operation_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="op is 'deconvolution'"):
        replace(parse_family(FREE), op="deconvolution")


def test_a_model_that_cannot_be_read_at_a_size_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="free extents may need a multiple or a range"):
        read_families(network(tmp_path), {"x": tuple(map(Extent.parse, ("1", "4", "?", "?")))})


@given(calls())
def test_any_size_serves_the_problem_that_it_is_of(call) -> None:
    problem = call.problem()
    assert any_size(problem).obstacle(problem) is None
