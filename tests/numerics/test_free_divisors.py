"""Extents that are quotients: a call at which a divisor is 0 is refused, and does not end the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relax_modules import relax_module
from tvm import relax, tirx

from tvmconv.errors import InputError
from tvmconv.family import Extent
from tvmconv.network.compile import build
from tvmconv.network.ir.extents import with_extents
from tvmconv.runtime.networks.network import load_network


def test_a_divisor_of_0_is_refused(tmp_path: Path) -> None:
    rows, columns = (tirx.Var(name, "int64") for name in ("n", "w"))

    def cut(builder: relax.BlockBuilder, data: Any) -> Any:
        left = builder.emit(relax.op.strided_slice(data, [0], [4], [rows], assume_inbound=True))
        count = (rows - 4) * 6
        flat = builder.emit(relax.op.reshape(left, (tirx.floordiv(count * columns, count), count)))
        return builder.emit(relax.op.negative(flat))

    module = relax_module(cut, [(rows, 6, columns)])
    build(with_extents(module, [Extent(name="n"), Extent(name="w")]), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    data = np.arange(6 * 6 * 3, dtype=np.float32).reshape(6, 6, 3)
    (answer,) = network(x0=data).values()
    np.testing.assert_array_equal(answer, -data[4:].reshape(3, 12))
    with pytest.raises(InputError, match="an array of the network would have no elements"):
        network(x0=data[:4])
