"""A model that an earlier process optimized: its networks come from the user's cache, unless anything that decides them is another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch_models import settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvWarning  # noqa: E402
from tvmconv.support import cache as cache_of_user  # noqa: E402
from tvmconv.support.cache import VARIABLE, open_cache  # noqa: E402
from tvmconv.torch import computed, store  # noqa: E402

DATA = torch.rand(1, 3, 8, 8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that has a model's networks, beside the bundle that they were compiled into."""
    folder = tmp_path_factory.mktemp("again")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "cache"))
        tvmconv.torch.optimize(made(), DATA, folder / "bundle", progress=None)
    return folder


@pytest.fixture
def exports(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Use that cache; return the list that each model is added to which torch.export reads."""
    monkeypatch.setenv(VARIABLE, str(cache / "cache"))
    read: list[Any] = []
    export = computed.export
    monkeypatch.setattr(computed, "export", lambda *given: (read.append(given), export(*given))[1])
    return read


def made() -> nn.Module:
    torch.manual_seed(0)
    return settled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_the_same_files_are_there_again(cache: Path, exports: list[Any], tmp_path: Path) -> None:
    model = made()
    fast = tvmconv.torch.optimize(model, DATA, tmp_path / "bundle", progress=None)
    assert not exports and content(tmp_path / "bundle") == content(cache / "bundle")
    with torch.no_grad():
        assert torch.equal(fast(DATA), tvmconv.torch.optimize(model, DATA, cache / "bundle", progress=None)(DATA))


def _change_a_weight(model: Any, patch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        model[0].weight[0, 0, 0, 0] += 1


@pytest.mark.parametrize(
    "change",
    [
        _change_a_weight,
        lambda _, patch: patch.setattr(store.origin, "sources", lambda: "changed"),
        lambda _, patch: patch.setattr(store.origin, "fields", lambda: {"model name": "another CPU"}),
        lambda _, patch: patch.setattr(store.origin, "compiler", lambda: "another compiler"),
        lambda _, patch: patch.setattr(store.origin, "_digest_measurements", lambda _: "other records"),
        lambda _, patch: patch.setattr(torch, "get_num_threads", lambda: 3),
    ],
)
def test_what_decides_networks_is_in_their_key(
    change: Callable[[Any, pytest.MonkeyPatch], None], exports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made()
    change(model, monkeypatch)
    monkeypatch.setattr(cache_of_user, "MOST_BYTES", 0)  # which keeps none
    tvmconv.torch.optimize(model, DATA, progress=None)
    assert exports


def test_a_damaged_network_is_compiled_again(exports: list[Any], cache: Path) -> None:
    known = open_cache()
    assert known is not None
    largest = max(known.files(), key=lambda each: each.bytes)
    path = known.folder / largest.key[:2] / largest.key[2:]
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.warns(TvmconvWarning, match="is damaged"):
        tvmconv.torch.optimize(made(), DATA, progress=None)
    assert exports and path.read_bytes() == whole
