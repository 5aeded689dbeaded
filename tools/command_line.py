"""Entry point shared by the tools: `python -m tools.NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from tile_oracle.errors import HarnessError


def run_tool(
    name: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    words: Sequence[str] | None,
) -> int:
    """Runs a tool; returns its exit status. A HarnessError becomes one line on stderr and status 2."""
    program = f"python -m tools.{name}"
    parser = argparse.ArgumentParser(prog=program)
    add_arguments(parser)
    try:
        return run(parser.parse_args(words))
    except HarnessError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
