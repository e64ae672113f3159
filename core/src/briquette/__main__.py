"""``python -m briquette``: the `briquette` command, where the distribution that brings it is installed."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points


def main() -> None:
    """Run the command; without it, say what to install and exit with 5."""
    for script in entry_points(group="console_scripts", name="briquette"):
        script.load()()
        return
    print("error: the command line is a distribution of its own; run: pip install briquette", file=sys.stderr)
    sys.exit(5)


if __name__ == "__main__":
    main()
