"""`compute_model`: a model's computation for one example: networks, and PyTorch's operators between them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import fx, nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..errors import BuildError, SourceError, TvmconvWarning, UnsupportedMachineError, check_extra
from ..network.read.torch.decompose import decompose
from ..runtime.networks.network import Network
from ..support.lines import line_of, module_of
from ..support.progress import Progress
from .calling import NetworkCall
from .chain import Lost, NetworkChain, part, wiring
from .exporting import export
from .flat import Flat, Structure, extent_of, inverse, is_same, permute
from .free_axes import FreeAxes, free_axes
from .pieces import Piece, flat_graph, origin, split
from .slices import Head, first_images, head_of
from .store import Kept, Store, key_of
from .watched import watch
from .work import count_products

# Rounds in which single operators are left to PyTorch; after them, whole pieces that fail.
_MOST_ROUNDS = 8
_ALONE = "it stands alone between operators of PyTorch"


@dataclass(frozen=True)
class OperatorRow:
    """One operator of a model, for one example.

    Attributes
    ----------
    layer
        The module whose code calls it, by its name in the model.
    computes
        The operator's name in ATen.
    output
        The shape and type of its result.
    by
        The network's library, or PyTorch.
    why
        Why PyTorch computes it, with the line of code that calls it; empty if a network does.
    work
        An estimate of the multiply-adds of a convolution, a product or an attention; 0 for others.
    """

    layer: str
    computes: str
    output: str
    by: str
    why: str
    work: int = 0


@dataclass(frozen=True)
class Computed:
    """Computation of a model for one example.

    Attributes
    ----------
    graph
        Takes and returns tensors alone: a chain of networks, or a graph that also has operators of PyTorch.
    structure
        The structure of arguments and answers.
    rows
        Its operators, with the library that computes each.
    """

    graph: nn.Module
    structure: Structure
    rows: Sequence[OperatorRow]

    def __post_init__(self) -> None:
        orders = (*self.structure.in_orders, *self.structure.out_orders)
        is_simple = self.structure.is_tensor and all(each == sorted(each) for each in orders)
        only = self.graph.only() if isinstance(self.graph, NetworkChain) and is_simple else None
        object.__setattr__(self, "_only", only)  # skips the structures

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Return the model's answer."""
        if self._only is not None:  # type: ignore[attr-defined]
            return self._only(*tensors)  # type: ignore[attr-defined]
        arrays = [permute(each, order) for each, order in zip(tensors, self.structure.in_orders, strict=True)]
        answers = zip(self.graph(*arrays), self.structure.out_orders, strict=True)
        return self.structure.answer([permute(each, inverse(order)) for each, order in answers], tensors)

    def rows_at(self, path: str) -> list[OperatorRow]:
        """Return the rows of a module at a path of a model."""
        return [replace(row, layer=".".join(filter(None, (path, row.layer)))) for row in self.rows]

    def takes(self, leaves: Sequence[Any], spec: Any) -> bool:
        """Return whether it computes arguments with other extents than the example's."""
        if not isinstance(self.graph, NetworkChain) or spec != self.structure.in_spec:
            return False
        tensors = []
        for leaf, constant in zip(leaves, self.structure.given, strict=True):
            if constant is None:
                tensors.append(leaf)
            elif not is_same(leaf, constant[0]):
                return False
        if not all(isinstance(each, torch.Tensor) for each in tensors):
            return False
        if any(each.ndim != len(order) for each, order in zip(tensors, self.structure.in_orders, strict=True)):
            return False
        return self.graph.takes([*map(permute, tensors, self.structure.in_orders)])

    @property
    def lost(self) -> str:
        """Return why a network of this copy cannot be loaded, as in another process; empty if all can."""
        return next((each.why for each in self.graph.modules() if isinstance(each, Lost)), "")

    def __deepcopy__(self, memo: dict[int, Any]) -> Computed:
        """Nothing of it changes, so it is its own copy."""
        return self

    @property
    def networks(self) -> list[Network]:
        """The networks, in their order."""
        return [each.network for each in self.graph.modules() if isinstance(each, NetworkCall)]


@dataclass(frozen=True)
class How:
    """Options of compiling networks: targets, budget of tuning, arithmetic, memory and free axes."""

    targets: tuple[str, ...] = ("host",)
    trials: int = 0
    seconds: float | None = None
    math: str = "default"
    progress: Progress | None = None
    memory: str = "default"
    dynamic_shapes: Any = None

    @property
    def is_kept(self) -> bool:
        """Return whether the user's cache keeps the networks: those for this machine that are not tuned first."""
        return "host" in self.targets and not self.trials and not self.seconds

    @property
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `tvmconv.network.compile.build`."""
        return {name: getattr(self, name) for name in ("math", "progress", "trials", "seconds", "memory")}


def compute_model(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], store: Store, how: How) -> Computed:
    """Return the computation of a model for an example; networks that the store lacks are compiled.

    Raises
    ------
    SourceError
        If torch.export cannot read the model, or none of its operators becomes a network.
    MissingExtraError
        If a network must be compiled, and the compiler is not installed.
    UnsupportedMachineError
        If it is compiled for other machines only.
    """
    free = free_axes(model, args, kwargs, how.dynamic_shapes)
    flat = Flat(model, args, kwargs, gives_views=free is None)
    options = [how.math, *([how.memory] if how.memory != "default" else [])]
    # One call does not show the code's operators at other extents.
    seen = watch(flat, *options) if free is None else ""
    if seen and how.is_kept and store.find(seen, None) is None:
        store.recall(seen)
    if seen and all(store.find(seen, None if target == "host" else target) for target in how.targets):
        known = store.find(seen, None)
        if known is not None and known.chain:
            return _load_chain(known.chain, store, flat.structure())
    with _workers(store):
        return _read_model(flat, _Few(model, args, kwargs), free, options, seen, store, how)


@contextmanager
def _workers(store: Store) -> Iterator[None]:
    """Start workers while a model is read, if the store has no networks at all."""
    if store.is_empty and find_spec("tvm") is not None:
        from ..network.compile import prepare_workers

        with prepare_workers():
            yield
    else:
        yield


def _read_model(
    flat: Flat, few: _Few, free: FreeAxes | None, options: list[str], seen: str, store: Store, how: How
) -> Computed:
    """Return the result of :func:`compute_model` for a model whose call the store lacks."""
    program = export(flat, free)
    names = {} if free is None else free.names(program)
    if free is not None:
        options += [str(program.range_constraints), str(names)]
    try:
        whole = flat_graph(decompose(program))
    except Exception as error:  # of many classes
        raise SourceError(f"torch.export cannot decompose the model: {error}") from error
    key = key_of(whole, *options)
    for target in how.targets:
        if store.find(key, None if target == "host" else target) is None:
            if free is None:
                built = _build(whole, few, key, store, target, how)
            else:
                built = _build_free(whole, program.range_constraints, names, key, store, target, how)
            chain = _chain(whole, built, flat.structure())
            if seen and chain:
                built = replace(built, seen=seen, chain=chain)
            store.add(built)
            if built.seen and how.is_kept and target == "host":
                store.remember(built)
    kept = store.find(key, None)
    if kept is None:
        raise UnsupportedMachineError(f"it was compiled only for other machines: {', '.join(how.targets)}")
    for why in kept.failures:
        again = f"remove {store.path} to try again"
        warnings.warn(f"PyTorch computes what could not be compiled; {again}: {why}", TvmconvWarning, stacklevel=2)
    if not kept.files:
        raise SourceError(f"none of its operators can be compiled: {(*kept.failures, _first(kept.foreign))[0]}")
    return _assemble(whole, kept, store, flat.structure())


class _Few:
    """A model to be read again, for the first images of its example."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._model, self._args, self._kwargs = model, args, kwargs

    def head(self, whole: fx.GraphModule, head: Head) -> Piece | None:
        """Return the head of a program for a few images; None: the program for these has other operators."""
        args, kwargs = first_images((self._args, self._kwargs), head.images)
        flat = Flat(self._model, args, kwargs, gives_views=True)
        few = flat_graph(decompose(export(flat)))
        if not all(map(_is_alike, whole.graph.nodes, few.graph.nodes)):
            return None
        return split(few, (), head.count)[0]


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    return (one.op, one.name, one.target) == (other.op, other.name, other.target)


def _build(whole: fx.GraphModule, few: _Few, key: str, store: Store, target: str, how: How) -> Kept:
    """Compile a program; parts that cannot be read or compiled are left to PyTorch."""
    check_extra("compile", "tvm")
    from ..network.compile import build
    from ..network.options import check_target
    from ..network.read.torch.reader import UnreadError, find_unreadable, read_decomposed

    cpu = check_target(target).name
    foreign = {node.name: why for node, why in find_unreadable(whole.graph.nodes).items()}
    files: dict[tuple[str, ...], str] = {}
    failures: list[str] = []
    head = None if foreign else head_of(whole)
    first = few.head(whole, head) if head is not None else None
    rounds = 0
    while True:
        rounds += 1
        count, images = (head.count, head.images) if head is not None and first is not None and not foreign else (0, 0)
        pieces = split(_again(whole), foreign, count)
        if count and first is not None:
            pieces[0] = first
        failed: dict[str, str] = {}
        for piece in pieces:
            if piece.nodes in files:
                continue
            try:
                place = store.place(key, cpu, len(files))
                build(read_decomposed(piece.program), place, target, **how.options)
                files[piece.nodes] = place.name
            except UnreadError as error:
                name = origin(error.node).name if error.node is not None else ""
                is_one = name in piece.nodes and rounds <= _MOST_ROUNDS
                failed |= dict.fromkeys([name] if is_one else piece.nodes, error.why)
            except (SourceError, BuildError) as error:
                failures.append(f"{len(piece.nodes)} operators: {error}")
                failed |= dict.fromkeys(piece.nodes, str(error))
        if not failed:
            kept = [files[piece.nodes] for piece in pieces]
            return Kept(key, cpu, foreign, kept, count, images, failures=failures)
        foreign |= failed


def _build_free(
    whole: fx.GraphModule,
    ranges: Mapping[Any, Any],
    names: Mapping[str, str],
    key: str,
    store: Store,
    target: str,
    how: How,
) -> Kept:
    """Compile a program with free extents to one network.

    Raises
    ------
    SourceError
        If it cannot be read or compiled.
    """
    check_extra("compile", "tvm")
    from ..network.compile import build
    from ..network.options import check_target
    from ..network.read.torch.reader import find_unreadable, read_decomposed

    if foreign := {node.name: why for node, why in find_unreadable(whole.graph.nodes).items()}:
        raise SourceError(f"with free extents every operator must be compiled; not compiled: {_first(foreign)}")
    cpu = check_target(target).name
    (piece,) = split(_again(whole), (), ranges=ranges)
    place = store.place(key, cpu, 0)
    build(read_decomposed(piece.program, names), place, target, **how.options)
    return Kept(key, cpu, {}, [place.name])


def _again(whole: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph that shares its weights."""
    return fx.GraphModule(whole, copy.deepcopy(whole.graph))


def _chain(whole: fx.GraphModule, kept: Kept, structure: Structure) -> dict[str, Any]:
    """Return the facts to store of a program without operators of PyTorch between its networks; empty if it has some."""
    graph = _again(whole)
    pieces = split(graph, kept.foreign, kept.head)
    found = wiring(graph.graph, _parts(pieces, kept)) if pieces else None
    rows = [list(vars(row).values()) for row in _rows(whole, pieces, kept)]
    return {**found, "answers": structure.answers, "rows": rows} if found else {}


def _load_chain(chain: Mapping[str, Any], store: Store, structure: Structure) -> Computed:
    # The program's own: in the model's call, operators may return other memory orders.
    vars(structure).update(chain["answers"])
    return Computed(NetworkChain(store.path, chain), structure, [OperatorRow(*row) for row in chain["rows"]])


def _parts(pieces: Sequence[Piece], kept: Kept) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of :func:`part` for the pieces' networks, by the names of their modules."""
    return {
        piece.name: (file, bool(kept.head) and number == 0, piece.in_orders, piece.out_orders)
        for number, (piece, file) in enumerate(zip(pieces, kept.files, strict=True))
    }


def _assemble(whole: fx.GraphModule, kept: Kept, store: Store, structure: Structure) -> Computed:
    if chain := _chain(whole, kept, structure):
        return _load_chain(chain, store, structure)
    graph: Any = _again(whole)
    pieces = split(graph, kept.foreign, kept.head)
    for name, made_by in _parts(pieces, kept).items():
        setattr(graph, name, part(store.path, *made_by))
    graph = fx.GraphModule(graph, graph.graph)  # without the networks' weights
    for parent in graph.modules():
        for weights in (parent._parameters, parent._buffers):  # copies: networks keep the present weights, too
            weights.update({name: each.detach().clone() for name, each in weights.items() if each is not None})
    return Computed(graph, structure, _rows(whole, pieces, kept))


def _rows(whole: fx.GraphModule, pieces: Sequence[Piece], kept: Kept) -> list[OperatorRow]:
    """Return which library computes each operator."""
    files = {name: file for piece, file in zip(pieces, kept.files, strict=True) for name in piece.nodes}
    rows = []
    for node in whole.graph.nodes:
        is_tensor = not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
        if node.op != "call_function" or getattr(node.target, "__name__", "") == "getitem" or not is_tensor:
            continue
        line = line_of(node)
        if f'"{Flat.forward.__code__.co_filename}"' in line:
            continue
        why = "" if node.name in files else kept.foreign.get(node.name, _ALONE)
        why += f" ({line})" if why and line else ""
        rows.append(
            OperatorRow(
                module_of(node),
                str(node.target).removeprefix("aten."),
                _describe(node.meta.get("val")),
                files.get(node.name, "PyTorch"),
                why,
                count_products(node),
            )
        )
    return rows


def _describe(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_describe, value))
    if not isinstance(value, torch.Tensor):
        return ""
    sizes = ("?" if free_unbacked_symbols(each) else str(extent_of(each)) for each in value.shape)
    return f"{'x'.join(sizes)} {str(value.dtype).removeprefix('torch.')}".strip()


def _first(foreign: Any) -> str:
    return next((f"{name}: {why}" for name, why in foreign.items()), "it computes nothing")
