"""`record`: the code that a call runs, and the attributes and variables of Python modules that it may read by name."""

from __future__ import annotations

import dis
import gc
import sys
import sysconfig
from collections.abc import Callable, Iterator
from cProfile import Profile
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any

import torch

_STDLIB = sysconfig.get_path("stdlib")
# Attributes that PyTorch's own code reads of each module.
_ALWAYS = frozenset({"training", "forward", "_parameters", "_buffers", "_modules"})
# Attributes of classes that Python reads without their names in code.
_SPECIAL = frozenset({
    "__call__", "__get__", "__set__", "__getattr__", "__getattribute__", "__setattr__", "__getitem__", "__setitem__", "__contains__",
    "__len__", "__bool__", "__iter__", "__next__", "__enter__", "__exit__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
    "__hash__", "__index__", "__int__", "__float__", "__neg__", "__matmul__", "__rmatmul__", "__add__", "__radd__", "__iadd__", "__sub__",
    "__rsub__", "__mul__", "__rmul__", "__imul__", "__truediv__", "__rtruediv__", "__pow__", "__format__", "__str__", "__repr__",
})  # fmt: skip
# Functions and attributes by which code reads computed names.
_COMPUTED = {"getattr", "hasattr", "vars", "__dict__", "attrgetter", "asdict", "astuple", "__getattribute__", "dir"}


@dataclass(frozen=True)
class Reads:
    """Names and attributes that code may read.

    Attributes
    ----------
    ran
        The code that ran, by :func:`name_of`.
    names, is_any
        Names of attributes; whether code computes names, so that it may read any.
    variables
        Variables of modules, with chains of their attributes, by the modules' names.
    """

    ran: frozenset[str] = frozenset()
    names: frozenset[str] = _ALWAYS | _SPECIAL
    is_any: bool = False
    variables: frozenset[tuple[str, tuple[str, ...]]] = frozenset()

    def __or__(self, other: Reads) -> Reads:
        """Return the union of two reads."""
        variables = self.variables | other.variables
        return Reads(self.ran | other.ran, self.names | other.names, self.is_any or other.is_any, variables)

    def __deepcopy__(self, memo: dict[int, Any]) -> Reads:
        return self


def record(call: Callable[[], Any]) -> Reads:
    """Return the reads of the code that a call runs."""
    ran: dict[CodeType, dict[str, Any]] = {}

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.setdefault(frame.f_code, frame.f_globals)

    before, was_collecting = sys.getprofile(), gc.isenabled()
    _let_dynamo_skip(see.__code__)
    gc.disable()
    # They are unrelated, and would be recorded where PyTorch collects garbage itself.
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
        if isinstance(before, Profile):  # it is no function, so sys.setprofile cannot restore it
            before.enable()
        elif before is not None:
            sys.setprofile(before)
        gc.callbacks[:0] = callbacks
        if was_collecting:
            gc.enable()
    reads = Reads()
    for code, variables in ran.items():
        module = str(variables.get("__name__", ""))
        if is_library(module, code.co_filename):
            continue
        names, chains, computed = _names(code)
        known = vars(sys.modules[module]) is variables if module in sys.modules else False
        reads |= Reads(
            frozenset({name_of(code)}),
            names,
            computed and not module.startswith("torch."),
            frozenset((module, chain) for chain in chains) if known else frozenset(),
        )
    return reads


def _let_dynamo_skip(code: CodeType) -> None:
    """Keep Dynamo, which torch.cond calls, from compiling the profiler's code; Dynamo itself is not imported."""
    dynamo = torch._C._dynamo.eval_frame
    action = dynamo._FrameAction
    dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action.SKIP, action.DEFAULT))


def is_library(module: str, file: str = "") -> bool:
    """Return whether code is Python's own, or PyTorch's other than torch.nn: it does not decide a model's result."""
    name, _, rest = f"{module}.".partition(".")
    if name == "torch":
        return not rest.startswith("nn.")
    return name == "tvmconv" or (file.startswith(_STDLIB) and "site-packages" not in file) or file.startswith("<frozen")


def name_of(code: CodeType) -> str:
    """Return a name of code that is the same in other processes."""
    return f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"


@cache
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[tuple[str, ...]], bool]:
    """Return the names in code, the variables of Python modules with the attributes it reads, and whether it computes names."""
    texts = {each for each in code.co_consts if isinstance(each, str) and each.isidentifier()}
    names, chains = {*code.co_names, *texts}, {*_chains(code)}
    if "globals" in names:
        chains |= {(each,) for each in texts}
    computed = bool(names & _COMPUTED)
    for each in code.co_consts:
        if isinstance(each, CodeType):  # of a function within it
            more, others, also = _names(each)
            names, chains, computed = names | more, chains | others, computed or also
    return frozenset(names), frozenset(chains), computed


def _chains(code: CodeType) -> Iterator[tuple[str, ...]]:
    chain: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            chain = (*chain, str(step.argval))
            continue
        if step.opname == "IMPORT_FROM":
            yield (*chain, str(step.argval))
            continue
        if chain and step.opname not in ("STORE_FAST", "PUSH_NULL", "CACHE"):
            yield chain
            chain = ()
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = (str(step.argval),)
        elif step.opname == "IMPORT_NAME":
            chain = ("", str(step.argval))
    if chain:
        yield chain
