"""The products for which cuBLASLt's first choice loses time, and the algorithm that wins it back.

    python losses.py RUN [PERCENT]

RUN is the folder of a session, PERCENT the loss from which a product is named (5).
"""

import sys
from pathlib import Path

import pandas as pd


def losses(run: Path, percent: float) -> pd.DataFrame:
    """One row a product, the largest loss first."""
    chosen = pd.read_parquet(run / "selection.parquet")
    lost = 100 * (1 - chosen["efficiency"])
    table = pd.DataFrame(
        {
            "product": chosen["problem"],
            "loses_percent": lost.round(1),
            "first_choice": chosen["pick_kernel"],
            "better": chosen["oracle_kernel"],
        }
    )
    return table[lost > percent].sort_values("loses_percent", ascending=False)


if __name__ == "__main__":
    found = losses(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 5.0)
    print(found.to_string(index=False) if len(found) else "The first choice is never that far from the best.")
