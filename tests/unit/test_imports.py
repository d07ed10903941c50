"""Imports within tvmconv: no circles, not even for types, and few levels of packages."""

from __future__ import annotations

from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest
from grimp import build_graph

# Packages that rest on each other, the modules that lie beside them counted as packages. The root imports all, for types.
MOST_LEVELS = 13


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return the imports of each module, also those in functions and for types alone."""
    graph = build_graph("tvmconv", exclude_type_checking_imports=False, cache_dir=None)
    return {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle of imports; none if there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def levels(imports: dict[str, set[str]]) -> dict[str, int]:
    """Return how many levels of packages each rests on, itself one."""
    used: dict[str, set[str]] = {package_of(each): set() for each in imports}
    for module, others in imports.items():
        used[package_of(module)] |= {package_of(each) for each in others}

    @cache
    def level(package: str) -> int:
        return 1 + max((level(each) for each in used[package] - {package, "tvmconv"}), default=0)

    return {package: level(package) for package in used}


def test_no_circles(imports: dict[str, set[str]]) -> None:
    assert circle(imports) == []


def test_few_levels(imports: dict[str, set[str]]) -> None:
    found = {
        package: level for package, level in levels(imports).items() if package not in ("tvmconv", "tvmconv.__main__")
    }
    assert max(found.values()) <= MOST_LEVELS, sorted(found.items(), key=lambda each: each[1])


def test_circles_and_levels_are_found() -> None:
    assert set(circle({"a.x": {"a.y"}, "a.y": {"a.z"}, "a.z": {"a.x"}})) == {"a.x", "a.y", "a.z"}
    assert levels({"a.b.x": {"a.c", "a.b.y"}, "a.b.y": set(), "a.c": {"a.d"}, "a.d": set()}) == {"a.b": 3, "a.c": 2, "a.d": 1}  # fmt: skip
