"""Report the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

# Called with how many are done, how many there are, and what is next, or was the last.
Progress = Callable[[int, int, str], None]
