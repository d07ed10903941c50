"""Shapes that a network of free extents is tried on."""

from __future__ import annotations

from dataclasses import asdict

from tvmconv.family import Extent
from tvmconv.runtime.networks.extents import FreeExtents
from tvmconv.runtime.networks.tensors import Tensor


def free(extents: list[Extent], *shapes: tuple[object, ...]) -> FreeExtents:
    inputs = [Tensor(f"x{number}", shape, "float32") for number, shape in enumerate(shapes)]
    return FreeExtents({"extents": [asdict(each) for each in extents]}, inputs)


def shapes(extents: FreeExtents, **given: object) -> list[tuple[int, ...]]:
    return [each.shape for each in extents.near(**given)]  # type: ignore[arg-type]


def test_batches_are_few_and_other_extents_near_64() -> None:
    extents = free([Extent(1, 512, 1, "n"), Extent(32, 4096, 32, "h")], ("n", 3, "h", "h"), ("n",))
    assert shapes(extents) == [(64, 3, 64, 64), (64,)]  # `n` is the length of an input of one axis, too
    extents = free([Extent(1, 512, 1, "n"), Extent(32, 4096, 32, "h")], ("n", 3, "h", "h"), ("n", 4))
    assert shapes(extents) == [(1, 3, 64, 64), (1, 4)]
    assert shapes(extents, batch=2, size=96) == [(2, 3, 96, 96), (2, 4)]
    assert shapes(free([Extent(4, 8, 4, "n")], ("n", 5)), batch=2) == [(4, 5)]


def test_given_shapes_decide_the_others() -> None:
    extents = free([Extent(1, 512, 1, "n"), Extent(1, 512, 1, "t")], ("n", "t", 3), ("t", 3), ("n", 7))
    assert shapes(extents, given={"x0": (5, 33, 3)}) == [(5, 33, 3), (33, 3), (5, 7)]
    assert shapes(extents, given={"x1": (9, 4)}) == [(1, 9, 3), (9, 3), (1, 7)]
