"""Arguments of wrong types: public functions refuse each by its value and the allowed types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toys import small_problem, write_bundle

import tvmconv
from tvmconv.errors import InputError, InvalidProblemError
from tvmconv.frontends import read_source


@pytest.mark.parametrize("given", [None, 5, b"x", [], object()])
@pytest.mark.parametrize("take", [tvmconv.load, read_source])
def test_what_is_no_path(take: Callable[[Any], object], given: object) -> None:
    with pytest.raises(InputError, match=rf" is .*, a {type(given).__name__}; it must be a path, a str or os.PathLike"):
        take(given)


@pytest.mark.parametrize("given", [None, 5, ""])
def test_what_is_no_problem(given: Any) -> None:
    with pytest.raises(InvalidProblemError, match=r"problem is .*; it must be a tvmconv.Problem"):
        tvmconv.format_signature(given)


def test_a_registry(tmp_path: Path) -> None:
    for bundles in (None, "b.bundle", [tmp_path]):
        with pytest.raises(InputError, match=r"bundles must be .*to load a bundle's folder: tvmconv.load\(path\)"):
            tvmconv.Registry(bundles)  # type: ignore[arg-type]
    write_bundle(tmp_path, [])
    registry = tvmconv.load(tmp_path)
    assert None not in registry and small_problem() not in registry
    with pytest.raises(InvalidProblemError, match="problem is None"):
        registry.explain(None)  # type: ignore[arg-type]
    for name in (None, []):
        with pytest.raises(InputError, match=r"name is .*; it must be a string, the name of a node"):
            registry.node(name)  # type: ignore[arg-type]
