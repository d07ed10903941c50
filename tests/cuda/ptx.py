"""Translate inline PTX in CUDA C++ to calls of `emulator_hopper.h`'s functions, so that the text itself is emulated."""

from __future__ import annotations

import re

_ADDRESS = r"\[(%\d+)\]"
_BOX = r"\[(%\d+), \{([%\d, ]+)\}\]"
# An instruction, and the call for it; `{0}` is what the first group of the pattern stands for.
_INSTRUCTIONS = {
    rf"mbarrier\.init\.shared::cta\.b64 {_ADDRESS}, (%\d+)": "mbarrier_init({0}, {1})",
    r"fence\.mbarrier_init\.release\.cluster": "fence_mbarrier_init()",
    r"fence\.proxy\.async\.shared::cta": "fence_proxy_async()",
    rf"mbarrier\.arrive\.shared::cta\.b64 _, {_ADDRESS}": "mbarrier_arrive({0})",
    rf"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, {_ADDRESS}, (%\d+)": "mbarrier_arrive_expect_tx({0}, {1})",
    # The loop of attempts, whose last one succeeds.
    rf"again: mbarrier\.try_wait\.parity\.shared::cta\.b64 ended, {_ADDRESS}, (%\d+); @!ended bra again": (
        "mbarrier_wait_parity({0}, {1})"
    ),
    r"bar\.sync (%\d+), (%\d+)": "bar_sync({0}, {1})",
    r"cp\.async\.bulk\.tensor\.(\d)d\.shared::cluster\.global\.mbarrier::complete_tx::bytes "
    rf"{_ADDRESS}, {_BOX}, {_ADDRESS}": "tensor_load({0}, {1}, {2}, {{{3}}}, {4})",
    rf"cp\.async\.bulk\.tensor\.(\d)d\.global\.shared::cta\.bulk_group {_BOX}, {_ADDRESS}": (
        "tensor_store({0}, {1}, {{{2}}}, {3})"
    ),
    r"cp\.async\.bulk\.commit_group": "bulk_commit_group()",
    r"cp\.async\.bulk\.wait_group(?:\.read)? (\d+)": "bulk_wait_group({0})",
    r"wgmma\.fence\.sync\.aligned": "wgmma_fence()",
    r"wgmma\.commit_group\.sync\.aligned": "wgmma_commit_group()",
    r"wgmma\.wait_group\.sync\.aligned (%\d+)": "wgmma_wait_group({0})",
    r"setmaxnreg\.(?:dec|inc)\.sync\.aligned\.u32 (%\d+)": "setmaxnreg({0})",
    r"setp\.ne\.b32 adds, (%\d+), 0; wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(b?f16)\.(b?f16) "
    r"\{([%\d, ]+)\}, (%\d+), (%\d+), adds, 1, 1, ([01]), ([01])": (
        "wgmma_mma_async<{2}, {3}, {1}, {7}, {8}>({{{4}}}, {5}, {6}, {0} != 0)"
    ),
}
_TYPES = {"f16": "half", "bf16": "nv_bfloat16"}


def translated(source: str) -> str:
    """Return the source with every ``asm volatile`` statement replaced by calls.

    Raises
    ------
    AssertionError
        If an instruction is not known in exactly the form it has.
    """
    parts, at = [], 0
    for start in re.finditer(r"asm volatile\(", source):
        end = _closing(source, start.end() - 1)
        parts += [source[at : start.start()], _calls(source[start.end() : end])]
        at = end + 1
    return "".join([*parts, source[at:]])


def _calls(statement: str) -> str:
    """Return the calls for what stands between the parentheses of an ``asm``."""
    literals: list[str] = []

    def keep(match: re.Match[str]) -> str:
        literals.append(match[1])
        return f"@{len(literals) - 1}@"

    template, *lists = re.sub(r'"((?:[^"\\]|\\.)*)"', keep, statement).split(":")
    text = "".join(literals[int(number)] for number in re.findall(r"@(\d+)@", template))
    operands = [operand for each in lists[:2] for operand in _operands(each)]
    text = " ".join(text.replace("\\n", " ").replace("\\t", " ").split()).strip("{} ").removesuffix(";")
    text = re.sub(r"^\.reg \.pred \w+; ", "", text)

    def expression(group: str) -> str:
        return re.sub(r"%(\d+)", lambda number: f"({operands[int(number[1])]})", _TYPES.get(group, group))

    calls = []
    while text:
        matches = ((re.match(rf"{pattern}(?:; |$)", text), call) for pattern, call in _INSTRUCTIONS.items())
        found, call = next(((match, call) for match, call in matches if match), (None, ""))
        assert found is not None, f"the emulator knows no instruction {text!r}"
        calls.append(call.format(*map(expression, found.groups())))
        text = text[found.end() :]
    return "; ".join(calls)


def _operands(constraints: str) -> list[str]:
    """Return the expressions of one list of an ``asm``."""
    found = []
    for start in re.finditer(r"@\d+@\s*\(", constraints):
        found.append(constraints[start.end() : _closing(constraints, start.end() - 1)])
    return found


def _closing(text: str, opening: int) -> int:
    """Return where the parenthesis at `opening` is closed, strings aside."""
    depth, quoted = 0, False
    for at in range(opening, len(text)):
        if text[at] == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (text[at] == "(") - (text[at] == ")")
            if depth == 0:
                return at
    raise AssertionError("a parenthesis is not closed")
