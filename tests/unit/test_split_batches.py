"""Which calls add up to a batch, against every sum there is; and what a GPU's kernels cannot read."""

from __future__ import annotations

from itertools import combinations

import pytest
from toys import small_problem

from tvmconv.runtime.cuda.gpus import Gpu
from tvmconv.runtime.split import calls_for, find_split
from tvmconv.signature import format_signature

GPU = Gpu(0, "some", 90, 1)


def fewest(batch: int, sizes: tuple[int, ...]) -> int | None:
    """Return the least number of calls, by trying all."""
    counts: list[int | None] = [0]
    for images in range(1, batch + 1):
        before = [counts[images - size] for size in sizes if size <= images]
        counts.append(min((count + 1 for count in before if count is not None), default=None))
    return counts[batch]


def test_calls_add_up() -> None:
    for sizes in (*combinations(range(1, 9), 3), *combinations(range(2, 12), 2), (7,), (1,)):
        for batch in range(60):
            calls, least = calls_for(batch, sizes), fewest(batch, sizes)
            if calls is None:
                assert least is None, (batch, sizes)
                continue
            assert sum(size * times for size, times in calls.items()) == batch
            assert list(calls) == sorted(calls, reverse=True) and all(times > 0 for times in calls.values())
            rest = batch
            for size in sorted(sizes, reverse=True):
                rest %= size
            assert least is not None and (rest == 0 or sum(calls.values()) == least), (batch, sizes)


@pytest.mark.parametrize(
    ("dtype", "batch", "there", "split"),
    [
        # An image of the output has 9 * 7 * 21 = 1323 elements, one of the data 1197.
        ("f32", 8, (4, 1), "4 + 4"),
        ("f32", 5, (4, 1), "4 + 1"),
        ("f32", 6, (4, 1), None),
        ("bf16", 9, (8, 1), "8 + 1"),
        ("bf16", 5, (4, 1), None),
        ("bf16", 0, (4, 1), "no call"),
    ],
)
def test_a_gpu_reads_at_multiples_of_16_bytes(
    dtype: str, batch: int, there: tuple[int, ...], split: str | None
) -> None:
    signatures = [format_signature(small_problem(dtype, batch=each)) for each in there]
    problem = small_problem(dtype, batch=batch)
    found = find_split(problem, signatures, GPU)
    on_cpu = find_split(problem, signatures)
    assert found is not None and on_cpu is not None and on_cpu.obstacle is None
    if split is None:
        assert found.obstacle is not None and "would begin between multiples of 16 bytes" in found.obstacle
    else:
        assert found.obstacle is None and str(found) == str(on_cpu) == split
