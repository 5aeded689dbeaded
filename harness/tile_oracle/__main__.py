"""`python -m tile_oracle`: the command line."""

from __future__ import annotations

import sys

from tile_oracle.cli import main

if __name__ == "__main__":
    sys.exit(main())
