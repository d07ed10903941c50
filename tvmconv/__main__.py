"""Run the command, as ``python -m tvmconv`` and as the script."""

import sys


def main() -> int:
    """Run one command of this process's arguments; return its exit code."""
    try:
        from . import cli

        return cli.main()
    except KeyboardInterrupt:  # while modules are imported
        print("tvmconv: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
