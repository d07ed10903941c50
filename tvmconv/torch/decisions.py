"""`Decision`: a graph records one path through a model's code, and checks where the code branches on shapes."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import InputError


class Decision(nn.Module):  # type: ignore[misc]
    """Guards a branch of the model's code on a number: only the example's branch is accepted.

    Parameters
    ----------
    name
        What is decided by.
    expected
        True or False for a condition, else a number of axes, or of the parts that a tensor was split into.
    error
        What the model's code says to the other decision, None if it goes on.
    """

    def __init__(self, name: str, expected: int, error: str | None) -> None:
        super().__init__()
        self.name, self.expected, self.error = name, expected, error

    def forward(self, value: Any) -> None:
        """Raise InputError if the decision for a value is another one than the example's."""
        if isinstance(value, (tuple, list)):
            value = len(value)
        if type(self.expected)(value) == self.expected:
            return
        if self.error is not None:
            raise InputError(f"{self.error} ({self.name} is {value})")
        raise InputError(
            f"the model's code takes another way than for the example that it was optimized by: {self.name} is {value}; give"
            " tvmconv.torch.optimize an example of each, in a list"
        )
