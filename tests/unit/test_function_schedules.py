"""Schedules of functions between kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tvmconv.network.options import check_target
from tvmconv.network.schedule.rules import schedule_others


@pytest.mark.parametrize("shape", [(16, 3), (4, 4, 5)])
def test_short_sums_of_a_vector_beside_rows_that_could_be_one_loop(shape: tuple[int, ...]) -> None:
    data, weights, along = (
        te.placeholder(shape, name="data"),
        te.placeholder((9,), name="weights"),
        te.reduce_axis((0, 9)),
    )

    def element(*at: Any) -> Any:
        return te.sum(data(*at) * weights[along], axis=along)

    function = te.create_prim_func([data, weights, te.compute(shape, element)])
    target = check_target("host").tvm()
    with target:
        module = schedule_others(check_target("host"))(tvm.IRModule({"main": function}))
    given, factors = (np.arange(np.prod(each), dtype="f").reshape(each) for each in (shape, (9,)))
    answer = tvm.runtime.tensor(np.zeros(shape, "f"))
    tvm.compile(module, target)["main"](*map(tvm.runtime.tensor, (given, factors)), answer)
    np.testing.assert_array_equal(answer.numpy(), given * factors.sum())
