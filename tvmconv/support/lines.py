"""Find the line of a model's code that called a node of a graph of PyTorch, and the module."""

from __future__ import annotations

from typing import Any


def line_of(node: Any) -> str:
    """Return the file, the line and its text, or nothing if the graph does not say."""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    files = [number for number, line in enumerate(lines) if line.strip().startswith("File ")]
    return ", ".join(each.strip() for each in lines[files[-1] : files[-1] + 2]) if files else ""


def module_of(node: Any) -> str:
    """Return the path of the module that called the node; empty for the model's own code, or if the graph does not say."""
    stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
    path = str(stack[-1][0])
    return path.removeprefix("model").removeprefix(".") if "tvmconv" in str(stack[0][1]) else path
