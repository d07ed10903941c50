"""Run the command as ``python -m tvmconv``."""

import sys

from .cli import main

sys.exit(main())
