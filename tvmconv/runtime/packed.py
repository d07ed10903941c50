"""`PackedFilter`: a filter packed once and used in many calls; `PackedFilters`: one for several kernels."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..problem import Problem
from ..support.files import write_whole
from .arrays import LINE_BYTES, aligned_copy

# Functions of a library whose kernel has a packed layout: (filter, packed) packs, and (data, packed[, bias], output) computes.
# `tvmconv_kernel` calls both.
PACK_SYMBOL, PACKED_SYMBOL = "tvmconv_pack", "tvmconv_packed"


class PackedFilter:
    """A filter in a kernel's layout. Made by :meth:`tvmconv.runtime.kernel.Kernel.pack`.

    It shares no memory with the plain filter. Every kernel with the same layout takes it, for example one of another batch
    size. It can be pickled, and saved to a file.

    Parameters
    ----------
    layout
        Name of the layout: equal names mean equal layouts.
    array
        The elements; copied unless they begin at a cache line.

    Attributes
    ----------
    layout : str
        The layout's name.
    array : numpy.ndarray
        The elements, beginning at a cache line.
    """

    __slots__ = ("array", "layout")

    def __init__(self, layout: str, array: npt.NDArray[np.generic]) -> None:
        self.layout = layout
        ready = array.size and array.flags.carray and array.ctypes.data % LINE_BYTES == 0
        self.array = array if ready else aligned_copy(array)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.array.nbytes

    def of(self, layout: str) -> PackedFilter:
        """Return the filter itself, if its layout is `layout`.

        Raises
        ------
        InputError
            If it has another layout.
        """
        if layout == self.layout:
            return self
        raise _other_layout(self.layout, layout)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to the file `path`, in NumPy's ``.npz`` format, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, layout=np.array(self.layout), array=self.array)
        write_whole(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PackedFilter:
        """Return the packed filter that :meth:`save` wrote to `path`.

        Raises
        ------
        InputError
            If the file cannot be read, or is something else.
        """
        try:
            with np.load(path, allow_pickle=False) as saved:
                return cls(str(saved["layout"]), saved["array"])
        except OSError as error:
            raise InputError(f"cannot read the packed filter {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path} is not a packed filter, or is damaged ({error}); write it again with PackedFilter.save"
            ) from error

    def __reduce__(self) -> tuple[type[PackedFilter], tuple[str, npt.NDArray[np.generic]]]:
        return PackedFilter, (self.layout, self.array)

    def __repr__(self) -> str:
        return f"<tvmconv.PackedFilter {self.layout} ({self.nbytes} bytes)>"


class PackedFilters:
    """A filter in each of several kernels' layouts. Made by the `pack` of a kernel that calls them.

    Every kernel with one of the layouts takes it. It can be pickled.

    Parameters
    ----------
    filters
        The packed filters by the names of their layouts.
    """

    __slots__ = ("_filters",)

    def __init__(self, filters: Mapping[str, PackedFilter]) -> None:
        self._filters = dict(filters)

    @property
    def layouts(self) -> tuple[str, ...]:
        """Names of the layouts."""
        return tuple(self._filters)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all layouts."""
        return sum(each.nbytes for each in self._filters.values())

    def of(self, layout: str) -> PackedFilter:
        """Return the packed filter of one layout.

        Raises
        ------
        InputError
            If there is none.
        """
        if layout in self._filters:
            return self._filters[layout]
        raise _other_layout(" and ".join(self._filters), layout)

    def __repr__(self) -> str:
        return f"<tvmconv.PackedFilters {', '.join(self._filters)} ({self.nbytes} bytes)>"


PACKED = (PackedFilter, PackedFilters)


def plain_layout(problem: Problem) -> str:
    """Return the name of a plain filter's layout, for kernels that read the filter in place."""
    return f"{'x'.join(map(str, problem.filter_shape))}-{problem.filter_format}-{problem.dtype}"


def _other_layout(has: str, wanted: str) -> InputError:
    return InputError(f"the filter is packed as {has}; this kernel takes {wanted}: pack it with this kernel's pack()")
