"""tvmconv: an ahead-of-time compiler for convolutions.

Loading and calling bundles needs NumPy and tvm-ffi alone; nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import errors as errors
    from . import onnxruntime as onnxruntime
    from . import ops as ops
    from . import reference as reference
    from . import torch as torch
    from .building.builder import build as build
    from .building.options import BuildOptions as BuildOptions
    from .family import ProblemFamily as ProblemFamily
    from .family_text import format_family as format_family
    from .family_text import parse_family as parse_family
    from .frontends import read_model as read_model
    from .problem import Problem as Problem
    from .runtime.explained import explain as explain
    from .runtime.kernel import Kernel as Kernel
    from .runtime.networks.network import Network as Network
    from .runtime.networks.network import load_network as load_network
    from .runtime.packed import PackedFilter as PackedFilter
    from .runtime.registry import Registry as Registry
    from .runtime.registry import load as load
    from .runtime.verify import verify as verify
    from .signature import format_signature as format_signature
    from .signature import parse_signature as parse_signature
    from .targets.target import Target as Target
    from .tuning.records import Records as Records
    from .tuning.tuner import tune as tune

_MODULES = ("errors", "ops", "reference")
_HOME = {
    "BuildOptions": "building.options",
    "Kernel": "runtime.kernel",
    "Network": "runtime.networks.network",
    "PackedFilter": "runtime.packed",
    "Problem": "problem",
    "ProblemFamily": "family",
    "Records": "tuning.records",
    "Registry": "runtime.registry",
    "Target": "targets.target",
    "build": "building.builder",
    "explain": "runtime.explained",
    "format_family": "family_text",
    "format_signature": "signature",
    "load": "runtime.registry",
    "load_network": "runtime.networks.network",
    "parse_family": "family_text",
    "parse_signature": "signature",
    "read_model": "frontends",
    "tune": "tuning.tuner",
    "verify": "runtime.verify",
}
__all__ = [*_HOME, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    # The last two need the extras of their names, so `*` does not import them.
    if name in (*_MODULES, "onnxruntime", "torch"):
        return import_module(f".{name}", __name__)
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
