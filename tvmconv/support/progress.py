"""Report the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

# Called with the number done, the total, and the name of the next, or of the last.
Progress = Callable[[int, int, str], None]
