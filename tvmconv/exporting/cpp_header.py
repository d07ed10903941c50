"""The C++ header of an exported library, a wrapper of the C header: RAII objects, spans, exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path

from ..dtypes import ROWS
from ..family import Extent, ProblemFamily
from ..problem import Problem
from ..runtime.networks.tensors import Tensor, tensors_of
from ..version import __version__
from .names import tensor_name
from .network_header import extents_in, multiple_text, shape_text
from .network_part import NetworkPart
from .plan import Function, Plan

_COMMON = Path(__file__).parent / "cpp" / "common.hpp"
# Names that no member or namespace may have: keywords of C++, macros of its compilers and headers, and names of this header.
_TAKEN = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await co_return
co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
volatile wchar_t while xor xor_eq
assert errno i386 linux major minor stderr stdin stdout unix EOF I NULL inputs outputs span std
"""
_NETWORK_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    "float16": "::std::uint16_t",
    "bfloat16": "::std::uint16_t",
}
_BUNDLE_ERROR = "tvmconv_name_error_string(status)"
_NETWORK_ERROR = "STATUS ? tvmconv_name_error_text() : tvmconv_name_error_string(status)"
_FAILED = "status == tvmconv_name_ERROR_NETWORK"
_REFUSED = f"{_FAILED} || status == tvmconv_name_ERROR_EXTENTS"
_WORKSPACE = "buffer* workspace = nullptr;  // of this call alone, of at least ..._workspace_bytes(threads); null: the allocator's"
_GIVE_WORKSPACE = """if (how.workspace != nullptr) {
    call.workspace = how.workspace->data();
    call.workspace_bytes = how.workspace->size();
  }"""
_FAMILY_SIZES = """\
    const auto out = output_extents(extents);
    const auto data_elements = {channels} * detail::product(extents.data(), {axes});
    const auto output_elements = {out_channels} * detail::product(out.data(), {axes});
"""
_PRODUCT = """
namespace detail {

inline ::std::size_t product(const ::std::int64_t* extents, int count) {
  ::std::size_t elements = 1;
  for (int i = 0; i < count; ++i) elements *= static_cast<::std::size_t>(extents[i]);
  return elements;
}

}  // namespace detail
"""
_NETWORK = """
// The network with the memory of its calls. Several threads may call it at the same time.
class network {
 public:
  network() {
    tvmconv_name_network* opened = nullptr;
    detail::check(tvmconv_name_open(&opened));
    network_.reset(opened);
  }
RUN
 private:
  struct closing {
    void operator()(tvmconv_name_network* network) const noexcept { tvmconv_name_close(network); }
  };
  ::std::unique_ptr<tvmconv_name_network, closing> network_;
};
"""
_RUN = """\
  void run(const inputs& in, const outputs& out, const options& how = {}) const {
    const void* const read[] = READ;
    void* const written[] = WRITTEN;
    detail::invoke(how, [&](const tvmconv_name_call* call) { return tvmconv_name_run_with(network_.get(), call, read, written); });
  }
"""
# The same for a network with free extents.
_FREE_RUN = """\
  void run(const extents& of, const inputs& in, const outputs& out, const options& how = {}) const {
    const auto shapes = output_extents(of);
    const ::std::int64_t given[] = GIVEN;
    const void* const read[] = READ;
    void* const written[] = WRITTEN;
    detail::invoke(how, [&](const tvmconv_name_call* call) {
      return tvmconv_name_run_with(network_.get(), call, given, read, written);
    });
  }
  output_shapes output_extents(const extents& of) const {
    const ::std::int64_t given[] = GIVEN;
    ::std::int64_t found[tvmconv_name_OUTPUT_AXES + 1];
    detail::check(tvmconv_name_output_extents(network_.get(), given, found));
    return SHAPES;
  }
  // The bytes of a workspace.
  ::std::size_t workspace_bytes(const extents& of) const {
    const ::std::int64_t given[] = GIVEN;
    const auto bytes = tvmconv_name_workspace_bytes(network_.get(), given);
    if (bytes == 0) detail::check(tvmconv_name_ERROR_EXTENTS);
    return bytes;
  }
"""


def cpp_header(plan: Plan) -> str:
    """Return the text of ``NAME.hpp`` for a bundle's library."""
    parts = [_common(plan.name, _BUNDLE_ERROR, _WORKSPACE, _GIVE_WORKSPACE)]
    parts += [_kernel(plan.name, each) for each in plan.functions]
    if plan.families:
        parts.append(_PRODUCT)
    parts += [_family(plan.name, each, each.family) for each in plan.families if each.family]
    return "".join((*parts, _end(plan.name)))


def network_cpp_header(part: NetworkPart, name: str) -> str:
    """Return the text of ``NAME.hpp`` for a network's library."""
    extents = extents_in(part)
    ends = {kind: tensors_of(part.description, kind) for kind in ("inputs", "outputs")}
    members = {kind: _members([each.name for each in tensors]) for kind, tensors in ends.items()}
    filled = {}
    if extents:
        names = _members([each.name for each in extents])
        sizes = {each.name: f"of.{member}" for each, member in zip(extents, names, strict=True)}
        error, option, call = _REFUSED, _WORKSPACE, _GIVE_WORKSPACE
        filled["GIVEN"] = _brace(sizes.values())
        filled["SHAPES"], declared = _shapes(ends["outputs"], members["outputs"], extents)
        rows = [
            f"  ::std::int64_t {name};  // {each.low} to {each.high}{multiple_text(each)}"
            for name, each in zip(names, extents, strict=True)
        ]
        structs = [_PRODUCT, _struct("extents", rows), _struct("output_shapes", declared)]
    else:
        sizes = {}
        error, option, call = _FAILED, "", ""
        structs = []
    for kind, variable, const in (("inputs", "in", "const "), ("outputs", "out", "")):
        lines, given = [], []
        divided = extents if kind == "outputs" else ()
        for member, tensor in zip(members[kind], ends[kind], strict=True):
            elements = f"{kind}::{member}_elements"
            if not extents:
                lines.append(f"  static constexpr ::std::size_t {member}_elements = {prod(tensor.shape)};")
            elif kind == "inputs":
                factors = [sizes[size] if isinstance(size, str) else str(size) for size in tensor.shape]
                elements = f"static_cast<::std::size_t>({' * '.join(factors) or 1})"
            else:
                elements = f"detail::product(shapes.{member}.data(), {len(tensor.shape)})"
            lines.append(
                f"  span<{const}{_network_type(tensor.dtype)}> {member};  // {shape_text(tensor.shape, divided)}"
            )
            given.append(f'detail::at({variable}.{member}, {elements}, "{member}")')
        structs.append(_struct(kind, lines))
        filled["READ" if kind == "inputs" else "WRITTEN"] = _brace(given or ["nullptr"])
    run = re.sub("|".join(filled), lambda found: filled[found[0]], _FREE_RUN if extents else _RUN)
    parts = [_common(name, _NETWORK_ERROR.replace("STATUS", error), option, call), *structs]
    parts.append(_NETWORK.replace("RUN", run).replace("tvmconv_name", name))
    return "".join((*parts, _end(name)))


def _shapes(outputs: Sequence[Tensor], members: Sequence[str], extents: Sequence[Extent]) -> tuple[str, list[str]]:
    """Return the initializer of the outputs' shapes from the consecutive numbers `found`, and the members' declarations."""
    places = iter(range(sum(len(each.shape) for each in outputs)))
    made = _brace(_brace(f"found[{next(places)}]" for _ in each.shape) for each in outputs)
    declared = [
        f"  ::std::array<::std::int64_t, {len(each.shape)}> {member};  // {shape_text(each.shape, extents)}"
        for member, each in zip(members, outputs, strict=True)
    ]
    return made, declared


def _struct(name: str, lines: Sequence[str]) -> str:
    return f"\nstruct {name} {{\n" + "".join(f"{line}\n" for line in lines) + "};\n"


def _brace(items: Iterable[str]) -> str:
    return f"{{{', '.join(items)}}}"


def identifier(name: str) -> str:
    """Return a valid C++ identifier for a name that C uses only as a suffix: ``class_`` for ``class``, ``_224`` for ``224``."""
    return f"_{name}" if name[0].isdigit() else f"{name}_" if name in _TAKEN.split() else name


def _common(name: str, error: str, option: str, call: str) -> str:
    filled = {
        "WORKSPACE_OPTION": option,
        "WORKSPACE_CALL": call,
        "ERROR_TEXT": error.replace("tvmconv_name", name),
        "VERSION": __version__,
        "tvmconv_space": identifier(name),
        "tvmconv_name": name,
    }
    text = re.sub("|".join(filled), lambda found: filled[found[0]], _COMMON.read_text())
    return re.sub(r"^ +\n", "", text, flags=re.MULTILINE)


def _end(name: str) -> str:
    return f"\n}}  // namespace tvmconv::{identifier(name)}\n\n#endif\n"


def _kernel(name: str, function: Function) -> str:
    problem = function.problem
    sizes = {each: prod(shape) for each, (shape, _) in problem.operands.items()} | {
        "output": prod(problem.output_shape)
    }
    return f"""
// {function.signature}
class {function.name} {{
 public:
{_constants(sizes)}
{_calls(name, function.name, problem, "", "")}
"""


def _family(name: str, function: Function, family: ProblemFamily) -> str:
    problem = function.problem
    axes = 1 + family.rank
    given = axes + (2 * family.rank if family.pads == "?" else 0)
    sizes = {each: prod(shape) for each, (shape, _) in problem.operands.items() if each not in ("data", "residual")}
    computed = _FAMILY_SIZES.format(channels=family.in_channels, out_channels=family.out_channels, axes=axes)
    return f"""
// {function.signature}
class {function.name} {{
 public:
{_constants(sizes)}
  using extents_type = ::std::array<::std::int64_t, {given}>;
  static ::std::array<::std::int64_t, {axes}> output_extents(const extents_type& extents) {{
    ::std::array<::std::int64_t, {axes}> out{{}};
    detail::check({name}_{function.name}_output_extents(extents.data(), out.data()));
    return out;
  }}
{_calls(name, function.name, problem, "const extents_type& extents, ", computed)}
"""


def _constants(sizes: Mapping[str, int]) -> str:
    return "\n".join(f"  static constexpr ::std::size_t {each}_elements = {size};" for each, size in sizes.items())


def _calls(name: str, own: str, problem: Problem, extents: str, sizes: str) -> str:
    """Return the rest of a kernel's class: the constructor, which packs the filter, and the calls.

    Parameters
    ----------
    extents
        Declaration of a family's parameter for extents; empty for a single problem.
    sizes
        Statements that compute the element counts of arrays whose size depends on these extents.
    """
    spans, called = _spans(problem, name), f"{name}_{own}"

    def function(begin: str, end: str, entry: str, operands: Iterable[str]) -> str:
        parameters = ", ".join([*(f"{spans[each]} {each}" for each in operands), "const options& how = {}"])
        given = ["extents.data()"] if extents else []
        for each in spans:
            elements = "output" if each == "residual" else each
            given.append(f'detail::at({each}, {elements}_elements, "{each}")' if each in operands else "packed_.data()")
        return f"""\
  {begin}({extents}{parameters}){end} {{
{sizes}    detail::invoke(how, [&](const {name}_call* call) {{
      return {called}{entry}_with(call, {", ".join(given)});
    }});
  }}"""

    return f"""\
  // Packs the filter for this object's calls. Several threads may call it at the same time.
  explicit {own}({spans["filter"]} filter) : packed_({called}_packed_bytes()) {{
    detail::check({called}_pack(detail::at(filter, filter_elements, "filter"), packed_.data()));
  }}
{function("void operator()", " const", "_packed", [each for each in spans if each != "filter"])}
  // Computes with a plain filter.
{function("static void run", "", "", list(spans))}

 private:
  buffer packed_;
}};"""


def _spans(problem: Problem, name: str) -> dict[str, str]:
    """Return the C++ types of a kernel's parameters, in order."""
    types = {each: ROWS[dtype].c.replace("NAME", name) for each, (_, dtype) in problem.arrays.items()}
    return {each: f"span<{'' if each == 'output' else 'const '}{c}>" for each, c in types.items()}


def _members(names: Sequence[str]) -> list[str]:
    """Return unique identifiers for a model's names, for members of a struct."""
    members: list[str] = []
    taken: set[str] = set()
    for number, each in enumerate(names):
        member = identifier(tensor_name(each))
        while taken & {member, f"{member}_elements"}:
            member += f"_{number}"
        taken |= {member, f"{member}_elements"}
        members.append(member)
    return members


def _network_type(dtype: str) -> str:
    return _NETWORK_TYPES.get(dtype, f"::std::{dtype}_t")
