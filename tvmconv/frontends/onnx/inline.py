"""Inline an ONNX model's own functions.

`onnx.inliner` supports no default attributes, no overloads, and functions of other opsets than the model's only as far as ONNX's
version converter does. So before it, each call gets all of its attributes, and each function is copied for every set of attributes
that calls pass: in a copy, nodes lose references to missing attributes, and a call of another function takes that one's default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import onnx
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter

from ...errors import SourceError, last_line
from .graph import OURS, subgraphs
from .weights import infer_shapes

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto

_Key = tuple[str, str, str]
# The first version whose operators differ from earlier ones by more than ONNX's converter knows.
_OLDEST = 7
# Operators whose meaning changed in a version, which ONNX's converter (1.23) ignores.
_PASSED_OVER = {"GroupNormalization": 21, "Hardmax": 13}


def inline_functions(model: ModelProto, source: str) -> ModelProto:
    """Return a model without functions of its own; `model` is changed.

    Raises
    ------
    SourceError
        If a function calls itself, or its opset cannot be converted to the model's.
    """
    if not model.functions:
        return model
    calls = _Calls(model.functions, source)
    calls.bind(model.graph.node)
    del model.functions[:]
    model.functions.extend(calls.made)
    _join_versions(model, source)
    # To convert a function to the model's version, the inliner needs the types of its calls' results.
    inferred = infer_shapes(model).graph.value_info
    del model.graph.value_info[:]
    model.graph.value_info.extend(inferred)
    try:
        result = onnx.inliner.inline_local_functions(model, convert_version=True)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise SourceError(f"{source}: ONNX's inliner fails: {last_line(error)}") from None
    names = {(each.domain, each.name) for each in calls.made}
    if left := next((node for node in result.graph.node if (node.domain, node.op_type) in names), None):
        raise SourceError(f"{source}: ONNX's inliner does not inline the function {left.domain}.{left.op_type}")
    del result.functions[:]
    return result


class _Calls:
    """Copies of a model's functions, by the attributes of their calls."""

    def __init__(self, functions: Iterable[FunctionProto], source: str) -> None:
        self._functions = {_key(each.domain, each.name, each.overload): each for each in functions}
        self._source = source
        self._names: dict[tuple[_Key, frozenset[str]], str] = {}
        self._open: list[_Key] = []
        self.made: list[FunctionProto] = []

    def bind(self, nodes: Iterable[NodeProto], given: Collection[str] | None = None) -> None:
        """Add the functions' default attributes to calls among nodes; `given` are the attributes of the nodes' own function."""
        for node in nodes:
            kept = [each for each in node.attribute if given is None or each.ref_attr_name in ("", *given)]
            if len(kept) < len(node.attribute):
                kept = [type(each).FromString(each.SerializeToString()) for each in kept]
                del node.attribute[:]
                node.attribute.extend(kept)
            for inner in subgraphs(node):
                self.bind(inner.node, given)
            key = _key(node.domain, node.op_type, node.overload)
            if key in self._functions:
                names = {each.name for each in node.attribute}
                node.attribute.extend(e for e in self._functions[key].attribute_proto if e.name not in names)
                node.op_type = self._specialise(key, {each.name for each in node.attribute})
                node.ClearField("overload")

    def _specialise(self, key: _Key, given: Collection[str]) -> str:
        """Return the name of a function's copy for calls with these attributes."""
        if key in self._open:
            raise SourceError(f"{self._source}: the function {'.'.join(filter(None, key))} calls itself")
        function = self._functions[key]
        its = frozenset(given).intersection([*function.attribute, *(each.name for each in function.attribute_proto)])
        if (key, its) not in self._names:
            made = type(function).FromString(function.SerializeToString())
            self._names[key, its] = made.name = f"{function.name}_{len(self._names)}"
            made.ClearField("overload")
            del made.attribute_proto[:]
            del made.attribute[:]
            made.attribute.extend(sorted(its))
            self._open.append(key)
            self.bind(made.node, its)
            self._open.pop()
            self.made.append(made)
        return self._names[key, its]


def _key(domain: str, name: str, overload: str) -> _Key:
    return "" if domain in OURS else domain, name, overload


def _join_versions(model: ModelProto, source: str) -> None:
    """Add the opsets that only a model's functions import; refuse versions that cannot be converted."""
    versions = {_key(each.domain, "", "")[0]: each.version for each in model.opset_import}
    wanted = [
        (made, "" if e.domain in OURS else e.domain, e.version) for made in model.functions for e in made.opset_import
    ]
    used = {made.name: {node.domain for node in made.node} for made in model.functions}
    for domain in {domain for _, domain, _ in wanted}.difference(versions):
        versions[domain] = max(version for _, each, version in wanted if each == domain)
        model.opset_import.append(onnx.helper.make_opsetid(domain, versions[domain]))
    for made, domain, version in wanted:
        if version == versions[domain] or not used[made.name].intersection(OURS if domain == "" else (domain,)):
            continue
        least, most = sorted((version, versions[domain]))
        wrong = [node.op_type for node in made.node if least < _PASSED_OVER.get(node.op_type, 0) <= most]
        if domain or least < _OLDEST or wrong:
            raise SourceError(
                f"{source}: the function {made.domain}.{made.name.rpartition('_')[0]} uses opset {version} of"
                f" {domain or 'ONNX'}, the model {versions[domain]}, and"
                f" {wrong[0] if wrong else 'its operators'} cannot be converted; export the model with one opset"
            )
