"""`PackedFilter`: a filter as some kernel wants it, made once and used in many calls."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .arrays import LINE_BYTES, aligned_copy
from .errors import InputError

# Functions of a library whose kernel lays the filter out anew: (filter, packed), and the kernel after that,
# (data, packed[, bias], output). `tvmconv_kernel` calls both.
PACK_SYMBOL, PACKED_SYMBOL = "tvmconv_pack", "tvmconv_packed"


class PackedFilter:
    """A filter in the layout that a kernel computes with. Made by :meth:`tvmconv.kernel.Kernel.pack`.

    It shares no memory with the filter it was made from. It may be given to every kernel that wants the same layout,
    for example of another batch size. It can be pickled, and saved to a file.

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
        """Bytes of memory it takes."""
        return self.array.nbytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to the file `path`, in NumPy's ``.npz`` format, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, layout=np.array(self.layout), array=self.array)
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content.getvalue())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PackedFilter:
        """Return what :meth:`save` wrote to `path`.

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
                f"{path} is no packed filter, or damaged ({error}); write it again with PackedFilter.save"
            ) from error

    def __reduce__(self) -> tuple[type[PackedFilter], tuple[str, npt.NDArray[np.generic]]]:
        return PackedFilter, (self.layout, self.array)

    def __repr__(self) -> str:
        return f"<tvmconv.PackedFilter {self.layout} ({self.nbytes} bytes)>"
