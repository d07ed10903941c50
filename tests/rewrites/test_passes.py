"""The list of passes (tvmconv/lowering/cpu/passes.py): the annotations that request each, and their order."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx

from tvmconv.algorithms import annotations
from tvmconv.algorithms.pairs import DOT_SUMS, ROUND
from tvmconv.errors import RewriteError
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.lowering.cpu.passes import LOWERING, PASSES, PassKernel, requests
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

POINTWISE = "conv2d-n1-i64x28x28-o64x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"
TINY = "conv2d-n1-i16x4x4-o16x4x4-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"


def test_every_annotation_asks_for_one_pass() -> None:
    constants = {name: value for name, value in vars(annotations).items() if name.isupper() and name != "PREFIX"}
    known = {each for each in constants.values() if isinstance(each, str) and each.startswith(annotations.PREFIX)}
    known -= set(annotations.IDENTITY)
    asked = [key for each in PASSES for key in each.asked]
    assert len(asked) == len(set(asked))
    assert set(asked) - {*DOT_SUMS, ROUND, annotations.IN_PIECE, "calls of an epilogue's steps"} == known


def test_what_a_pass_needs_stands_before_it() -> None:
    names = [each.name for each in PASSES]
    assert len(names) == len(set(names))
    for number, each in enumerate(PASSES):
        assert set(each.after) <= set(names[:number]), f"{each.name} runs before what it needs"
        assert all(each.after.values()), f"{each.name} does not say why"


def test_only_what_is_asked_for_is_done() -> None:
    """Without its request, a tiny kernel keeps its threads."""
    definition, scheduled = schedule(parse_signature(TINY), Target.parse("x86-64-v3"), Choice("direct"))
    main = scheduled.mod["main"]
    asks = requests(main)
    assert {annotations.ONE_THREAD, annotations.QUOTIENTS, annotations.HOIST} <= asks
    silent = tvm.IRModule({"main": main.without_attr(annotations.ONE_THREAD)})
    assert "T.parallel" in lower(silent, definition).module.script()
    assert "T.parallel" not in lower(scheduled.mod, definition).module.script()
    untouched = PassKernel(scheduled.mod, definition, EntryPoints.BOTH, frozenset())
    for each in LOWERING:
        if each.asked:
            assert each(untouched) is untouched


def test_a_request_that_no_pass_answers_is_refused() -> None:
    definition, scheduled = schedule(parse_signature(POINTWISE), Target.parse("x86-64-v3"), Choice("direct"))
    main = scheduled.mod["main"].with_attr("tvmconv.faster", True)
    with pytest.raises(RewriteError, match=r"the function asks for tvmconv\.faster, which is not a rewrite"):
        lower(tvm.IRModule({"main": main}), definition)
    (block, *_) = scheduled.get_child_blocks(scheduled.get_sblock("root"))
    scheduled.annotate(scheduled.get_loops(block)[0], "tvmconv.faster", 1)
    with pytest.raises(RewriteError, match=r"the rewrite faster of the loop over .* nothing answered it"):
        lower(scheduled.mod, definition)


def test_plain_asks_for_nothing() -> None:
    """It is for when no other compiles: a rewrite that is refused cannot stop it."""
    problem = parse_signature(POINTWISE)
    _, scheduled = schedule(problem, Target.parse("x86-64-v3"), Choice("plain"))
    assert isinstance(scheduled.mod["main"], tirx.PrimFunc) and not requests(scheduled.mod["main"])
