"""`left_to_pytorch`: the share of a model's multiply-adds that PyTorch computes beside its networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .answering import Answering
from .examples import Arguments, run
from .watched import let_dynamo_forget


def left_to_pytorch(model: nn.Module, examples: Sequence[Arguments], answering: Sequence[Answering]) -> float:
    """Return PyTorch's share of the multiply-adds of a model's examples, where `answering` stands for modules of its copy."""
    shares: dict[str, float] = {}
    for each in answering:
        rows = [row for how in each.computed() for row in how.rows]
        whole, left = (sum(row.work for row in rows if row.by in by) for by in ({row.by for row in rows}, {"PyTorch"}))
        shares[each.path] = left / whole if whole else 0.0
    if not any(shares.values()) and "" in shares:
        return 0.0
    with FlopCounterMode(display=False) as counter:
        try:
            for example in examples:
                run(model, example)
        except Exception:  # noqa: BLE001 (of many classes: some operators, such as torch.cond, do not run under this mode)
            return 0.0
        finally:
            let_dynamo_forget()
    counts, name = counter.get_flop_counts(), type(model).__name__
    whole = counter.get_total_flops()
    ours = sum(
        (1 - share) * sum(counts.get(f"{name}.{path}" if path else name, {}).values()) for path, share in shares.items()
    )
    return 1 - ours / whole if whole else 0.0
