"""Free extents of a network's inputs: an attribute of the module, by the names of its symbols."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import tvm

from ...errors import SourceError
from ...family import Extent
from .free import dims_of, symbols_in
from .graph import MAIN

_EXTENTS = "tvmconv.extents"
_NUMBER = re.compile(r"T\.int64\((-?[0-9]+)\)")


def with_extents(mod: tvm.IRModule, extents: Iterable[Extent]) -> tvm.IRModule:
    """Return a module with its symbols' ranges as an attribute; extents have the symbols' names."""
    return mod.with_attr(_EXTENTS, json.dumps({"extents": [asdict(each) for each in extents]}))


def has_extents(mod: tvm.IRModule) -> bool:
    """Return whether a module's inputs have free extents."""
    return mod.get_attr(_EXTENTS) is not None


def extents_of(mod: tvm.IRModule) -> list[Extent]:
    """Return a network's free extents in the order of its inputs; none if all are fixed.

    Raises
    ------
    SourceError
        If an input has another symbol.
    """
    text = mod.get_attr(_EXTENTS)
    known = {each["name"]: Extent(**each) for each in json.loads(str(text))["extents"]} if text is not None else {}
    found: dict[str, Extent] = {}
    for param in mod[MAIN].params:
        for size in dims_of(param.ty) or ():
            for symbol in symbols_in(size):
                name = str(symbol.name)
                if name not in known:
                    raise SourceError(
                        f"{param.name} of the network has no fixed shape: {param.ty}; give the inputs' shapes"
                    )
                found[name] = known[name]
    return list(found.values())


def input_shape(type_: Any) -> list[int | str] | None:
    """Return an input's extents, with the names of free ones; None: they are unknown."""
    dims = dims_of(type_)
    return None if dims is None else [each if isinstance(each, int) else str(symbols_in(each)[0].name) for each in dims]


def output_shape(type_: Any) -> list[int | str] | None:
    """Return an output's extents, with formulas of the symbols for those that depend on free extents; None: they are unknown."""
    dims = dims_of(type_)
    return None if dims is None else [each if isinstance(each, int) else formula(each) for each in dims]


def formula(extent: Any) -> str:
    """Return an extent as text."""
    return _NUMBER.sub(r"\1", str(extent))
