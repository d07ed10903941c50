"""Base of the readers of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .model import Skipped, SourceNode
from .shapes import Bucket, Dims, Input, bind


@dataclass(frozen=True)
class Reading:
    """Options of reading a source.

    Attributes
    ----------
    dtype
        Replaces types without kernels; other types stay the model's.
    shapes
        ``"infer"``: by the inference of the model's library. ``"run"``: by running the model once. ``"auto"``: by
        running it where the inference fails.
    inputs
        Inputs for that run by name, arrays or a number that fills the input; the other inputs are random.
    with_constants
        Whether nodes get the model's constant filters and biases.
    fuse
        Whether operations after a convolution become its epilogue.
    """

    dtype: str | None = None
    shapes: str = "auto"
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    with_constants: bool = False
    fuse: bool = True


class Reader(ABC):
    """Reads a source, once for each bucket of shapes."""

    def __init__(self, source: str, how: Reading) -> None:
        self._source = source
        self._dtype = how.dtype
        self._shapes = how.shapes
        self._given = how.inputs
        self._with_constants = how.with_constants
        self._fuse = how.fuse

    @abstractmethod
    def read(self, bucket: Bucket) -> tuple[list[SourceNode], list[Skipped]]:
        """Return the convolutions at the shapes of a bucket, and the skipped ones.

        Raises
        ------
        SourceError
            If the bucket does not fit the source, or the source cannot be read, or not be run although that was requested.
        """

    def _bound(self, inputs: Sequence[Input], bucket: Bucket) -> dict[str, Dims | None]:
        """Return the inputs' shapes with the dimensions of a bucket, or of given arrays, filled in.

        Raises
        ------
        SourceError
            If they do not fit the source.
        """
        shapes = {**{name: array.shape for name, array in self._given.items() if array.ndim}, **bucket.shapes}
        return bind(inputs, replace(bucket, shapes=shapes), self._source)
