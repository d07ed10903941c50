"""`tvmconv.explain`: the kernels for a problem, also in bundles that this machine cannot run."""

from __future__ import annotations

import os

from ..errors import InputError
from ..problem import Problem
from ..signature import parse_signature
from .bundle import read_bundle
from .explain import Explanation
from .explain import explain as explain_bundles
from .selection import tables


def explain(problem: Problem | str, *bundles: str | os.PathLike[str], split_batch: bool = False) -> Explanation:
    """Explain which kernel of some bundles serves a problem, or which is the nearest and how to add the missing one.

    Parameters
    ----------
    problem
        The problem, or its signature.
    bundles
        The folders of one or several bundles.
    split_batch
        Whether to explain them as loaded with ``split_batch=True``.

    Returns
    -------
    Explanation
        For the CPU, and for each GPU if a bundle has kernels for GPUs.

    Raises
    ------
    InputError
        If there is no bundle.
    SignatureError
        If `problem` is text and no signature.
    BundleError
        If a folder is no bundle, or its manifest is damaged.
    """
    if not bundles:
        raise InputError("no bundle was given; give the folder of at least one")
    opened = [read_bundle(path) for path in bundles]
    asked = parse_signature(problem) if isinstance(problem, str) else problem
    return explain_bundles(asked, opened, tables(opened), split_batch)
