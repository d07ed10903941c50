"""PyTorch models of free extents: the ``dynamic_shapes`` of torch.export, and files that it wrote with them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv import cli  # noqa: E402
from tvmconv.errors import InputError, SourceError, TvmconvWarning  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

H, W, B = Dim("h", min=8, max=200), Dim("w", min=8), Dim("b")
SIZES = ((1, 8, 8), (2, 16, 20), (3, 37, 29), (1, 101, 9))


class Detector(nn.Module):
    """A path down, one up by the shape of a tensor, pixels as rows, and a head behind a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.MaxPool2d(2), nn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        wide = functional.silu(self.first(image))
        low = self.pool(wide)
        up = functional.interpolate(low, size=wide.shape[2:], mode="bilinear")
        batch, channels, height, width = low.shape
        rows = low.view(batch, channels, height * width).transpose(1, 2)
        return {"map": torch.cat([up, wide], 1), "rows": self.last(rows), "scores": self.last(low.mean((2, 3)))}


def image(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def detector() -> Any:
    torch.manual_seed(0)
    return Detector().eval()


def check(found: Any, right: Any) -> None:
    assert found.keys() == right.keys()
    for name, each in right.items():
        assert_near(found[name], each.detach(), summed=27 + 8, layers=3)
        assert found[name].stride() == each.stride()


@pytest.fixture(scope="module")
def compiled(detector: Any) -> Any:
    return tvmconv.torch.compile(
        detector, image(2, 3, 16, 24), dynamic_shapes={"image": {0: B, 2: H, 3: W}}, progress=None
    )


def test_one_library_for_all_sizes(detector: Any, compiled: Any) -> None:
    for batch, *size in SIZES:
        check(compiled(image(batch, 3, *size)), detector(image(batch, 3, *size)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (1, 3, 7, 8),
            r"extent 2 of input 0 is 7; it must be h\[8:200\]; the network takes input 0 \(bx3xhxw float32\)",
        ),
        ((1, 3, 201, 8), "extent 2 of input 0 is 201; it must be"),
        ((1, 4, 8, 8), r"input 0 is 1x4x8x8 torch.float32; the model was compiled for bx3xhxw torch.float32"),
        ((3, 8, 8), "input 0 is 3x8x8"),
    ],
)
def test_other_extents(compiled: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compiled(image(*shape))


def test_optimize_answers_all_sizes(detector: Any) -> None:
    fast = tvmconv.torch.optimize(
        detector, image(1, 3, 16, 16), dynamic_shapes=({0: Dim.STATIC, 2: H, 3: W},), progress=None
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for _, *size in SIZES:
            lying = image(1, 3, *size).to(memory_format=torch.channels_last)
            for each in (image(1, 3, *size), lying):
                found, right = fast(each), detector(image(1, 3, *size))
                for name in right:  # in whatever memory format
                    assert_near(found[name], right[name], summed=27 + 8, layers=3)
    with pytest.warns(TvmconvWarning, match="not compiled for 1x3x201x16 float32; using PyTorch"):
        check(fast(image(1, 3, 201, 16)), detector(image(1, 3, 201, 16)))


def test_graphs_of_dynamo() -> None:
    """Extents are symbols, also among the graph's inputs; an extent of 1 is a number, of fewer pixels than the filter has."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = (
                nn.Conv2d(3, 8, 3, 1, 1),
                nn.BatchNorm2d(8),
            )  # whose epsilon is an input of Dynamo's graph

        def forward(self, x: Any) -> Any:
            data = self.norm(self.conv(x)).relu()
            return data.view(data.shape[0], 8, -1).mean(-1) * x.shape[2], data

    network = Scaled().eval()
    fast = torch.compile(network, backend="tvmconv", dynamic=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", TvmconvWarning)
        warnings.simplefilter("error", FutureWarning)  # PyTorch's of copies, as of a model that writes to itself
        for shape in ((1, 3, 8, 9), (1, 3, 31, 5), (2, 3, 8, 9), (1, 3, 1, 7), (5, 3, 4, 4)):
            for found, right in zip(fast(image(*shape)), network(image(*shape)), strict=True):
                assert_near(found, right, summed=27, layers=2)


@pytest.mark.parametrize("dim", [Dim.DYNAMIC, Dim.AUTO, Dim("batch"), Dim("batch", min=1, max=8)], ids=str)
def test_batches_by_an_example_of_one_image(dim: Any) -> None:
    """torch.export takes the extent 1 for a fixed one."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    ).eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", TvmconvWarning)
        fast = tvmconv.torch.optimize(network, image(1, 3, 8, 9), dynamic_shapes=({0: dim},), progress=None)
        for batch in (1, 2, 5):
            data = image(batch, 3, 8, 9)
            assert_near(fast(data), network(data), summed=27, layers=3)


def test_one_dim_and_multiples() -> None:
    """Two inputs of one width; a height that is halved twice and doubled twice."""

    class Sum(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            low = functional.avg_pool2d(functional.avg_pool2d(x, 2), 2)
            return functional.interpolate(functional.interpolate(low, scale_factor=2), scale_factor=2) + x * y

    quarter = Dim("quarter", min=2, max=32)
    shapes = {"x": {2: 4 * quarter, 3: 4 * quarter}, "y": {3: 4 * quarter}}
    fast = tvmconv.torch.compile(
        Sum().eval(), (image(1, 3, 16, 16), image(1, 3, 1, 16)), dynamic_shapes=shapes, progress=None
    )
    for size in (8, 12, 64, 128):
        x, y = image(1, 3, size, size), image(1, 3, 1, size)
        assert_near(fast(x, y), Sum().eval()(x, y), summed=16, layers=2)
    for shapes, message in (
        (((1, 3, 10, 10), (1, 3, 1, 10)), "extent 2 of input 0 is 10, no multiple of 4; pad it by 2 to 12"),
        (((1, 3, 8, 12), (1, 3, 1, 12)), "extent 3 of input 0 is 12 and extent 2 of input 0 8, both quarter"),
        (((1, 3, 132, 132), (1, 3, 1, 132)), "it must be"),
    ):
        with pytest.raises(InputError, match=message):
            fast(*(image(*each) for each in shapes))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_of_few_digits(dtype: Any) -> None:
    """A convolution, rows, a normalization and attention between them."""

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.last = nn.Conv1d(4, 8, 3, 2, 1), nn.LayerNorm(8), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            rows = self.norm(functional.gelu(self.conv(x)).transpose(1, 2))
            return self.last(torch.softmax(rows @ rows.transpose(1, 2), -1) @ rows)

    torch.manual_seed(0)
    network, shapes = Rows().eval(), ({0: B, 2: Dim("length", min=8)},)
    fast = tvmconv.torch.compile(network, image(2, 4, 16), dtype=dtype, dynamic_shapes=shapes, progress=None)
    for batch, length in ((1, 8), (2, 61)):
        x = image(batch, 4, length).to(dtype)
        found, right = fast(x), network(x.float())
        assert found.dtype == dtype
        assert (found.float() - right).norm() < (
            0.02 if dtype == torch.bfloat16 else 0.003
        ) * right.norm()  # tolerance: five roundings


def test_a_saved_program(detector: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = torch.export.export(detector, (image(2, 3, 16, 24),), dynamic_shapes=({0: B, 2: H, 3: W},), strict=False)
    torch.export.save(program, tmp_path / "model.pt2")
    assert cli.main(["compile", str(tmp_path / "model.pt2"), "-o", str(tmp_path / "model.so")]) == 0
    network = load_network(tmp_path / "model.so")
    assert network.inputs[0].shape == ("image[0]", 3, "image[2]", "image[3]")
    for batch, *size in SIZES:
        given = image(batch, 3, *size)
        for found, right in zip(network(image=given).values(), detector(given).values(), strict=True):
            assert_near(torch.from_numpy(found), right.detach(), summed=27 + 8, layers=3)


def test_a_named_size_has_its_own_kernels() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    shapes = {"input": {2: H, 3: W}}
    named = image(1, 3, 20, 24)
    compiled = tvmconv.torch.compile(
        model, image(1, 3, 16, 16), dynamic_shapes=shapes, named_sizes=[named], progress=None
    )
    assert [each["inputs"][0]["shape"] for each in compiled.network.description["sizes"]] == [[1, 3, 20, 24]]
    with torch.no_grad():
        for each in (named, image(1, 3, 24, 20)):
            assert_near(compiled(each), model(each), summed=27, layers=2)
    with pytest.raises(InputError, match="named_sizes need dynamic_shapes"):
        tvmconv.torch.compile(model, named, named_sizes=[named])
    with pytest.raises(InputError, match="another structure, or order in memory"):
        last = image(1, 3, 8, 9).to(memory_format=torch.channels_last)
        tvmconv.torch.compile(model, named, dynamic_shapes=shapes, named_sizes=[last])


def test_what_does_not_fit(detector: Any) -> None:
    class Halves(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.shape[2] > 32 else x

    with pytest.raises(SourceError, match=r"does not do the same at all extents .* PyTorch suggests h = Dim"):
        tvmconv.torch.compile(Halves().eval(), image(1, 3, 16, 16), dynamic_shapes=({2: H},), progress=None)
    with pytest.warns(TvmconvWarning, match=r"only for the shapes of the example, .* PyTorch suggests h = Dim"):
        halved = nn.Sequential(nn.Conv2d(3, 8, 3), Halves()).eval()
        tvmconv.torch.optimize(halved, image(1, 3, 16, 16), dynamic_shapes=({2: H},), progress=None)
    for wrong in ({"image": {4: H}}, {"x": {2: H}}, ({2: H}, None)):
        with pytest.raises(InputError, match=r"dynamic_shapes.* give what torch.export.export takes"):
            tvmconv.torch.compile(detector, image(1, 3, 16, 16), dynamic_shapes=wrong, progress=None)


def test_products_of_two_tensors() -> None:
    """Rows, terms and columns of any number, batches of either or both, narrow and wide: sums of integers are exact."""
    t, s = Dim("t", min=2, max=600), Dim("s", min=2, max=600)
    kinds: list[tuple[Any, Any]] = [
        ((t, 7), (7, s)), ((2, 3, t, 5), (2, 3, 5, t)), ((4, 9, t), (4, t, 33)), ((t, s), (s, t)), ((3, 1, 40), (40, t)),
        ((1, 2, t, 6), (5, 1, 6, s)), ((t, 4, 3), (t, 3, 4)), ((6, t), (2, t, 17)),
    ]  # fmt: skip

    class Products(nn.Module):
        def forward(self, *given: Any) -> Any:
            return tuple(left @ right for left, right in zip(given[::2], given[1::2], strict=True))

    def given(**sizes: int) -> tuple[Any, ...]:
        shapes = [
            [sizes.get(getattr(axis, "__name__", ""), axis) for axis in shape] for pair in kinds for shape in pair
        ]
        return tuple(torch.randint(-3, 4, shape).float() for shape in shapes)

    dynamic = tuple(
        {axis: size for axis, size in enumerate(shape) if size in (t, s)} for pair in kinds for shape in pair
    )
    for dtype in (torch.float32, torch.float16):
        example = given(t=20, s=30)
        fast = tvmconv.torch.compile(
            Products().eval(), tuple(each.to(dtype) for each in example), dynamic_shapes=(dynamic,), progress=None
        )
        for rows, columns in ((2, 3), (16, 15), (97, 33), (300, 5), (31, 599)):
            arrays = given(t=rows, s=columns)
            made = fast(*(each.to(dtype) for each in arrays))
            for found, right in zip(made, Products()(*arrays), strict=True):
                assert torch.equal(found, right.to(dtype))


def test_speech_of_any_length() -> None:
    """As HuBERT and wav2vec: heads in the batch, positions by a convolution that gives a row too much, batch and length free."""

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.norm = nn.Conv1d(1, 16, 10, 5), nn.Conv1d(16, 24, 3, 2), nn.LayerNorm(16)
            self.places, self.heads, self.last = (
                nn.Conv1d(24, 24, 8, padding=4, groups=2),
                nn.Linear(24, 72),
                nn.Linear(24, 24),
            )

        def forward(self, sound: Any) -> Any:
            wide = self.norm(self.first(sound[:, None]).transpose(1, 2)).transpose(1, 2)
            rows = functional.gelu(self.second(functional.gelu(wide))).transpose(1, 2)
            rows = rows + functional.gelu(self.places(rows.transpose(1, 2))[:, :, :-1]).transpose(1, 2)
            batch, length, width = rows.shape
            parts = (each.view(batch, -1, 3, 8).transpose(1, 2).contiguous() for each in self.heads(rows).chunk(3, -1))
            q, k, v = (each.view(batch * 3, -1, 8) for each in parts)
            read = torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)
            return rows + self.last(read.view(batch, 3, length, 8).transpose(1, 2).reshape(batch, length, width))

    torch.manual_seed(0)
    model = Speech().eval()
    fast = tvmconv.torch.compile(model, image(2, 800), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},), progress=None)
    for shape in ((2, 101), (3, 800), (5, 1234)):
        assert_near(fast(image(*shape)), model(image(*shape)).detach(), summed=72, layers=6)


def answers_of(resizes: nn.Module, *sizes: tuple[int, int, int]) -> Iterator[tuple[Any, Any]]:
    """Yield what one network, and PyTorch, answer to planes and lines of some heights, widths and lengths."""
    fast = tvmconv.torch.compile(
        resizes,
        (image(1, 3, 16, 20), image(1, 4, 30)),
        dynamic_shapes=({2: H, 3: W}, {2: Dim("t", min=8)}),
        progress=None,
    )
    for height, width, length in sizes:
        given = image(1, 3, height, width), image(1, 4, length)
        yield from zip(fast(*given), resizes(*given), strict=True)


def test_resizes_of_free_extents() -> None:
    """By factors that are no quotients of sizes, in one dimension and two."""

    class Resizes(nn.Module):
        def forward(self, plane: Any, line: Any) -> Any:
            many = [
                functional.interpolate(plane, scale_factor=each, mode="bilinear") for each in (2.5, (0.75, 1.25), 2)
            ]
            many += [functional.interpolate(plane, scale_factor=1.5, mode="bilinear", align_corners=True)]
            many += [functional.interpolate(plane, scale_factor=each, mode="bicubic") for each in (1.75, 0.625)]
            many += [functional.interpolate(plane, size=(plane.shape[2] * 2, 31), mode="bicubic", align_corners=True)]
            many += [functional.interpolate(line, scale_factor=each, mode="linear") for each in (1.5, 0.375)]
            return (*many, functional.interpolate(line, scale_factor=2))

    for found, right in answers_of(Resizes().eval(), (16, 20, 30), (8, 33, 9), (61, 10, 127)):
        assert_near(found, right, summed=4000, layers=2)  # coordinates of hundreds are in f32, too


def test_nearest_elements_of_free_extents() -> None:
    """To the size of another tensor, as pyramids have it, and by factors: PyTorch's elements, each one."""

    class Nearest(nn.Module):
        def forward(self, plane: Any, line: Any) -> Any:
            low = plane[:, :, ::3, 1::2]
            many = [
                functional.interpolate(low, size=plane.shape[2:], mode=each) for each in ("nearest", "nearest-exact")
            ]
            for factor in (2, 1.75, 0.375, (1.25, 3)):
                many += [
                    functional.interpolate(plane, scale_factor=factor, mode=each)
                    for each in ("nearest", "nearest-exact")
                ]
            return (
                *many,
                functional.interpolate(line, scale_factor=1.125),
                functional.interpolate(line, size=line.shape[2] + 5),
            )

    for found, right in answers_of(Nearest().eval(), (16, 20, 30), (8, 33, 9), (61, 101, 127)):
        assert torch.equal(found, right)


def test_slices_that_are_replaced() -> None:
    """`y[:, :, ::2] = z` and its like, of axes that are free and of others, with ends that are counted from the end."""

    class Assigning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, image: Any) -> Any:
            wide = self.first(image)
            other = torch.zeros_like(wide)
            other[:, :, ::2] = wide[:, :, ::2]
            other[:, 1:3] = 2
            other[..., -3:] = wide[..., :3]
            other[:, :, 1, 2:5] += 1
            return {"other": other, "rows": wide.slice_scatter(wide[:, :, 2:7:3] * 2, 2, 2, 7, 3)}

    torch.manual_seed(0)
    model = Assigning().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = tvmconv.torch.optimize(model, image(1, 3, 8, 8), dynamic_shapes=({2: H, 3: W},))
        for height, width in ((8, 8), (16, 9)):
            data = image(1, 3, height, width)
            check(fast(data), model(data))


def test_a_model_of_fixed_sizes_says_why() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3)

        def forward(self, image: Any) -> Any:
            answer = self.first(image)
            return answer, answer[:, 1:]

    with pytest.warns(TvmconvWarning, match="not for dynamic_shapes: .* answers that share memory"):
        tvmconv.torch.optimize(Twice().eval(), image(1, 3, 8, 8), dynamic_shapes=({2: H, 3: W},))
