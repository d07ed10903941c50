"""Emit the CPU's vector instructions for bf16 and pairs or quads of integers.

TVM's code generation has no bf16 and does not vectorize calls of unknown functions. Definitions therefore call dot products and `ROUND` for
one lane (algorithms/pairs.py), which all steps of a schedule treat as plain arithmetic; here a loop over lanes becomes one call of the
vector function of that name, which schedules/cpu/dots.py defines in LLVM IR. Where stores are not vectorized, the instruction rounds one
number.

A pair of data used by one product is broadcast by the instruction's memory operand, as LLVM does for f32 but not for these intrinsics:
it would load broadcasts for each pixel in advance, and spill them. A pair used by several vectors is broadcast right before their products:
a CPU that starts two products a cycle loads at most two vectors meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, Range, StringImm, TensorLoad

from ....algorithms.annotations import ROUND_STORES
from ....algorithms.pairs import DOT, DOT_QUADS, DOT_S16, DOT_SUMS, ROUND, VEX, calls, dot_of, rounding_text
from ....errors import RewriteError
from ...common.rewrites import IMPORT, element_at, find_all, map_nodes, refuse, rewrite_loops, settle, substitute
from .padding import uses
from .shuffles import lanes_of

_ROUND_ONE = f"{ROUND}_1"
# Most vectors for one broadcast: their sums, filters and two more take 18 of 32 registers, or all 16 of AVX2. Inline assembly that needs
# more registers does not compile, even without optimization.
_MOST_TOGETHER = {16: 8}
_MOST_OF_SHORT = 7
_PAIR_BYTES = 4
# ARM's instructions by element: of a vector of the filter and an element of data.
_BY_ELEMENT = {
    DOT_QUADS["s8", "s8"]: "sdot",
    DOT_QUADS["u8", "u8"]: "udot",
    DOT_QUADS["u8", "s8"]: "sudot",
    DOT_QUADS["s8", "u8"]: "usdot",
}
# Function from a function's name, the dot product, and the numbers of vectors and lanes to LLVM IR.
Text = Callable[[str, str, int, int], str]
_LLVM = {"float32": "float", "int32": "i32"}


def by_instructions(body: Any) -> Any:
    """Return the statement with dot products and ROUND of lanes replaced by calls for vectors; ROUND of one number by its own."""
    body = rewrite_loops(body, ROUND_STORES, _round_lanes)
    body = map_nodes(_by_dots(body, _text), Call, _for_one_lane)
    one = any(calls(call, _ROUND_ONE) for call in find_all(body, Call))
    return tirx.AttrStmt(tirx.const(0, "int32"), IMPORT, StringImm(rounding_text(1)), body) if one else body


def by_vex(body: Any) -> Any:
    """Return the statement with dot products by AVX-VNNI's instructions (VEX)."""
    return _by_dots(body, partial(_text, prefix=VEX))


def by_sum(body: Any) -> Any:
    """Return the statement with dot products of integer pairs by AVX512-VNNI's instruction, which adds them to sums.

    By inline assembly: LLVM splits the intrinsic into two instructions, for a shorter dependence chain.
    """
    return _by_dots(body, partial(_text, sums="vpdpwssd"))


def by_elements(body: Any) -> Any:
    """Return the statement with dot products by ARM's instructions by element."""
    return _by_dots(body, _text_by_element)


def _by_dots(body: Any, text: Text) -> Any:
    """Return the statement with dot products replaced by calls of functions that `text` writes."""
    functions: dict[str, str] = {}
    unrolled = [each for each in find_all(body, tirx.For) if each.kind == tirx.ForKind.UNROLLED]
    dots = partial(_dots, unrolled, functions, text)
    body = map_nodes(body, tirx.For, partial(_summed_together, dots))
    body = map_nodes(body, tirx.For, partial(_sum_products, dots, _shared_lanes(body)))
    for _, llvm in sorted(functions.items()):
        body = tirx.AttrStmt(tirx.const(0, "int32"), IMPORT, StringImm(llvm), body)
    return body


def _for_one_lane(call: Any) -> Any:
    if dot_of(call):
        raise RewriteError(f"a dot product is outside a vectorized sum: {call}")
    if not calls(call, ROUND):
        return call
    return tirx.call_pure_extern("uint16", _ROUND_ONE, call.args[1])


def _shared_lanes(body: Any) -> list[Any]:
    """Return the variables of lane loops whose data is shared by several vectors of an unrolled loop."""
    unrolled = [
        each for each in find_all(body, tirx.For) if each.kind == tirx.ForKind.UNROLLED and int(each.extent) > 1
    ]
    return [
        loop.loop_var
        for outer in unrolled
        for loop in find_all(outer.body, tirx.For)
        if _sums(loop) and not uses(loop.body.value.b.args[1], outer.loop_var)
    ]


def _sums(loop: Any) -> bool:
    """Return whether a loop is a sum of dot products over lanes."""
    vectorized = isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.VECTORIZED
    store = loop.body if vectorized else None
    return isinstance(store, tirx.BufferStore) and isinstance(store.value, tirx.Add) and bool(dot_of(store.value.b))


def _summed_together(dots: Callable[..., Any], loop: Any) -> Any:
    """``sums[v, lane] = sums[v, lane] + DOT(data, weights[v, lane])`` for all vectors v, with the same pair of data."""
    if loop.kind != tirx.ForKind.UNROLLED or int(loop.extent) == 1 or not _sums(loop.body):
        return loop
    _, data, *_, weight = loop.body.body.value.b.args
    same = not uses(data, loop.loop_var) and not uses(data, loop.body.loop_var)
    if not same or not isinstance(data, TensorLoad) or not uses(weight, loop.loop_var):
        return loop
    vectors = [substitute(loop.body, {loop.loop_var: number}) for number in range(int(loop.extent))]
    operands = [_operands(each)[::2] for each in vectors]
    most = _MOST_TOGETHER.get(int(loop.body.extent), _MOST_OF_SHORT)
    parts = -(-len(operands) // most)
    calls = [dots(dot_of(loop.body.body.value.b), data, operands[part::parts]) for part in range(parts)]
    return calls[0] if parts == 1 else tirx.SeqStmt(calls)


def _sum_products(dots: Callable[..., Any], shared: list[Any], loop: Any) -> Any:
    """``sum[lane] = sum[lane] + DOT(data, weight[lane])``, where lanes read the same data, or data in another order."""
    if not _sums(loop):
        return loop
    store, data = loop.body, loop.body.value.b.args[1]
    total, *factors = _operands(loop)
    alone = not any(loop.loop_var.same_as(each) for each in shared)
    if alone and isinstance(factors[0], tirx.Broadcast) and isinstance(data, TensorLoad):
        return dots(dot_of(store.value.b), data, [(total, factors[-1])])
    lanes, dot = int(loop.extent), dot_of(store.value.b)
    added = tirx.call_pure_extern(f"{DOT_SUMS[dot]}x{lanes}", f"{dot}_{lanes}", total, *factors)
    return tirx.BufferStore(store.buffer, added, total.indices)


def _operands(loop: Any) -> list[Any]:
    """Return the vectors of sum, data and filter that a loop over lanes reads."""
    value = loop.body.value
    found = [lanes_of(each, loop) for each in (value.a, *value.b.args[1:])]
    if any(each is None for each in found):
        raise RewriteError(f"sums, data or filter of a dot product are not contiguous: {loop.body}")
    return found


def _dots(unrolled: list[Any], functions: dict[str, str], text: Text, dot: str, data: Any, vectors: list[Any]) -> Any:
    """Return the call that adds dot products of a pair of data with filters to sums; `vectors` are pairs of a sum and a filter."""
    count, lanes = len(vectors), int(vectors[0][0].indices[-1].lanes)
    name = f"{dot}_at_{count}_{lanes}"  # pair in memory, several vectors
    functions[name] = text(name, dot, count, lanes)
    pointers = []
    for total, _ in vectors:
        *outer, inner = total.indices
        pointers.append(tirx.address_of(tirx.BufferLoad(total.source, [*outer, inner.base])))
    # The array's address, not the element's: that may be outside of the array, under a condition that skips it.
    start = tirx.address_of(tirx.BufferLoad(data.source, [0] * len(data.indices)))
    filters = [weight for _, weight in vectors]
    return tirx.Evaluate(tirx.call_extern("void", name, start, *_place(data, unrolled), *pointers, *filters))


def _place(data: Any, unrolled: list[Any]) -> tuple[Any, Any]:
    """Return the element that the first iteration of unrolled loops loads, and the distance to this iteration's in bytes.

    The distance is a constant in the instruction, so that iterations share an address. LLVM does not fold constants into addresses of inline
    assembly, and would need a register for each pixel's.
    """
    loops = [each for each in unrolled if uses(data, each.loop_var)]
    element = element_at(data.source, data.indices)
    first = substitute(element, {each.loop_var: each.min for each in loops})
    offset = sym.Analyzer().simplify((element - first) * _PAIR_BYTES)
    if all(any(var.same_as(each.loop_var) for each in loops) for var in find_all(offset, tirx.Var)):
        return first, offset.astype("int64")
    return element, tirx.const(0, "int64")


def _text(name: str, dot: str, count: int, lanes: int, prefix: str = "", sums: str = "") -> str:
    """Return, in LLVM IR, the function that adds to `count` vectors their dot products with a pair in memory.

    After inlining, sums stay in registers. The memory operand is unused in the code, but keeps earlier stores before it. The assembly is
    declared `willreturn`; otherwise LLVM would not hoist later divisions out of the sum's loop.
    """
    numbers, vector, pairs = range(count), f"<{lanes} x {_LLVM[DOT_SUMS[dot]]}>", f"<{lanes} x i32>"
    lines = _head(name, dot, count, lanes)
    # One vector's instruction broadcasts by itself; several need a register for the pair, which is declared as an output.
    alone = (dot == DOT or bool(sums)) and count == 1
    # Products of 16 bits need a separate addition, and one more register.
    others = 0 if alone else 2 if dot == DOT_S16 and count > 1 and not sums else 1
    outputs = [*[vector] * count, *[pairs] * others]
    given = len(outputs)
    in_memory = f"${{{given + 1}:c}}(${given})"
    pair = f"{in_memory}{{1to{lanes}}}" if alone else f"${count}"
    code = [] if alone else [f"vpbroadcastd {in_memory}, {pair}"]
    for each in numbers:
        if dot == DOT or sums:
            code.append(f"{sums or 'vdpbf16ps'} {pair}, ${given + 3 + each}, ${each}")
        elif dot != DOT_S16:
            code.append(f"{_quads_of(dot, prefix)} ${given + 3 + each}, {pair}, ${each}")
        else:
            products = f"${given - 1}" if each < count - 1 else pair
            code += [f"vpmaddwd ${given + 3 + each}, {pair}, {products}", f"vpaddd {products}, ${each}, ${each}"]
    constraints = ["=&v"] * given + ["r", "i", "*m"] + ["v"] * count + [str(each) for each in numbers]
    operands = ["ptr %a", "i64 %offset", "ptr elementtype(i32) %a"]
    operands += [f"{pairs} %w{i}" for i in numbers] + [f"{vector} %s{i}" for i in numbers]
    returned = vector if given == 1 else f"{{{', '.join(outputs)}}}"
    result = "%r0" if given == 1 else "%r"
    lines += [f'  {result} = call {returned} asm "{"; ".join(code)}", "{",".join(constraints)}"({", ".join(operands)})']
    lines[-1] += " nounwind willreturn memory(argmem: read)"
    lines += [f"  %r{i} = extractvalue {returned} %r, {i}" for i in numbers if given > 1]
    lines += [f"  store {vector} %r{i}, ptr %p{i}, align 4" for i in numbers]
    return "\n".join([*lines, "  ret void", "}", ""])


def _quads_of(dot: str, prefix: str) -> str:
    """Return x86's instruction for a dot product of quads; only vpdpbusd has two encodings, chosen by a prefix."""
    (types,) = (types for types, name in DOT_QUADS.items() if name == dot)
    return f"{prefix}vpdpbusd" if types == ("u8", "s8") else f"vpdpb{types[0][0]}{types[1][0]}d"


def _head(name: str, dot: str, count: int, lanes: int) -> list[str]:
    """Return the first lines of a function: the address %a, %offset bytes before the pair, and the sums %s."""
    numbers, vector, pairs = range(count), f"<{lanes} x {_LLVM[DOT_SUMS[dot]]}>", f"<{lanes} x i32>"
    parameters = [
        "ptr %start",
        "i32 %element",
        "i64 %offset",
        *(f"ptr %p{i}" for i in numbers),
        *(f"{pairs} %w{i}" for i in numbers),
    ]
    lines = [f"define void @{name}({', '.join(parameters)}) alwaysinline nounwind {{"]
    lines += ["  %index = sext i32 %element to i64", "  %a = getelementptr i32, ptr %start, i64 %index"]
    return lines + [f"  %s{i} = load {vector}, ptr %p{i}, align 4" for i in numbers]


def _text_by_element(name: str, dot: str, count: int, lanes: int) -> str:
    """Return the function of :func:`_text` by BFDOT, or an integer dot product, with an element of the register to which the pair is loaded.

    From the intrinsic and a broadcast, LLVM would generate a broadcasting load for each pixel, which occupies a multiplier's pipeline.
    """
    vector, pairs = f"<{lanes} x {_LLVM[DOT_SUMS[dot]]}>", f"<{lanes} x i32>"
    code = f"bfdot $0.{lanes}s, $2.{2 * lanes}h, $3.2h[0]"
    if dot != DOT:
        code = f"{_BY_ELEMENT[dot]} $0.{lanes}s, $2.{4 * lanes}b, $3.4b[0]"
    lines = _head(name, dot, count, lanes)
    lines += ["  %b = getelementptr i8, ptr %a, i64 %offset", "  %pair = load i32, ptr %b, align 4"]
    lines += ["  %x = insertelement <4 x i32> poison, i32 %pair, i64 0"]
    for i in range(count):
        given = f"{vector} %s{i}, {pairs} %w{i}, <4 x i32> %x"
        lines += [f'  %r{i} = call {vector} asm "{code}", "=w,0,w,w"({given}) nounwind willreturn memory(none)']
        lines += [f"  store {vector} %r{i}, ptr %p{i}, align 4"]
    return "\n".join([*lines, "  ret void", "}", ""])


def _round_lanes(loop: Any) -> Any:
    """``output[lane] = ROUND(value)``: a loop that computes a vector of values, and one rounded store."""
    store, lanes = loop.body, int(loop.extent)
    if isinstance(store, tirx.IfThenElse) and store.else_case is None and not uses(store.condition, loop.loop_var):
        inside = tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, store.then_case, annotations=loop.annotations
        )
        return tirx.IfThenElse(store.condition, _round_lanes(inside), None)
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, tirx.BufferStore) or not calls(store.value, ROUND):
        refuse(loop, ROUND_STORES, f"it is no vectorized loop that stores what is rounded: {store}")
    indices = _vector(store.indices, loop)
    if indices is None:
        refuse(loop, ROUND_STORES, f"lanes do not lie together: {store}")
    values = tirx.decl_buffer((lanes,), "float32", "sums", scope="local")
    keep = tirx.BufferStore(values, store.value.args[1], [loop.loop_var])
    vector = tirx.BufferLoad(values, [tirx.Ramp(0, 1, lanes)])
    rounded = tirx.call_pure_extern(f"uint16x{lanes}", f"{ROUND}_{lanes}", vector)
    stored = tirx.BufferStore(store.buffer, rounded, indices)
    return tirx.SeqStmt([tirx.AllocBuffer(values), settle(loop, ROUND_STORES, keep), stored])


def _vector(indices: Any, loop: Any) -> list[Any] | None:
    """Return `indices` as those of a vector; None if lanes are not contiguous along the last axis."""
    lane, analyzer = loop.loop_var, sym.Analyzer()
    analyzer.bind(lane, Range(0, loop.extent))
    # Variables of outer loops begin at 0; their extents are unknown here.
    for other in {each for index in indices for each in tirx.analysis.undefined_vars(index, [])}:
        if not other.same_as(lane):
            analyzer.bind(other, Range(0, 2**30))
    # Compared without simplification, which may turn quotients of one side into a form that TVM cannot prove equal.
    firsts = [substitute(index, {lane: 0}) for index in indices]
    beyond = [*[0] * (len(firsts) - 1), lane]
    if not all(analyzer.can_prove_equal(i, f + b) for i, f, b in zip(indices, firsts, beyond, strict=True)):
        return None
    firsts = list(map(analyzer.simplify, firsts))
    return [*firsts[:-1], tirx.Ramp(firsts[-1], 1, int(loop.extent))]
