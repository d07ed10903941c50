"""An operator of an epilogue in a choice of two values reads nothing where its value is not chosen."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.ir import Call

from tvmconv.algorithms.epilogue import apply_operator, step_of
from tvmconv.epilogue import Step
from tvmconv.lowering.common.activations import expand_operators
from tvmconv.lowering.common.rewrites import IF_THEN_ELSE, find_all


@pytest.mark.parametrize("chosen", [True, False])
def test_what_a_step_takes_is_read_under_its_condition(chosen: bool) -> None:
    data, output = (tirx.decl_buffer((8,), "float32", name) for name in ("data", "output"))
    i = tirx.Var("i", "int32")
    step = apply_operator(Step("tanh"), tirx.BufferLoad(data, [i - 1]))
    other = tirx.const(0, "float32")
    value = tirx.if_then_else(i > 0, *((step, other) if chosen else (other, step)))
    body = expand_operators(tirx.BufferStore(output, value, [i]))
    assert not [call for call in find_all(body, Call) if step_of(call)]
    reads = [store for store in find_all(body, tirx.BufferStore) if "data[" in str(store.value)]
    assert len(reads) == 1
    (choice,) = [call for call in find_all(reads[0].value, Call) if call.op.same_as(IF_THEN_ELSE)]
    assert ("data[" in str(choice.args[1])) == chosen and ("data[" in str(choice.args[2])) != chosen
