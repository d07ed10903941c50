"""`count_products`: an estimate of an operator's multiply-adds by its shapes."""

from __future__ import annotations

from math import prod

from torch import fx

from .flat import extent_of

_PRODUCTS = ("addmm", "baddbmm", "bmm", "linear", "matmul", "mm")


def count_products(node: fx.Node) -> int:
    """Return an estimate of the multiply-adds of a convolution, a product or an attention; 0 for other nodes."""
    name = getattr(node.target, "__name__", "").partition(".")[0]
    shapes = [
        tuple(map(extent_of, each.meta["val"].shape))
        for each in node.all_input_nodes
        if hasattr(each.meta.get("val"), "shape")
    ]
    made = [*map(extent_of, getattr(node.meta.get("val"), "shape", ()))]
    if name == "convolution":
        places = shapes[0] if node.args[6] else made  # transposed: the input's
        return int(prod(places) * prod(shapes[1][1:]))
    if name in _PRODUCTS:
        left = shapes[-2] if name in ("addmm", "baddbmm") and len(shapes) > 2 else shapes[0]
        return int(prod(made) * left[-1])
    if name == "scaled_dot_product_attention":
        return int(2 * prod(shapes[0]) * shapes[min(1, len(shapes) - 1)][-2])
    return 0
