"""A network's library of either format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..runtime.networks.base import CompiledNetwork


def load_network(path: str, bundle: str | None = None) -> CompiledNetwork:
    """Return the network in a library that ``tvmconv compile`` wrote; what `bundle` has, one of TVM's virtual machine calls."""
    from ..runtime.networks.file import RELAX, is_network
    from ..runtime.networks.network import Network

    if is_network(Path(path), RELAX):
        from ..network.virtual_machine import load as load_relax

        return load_relax(path, bundle)
    network = Network(path)
    if bundle is not None:
        raise InputError(f"{path} calls no kernel of a bundle, its own are part of it; leave {bundle} out")
    return network
