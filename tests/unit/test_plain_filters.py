"""Which filters calls with plain ones pack before all tasks, which part by part, and which they read in place."""

from __future__ import annotations

from math import prod

import pytest
from tvm.ir import StringImm, assert_structural_equal

from tvmconv.algorithms.cpu import direct, planar, winograd
from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.kn2row import define_prepacked, tap_windows
from tvmconv.algorithms.cpu.model.counts import rows_kept
from tvmconv.algorithms.cpu.windows.filter_parts import whole_rows
from tvmconv.algorithms.cpu.windows.plan import WholeRows
from tvmconv.algorithms.pairs import filter_in_pairs
from tvmconv.algorithms.table import for_plain_filters, get
from tvmconv.lowering.common.entry_points import SYMBOL, EntryPoints
from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.functions import functions_of
from tvmconv.lowering.cpu.kernels import lower_choice
from tvmconv.lowering.cpu.lowering import workspace_bytes
from tvmconv.problem import Problem
from tvmconv.runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget

TRANSPOSED = "backprop2d-n1-i512x4x4-o256x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
DILATED = "conv2d-n1-i512x21x21-o512x21x21-k3x3-s1x1-d8x8-p8x8_8x8-g1-NXC-XIO-f32"
TILED = "conv2d-n1-i512x7x7-o512x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def _asked(signature: str, target: str = "znver3") -> tuple[Problem, CpuTarget]:
    return parse_signature(signature), CpuTarget.parse(target)


def _packs_parts(signature: str, prepacked: bool = False) -> bool:
    (packs,) = {window.packs_parts for window in direct_windows(*_asked(signature), prepacked=prepacked)}
    return packs


@pytest.mark.parametrize(
    "signature", [TRANSPOSED, TRANSPOSED.replace("NXC-XIO", "NCX-OIX"), TILED.replace("XIO", "OIX")]
)
def test_tasks_transpose_the_parts_that_they_use_of_a_filter_for_few_pixels(signature: str) -> None:
    assert _packs_parts(signature)
    assert not _packs_parts(signature, prepacked=True)


CLASSES = "conv2d-n1-i1280x1x1-o1000x1x1-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"


@pytest.mark.parametrize(
    "signature",
    [
        CLASSES.replace("o1000", "o90"),
        CLASSES.replace("i1280x1x1-o1000x1x1", "i64x28x28-o36x28x28"),  # small, for many pixels
        CLASSES.replace("i1280x1x1-o1000x1x1", "i64x28x28-o36x28x28").replace("NXC", "NCX"),
        CLASSES.replace("o1000", "o90").replace("f32", "bf16"),
    ],
)
def test_vectors_of_left_over_lanes_are_shifted_inwards_in_the_filter(signature: str) -> None:
    (window,) = direct_windows(*_asked(signature, "x86-64-v4"))
    assert window.shifted and not window.stages_filter


@pytest.mark.parametrize(
    "signature",
    [
        CLASSES.replace("o1000", "o10"),  # less than a vector
        CLASSES.replace("XIO", "OIX"),
        CLASSES.replace("i1280x1x1-o1000x1x1", "i576x14x14-o136x14x14"),  # large, for many pixels
    ],
)
def test_left_over_lanes_make_a_copy_where_no_shift_fills_them_or_it_is_used_often(signature: str) -> None:
    (window,) = direct_windows(*_asked(signature, "x86-64-v4"))
    assert window.stages_filter


@pytest.mark.parametrize(
    ("signature", "cut"),
    [
        (CLASSES, WholeRows(8, 8, 16)),
        (CLASSES.replace("o1000", "o864"), WholeRows(8, 8, 9)),
        (CLASSES.replace("i1280x1x1-o1000x1x1", "i1280x2x2-o1024x2x2"), WholeRows(8, 8, 4)),  # a row of four pixels
        (CLASSES.replace("o1000", "o9000"), None),  # pieces of a row are pages
        (CLASSES.replace("i1280", "i127"), None),  # no few rows
        (CLASSES.replace("i1280x1x1-o1000x1x1", "i1280x4x4-o1024x4x4"), None),  # sums that no L1 keeps
        (CLASSES.replace("XIO", "OIX"), None),
    ],
)
def test_tasks_read_whole_rows_where_pixels_are_no_more_than_a_tiles(signature: str, cut: WholeRows | None) -> None:
    (window,) = direct_windows(*_asked(signature, "x86-64-v4"))
    assert whole_rows(window, CpuTarget.parse("x86-64-v4")) == cut


@pytest.mark.parametrize(
    ("signature", "in_place"),
    [
        (CLASSES, True),
        (CLASSES.replace("i1280x1x1-o1000x1x1", "i1280x2x2-o1024x2x2"), True),
        (CLASSES.replace("i1280", "i1281"), False),  # a channel is left over
        (
            CLASSES.replace("i1280x1x1-o1000x1x1-k1x1", "i512x4x4-o512x4x4-k3x3"),
            False,
        ),  # each row of pixels would make all pairs
        (CLASSES.replace("XIO", "OIX"), False),
    ],
)
def test_pairs_of_bf16_are_made_in_registers_of_whole_rows(signature: str, in_place: bool) -> None:
    problem, target = _asked(
        signature.replace("f32", "bf16").replace("k3x3-s1x1-d1x1-p0x0_0x0", "k3x3-s1x1-d1x1-p1x1_1x1"), "znver4"
    )
    definition = direct.define(problem, target, vnni_factor=2)
    assert (definition.windows[0].rows_in_place is not None) == in_place
    assert ("filter_pack0" in str(definition.func)) != in_place


UPSAMPLING = "backprop2d-n1-i512x16x16-o256x32x32-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32"


@pytest.mark.parametrize(
    ("signature", "packs"),
    [
        (UPSAMPLING, True),
        (UPSAMPLING.replace("i512", "i32").replace("o256", "o64"), False),  # L2 keeps it
        (UPSAMPLING.replace("OIX", "XIO"), False),  # what a sum takes lies together
    ],
)
def test_planar_packs_a_plain_filter_where_a_sum_takes_lines_of_few_sets(signature: str, packs: bool) -> None:
    problem, target = _asked(signature)
    (window,) = planar.define(problem, target).windows
    assert window.prepacked == packs
    assert (planar.define_prepacked(problem, target) is None) == packs


def test_the_copies_of_parts_are_smaller_than_the_filter() -> None:
    problem, target = _asked(TRANSPOSED)
    elements, lowered = 4 * 4 * 512 * 256, lower_choice(problem, target, Choice("direct"))
    assert 0 < workspace_bytes(lowered.module) < elements
    assert lowered.layout is not None
    assert lowered.layout.elements == elements


@pytest.mark.parametrize(
    "signature",
    [
        TRANSPOSED.replace("n1", "n2"),  # tasks of each image would copy the same
        TRANSPOSED.replace("4x4-o", "16x16-o").replace("8x8", "32x32"),  # and tasks of some rows
        TRANSPOSED.replace("i512", "i32"),  # the caches keep its copy
        "conv3d-n1-i256x4x4x4-o256x4x4x4-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-OIX-f32",  # and of each plane
    ],
)
def test_a_filter_that_several_tasks_use_is_copied_once(signature: str) -> None:
    assert not _packs_parts(signature)


@pytest.mark.parametrize("signature", [TRANSPOSED, TILED])
def test_pairs_of_bf16_are_packed_part_by_part_too(signature: str) -> None:
    problem, target = _asked(signature.replace("f32", "bf16"), "znver4")
    (window,) = direct_windows(problem, target, vnni_factor=2)
    assert window.packs_parts
    lowered = lower_choice(problem, target, Choice("dot"))
    assert lowered.layout is not None
    assert lowered.layout.elements == prod(problem.filter_shape) // 2


@pytest.mark.parametrize(
    ("signature", "in_pairs"),
    [
        (TRANSPOSED, True),
        (TRANSPOSED.replace("NXC-XIO", "NCX-OIX"), False),
        (TRANSPOSED.replace("i512", "i511"), False),
        (TILED, False),
        (TILED.replace("XIO", "OIX"), False),
        ("conv2d-n1-i512x7x7-o64x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32", True),
    ],
)
def test_channels_that_lie_together_in_a_filter_are_read_as_pairs(signature: str, in_pairs: bool) -> None:
    problem, target = _asked(signature.replace("f32", "bf16"), "znver4")
    filter_ = direct.define(problem, target, vnni_factor=2).func.params[1]
    assert filter_in_pairs(problem) == in_pairs
    assert filter_.dtype == ("uint32" if in_pairs else "uint16")
    assert prod(filter_.shape) == prod(problem.filter_shape) // (2 if in_pairs else 1)


def test_taps_of_a_large_filter_read_a_copy() -> None:
    """All pixels read it, vector by vector of rows that are far apart."""
    (window,) = tap_windows(*_asked(DILATED), 1, prepacked=False)
    assert window.stages_filter
    assert define_prepacked(*_asked(DILATED)) is None
    small = DILATED.replace("512", "32")
    (window,) = tap_windows(*_asked(small), 1, prepacked=False)
    assert not window.stages_filter
    assert define_prepacked(*_asked(small)) is not None


@pytest.mark.parametrize(
    ("signature", "apart"),
    [
        (TRANSPOSED, True),
        (TRANSPOSED.replace("XIO", "OIX"), False),  # taps lie together
        (TRANSPOSED.replace("k4x4-s2x2-d1x1-p1x1_1x1", "k7x7-s1x1-d1x1-p2x2_0x0"), False),  # pieces
        (TILED, False),
    ],
)
def test_winograd_transposes_filters_whose_lanes_lie_apart(signature: str, apart: bool) -> None:
    problem, target = _asked(signature)
    definition = winograd.define(problem, target, points=4)
    assert ("filter_pack0" in str(definition.func)) == apart


def test_rows_that_are_far_apart_are_transformed_before_all_tasks() -> None:
    def prepacked(signature: str, target: str) -> list[bool]:
        return [window.prepacked for window in winograd.define(*_asked(signature, target), points=4).windows]

    assert prepacked(TILED, "znver3") == [True]
    assert winograd.define_prepacked(*_asked(TILED), points=4) is None
    assert prepacked(TILED, "znver5") == [False]  # not measured
    assert prepacked(TILED.replace("XIO", "OIX"), "znver3") == [False]
    assert prepacked(TILED.replace("512", "256"), "znver3") == [False]
    wide = TILED.replace("512", "2048")
    assert prepacked(wide, "znver3") == [False]  # no cache keeps it


WINDOWS = "backprop2d-n1-i1024x4x4-o512x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-f32"
LINEAR = "conv1d-n1-i1024x4-o1000x4-k1-s1-d1-p0_0-g1-NXC-OIX-f32"


@pytest.mark.parametrize(
    ("signature", "packed", "plain"),
    [
        (LINEAR, "direct", "inner"),
        (LINEAR.replace("f32", "bf16"), "dot", "inner_dot"),  # both take denormal numbers for zeros
        (LINEAR.replace("f32", "bf16"), "direct", "inner"),
        (LINEAR.replace("OIX", "XIO"), "direct", "direct"),  # read in place
        (LINEAR.replace("x4", "x400"), "direct", "direct"),  # many pixels use the copy
        (TRANSPOSED, "direct", "inner"),
        (TRANSPOSED.replace("NXC-XIO", "NCX-OIX"), "direct", "direct"),  # nothing that is summed lies together
        (WINDOWS, "direct", "col2im"),  # four windows would read the filter, each for its taps
        (WINDOWS.replace("f32", "bf16"), "phased_dot", "col2im_dot"),
        (TILED.replace("7x7", "4x4"), "winograd2", "direct"),
        (TILED.replace("7x7", "4x4").replace("XIO", "OIX"), "winograd2", "winograd2"),
        (TILED.replace("7x7", "28x28"), "winograd2", "winograd2"),
    ],
)
def test_calls_with_plain_filters_are_by_what_packs_nothing_where_that_is_worth_it(
    signature: str, packed: str, plain: str
) -> None:
    assert for_plain_filters(packed, *_asked(signature, "znver4")).name == plain


def test_one_library_has_both() -> None:
    problem, target = _asked(LINEAR, "znver4")
    both, packed = (
        lower_choice(problem, target, Choice("direct"), way) for way in (EntryPoints.BOTH, EntryPoints.PACKED)
    )
    assert set(functions_of(both.module)) == {SYMBOL, PACK_SYMBOL, PACKED_SYMBOL}
    assert both.layout == packed.layout
    for symbol in (PACK_SYMBOL, PACKED_SYMBOL):  # networks, which pack all filters, have the kernel that a bundle has
        assert_structural_equal(functions_of(packed.module)[symbol], functions_of(both.module)[symbol])
    alone = functions_of(lower_choice(problem, target, Choice("inner")).module)
    assert set(alone) == {SYMBOL}
    assert_structural_equal(functions_of(both.module)[SYMBOL], alone[SYMBOL])


def test_a_filter_that_is_packed_within_the_call_is_not_split_off() -> None:
    problem, target = _asked(TILED.replace("7x7", "4x4"), "znver4")
    both = functions_of(lower_choice(problem, target, Choice("winograd2")).module)
    assert set(both) == {SYMBOL, PACK_SYMBOL, PACKED_SYMBOL}
    assert not any(each.value == PACK_SYMBOL for each in find_all(both[SYMBOL].body, StringImm))


@pytest.mark.parametrize(
    ("algorithm", "signature", "reason"),
    [
        ("inner", TILED, "not contiguous in a filter of XIO"),
        ("inner", TILED.replace("XIO", "OIX"), "16 pixels or fewer, not 49"),
        ("inner", LINEAR.replace("i1024", "i1022"), "do not fill whole vectors"),
        ("inner", LINEAR.replace("i1024", "i64"), "64 products are contiguous; it takes 128"),
        ("col2im", LINEAR, "for transposed convolutions of several taps"),
        ("col2im", WINDOWS.replace("OIX", "XIO"), "not contiguous in a filter of XIO"),
        ("col2im", WINDOWS.replace("4x4-o512x8x8", "9x9-o512x18x18"), "64 pixels or fewer, not 81"),
        ("col2im", WINDOWS.replace("i1024", "i16"), "32 channels or more, not 16"),
        ("col2im", WINDOWS.replace("o512", "o511"), "12775 outputs of all taps do not fill whole vectors"),
    ],
)
def test_algorithms_for_plain_filters_say_why_not(algorithm: str, signature: str, reason: str) -> None:
    answer = get(algorithm).covers(*_asked(signature, "znver4"))
    assert answer is not None and reason in answer


@pytest.mark.parametrize(("algorithm", "signature"), [("inner_dot", LINEAR), ("col2im_dot", WINDOWS)])
def test_pairs_for_plain_filters_are_of_bf16(algorithm: str, signature: str) -> None:
    assert get(algorithm).covers(*_asked(signature, "znver4")) == "it multiplies bf16, not f32"


def test_parts_of_rows_a_power_of_two_apart_are_small() -> None:
    """Require that L2 keeps the multiplied and the prefetched part: 4096 channels are 16 KiB, eight of which fill a way of it."""
    (window,) = direct_windows(*_asked("conv1d-n1-i4096x1-o4096x1-k1-s1-d1-p0_0-g1-NXC-XIO-f32", "znver4"))
    assert rows_kept(window, 512, _asked(LINEAR, "znver4")[1]) == 16
    (window,) = direct_windows(*_asked("conv1d-n1-i4096x1-o4112x1-k1-s1-d1-p0_0-g1-NXC-XIO-f32", "znver4"))
    assert rows_kept(window, 512, _asked(LINEAR, "znver4")[1]) == 512


def test_prepacked_filters_are_not_taken_by_parts_with_plain_ones() -> None:
    """A plain one is copied part after part for its one tile; a prepacked one has its own definition, without parts."""
    problem = parse_signature("conv2d-n1-i256x1x1-o128x1x1-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32")
    target = CpuTarget.parse("znver5")
    (plain,), prepacked = direct.define(problem, target).windows, direct.define_prepacked(problem, target)
    assert plain.packs_parts and prepacked is not None
    assert not any(window.packs_parts or window.by_parts for window in prepacked.windows)
