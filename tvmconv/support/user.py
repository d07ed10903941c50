"""Folder for a user's measurements on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import TvmconvError


def user_folder() -> Path:
    """Return the folder of the user's records, by the XDG convention; TvmconvError if the user has no home."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(data):  # the convention says to ignore another
        return Path(data) / "tvmconv"
    try:
        return Path.home().absolute() / ".local" / "share" / "tvmconv"
    except RuntimeError:
        raise TvmconvError("this user has no home folder for tuning records; set HOME or XDG_DATA_HOME") from None
