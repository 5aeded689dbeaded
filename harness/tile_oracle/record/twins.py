"""How records mark a copy: a pair that was not measured itself, because its kernel is another one's twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_TWIN_OF = "twin of "


def twin_detail(measured: str, detail: str) -> str:
    """Returns the column `detail` of a copy: the name of the measured kernel, then that kernel's own
    detail."""
    return f"{_TWIN_OF}{measured}; {detail}" if detail else f"{_TWIN_OF}{measured}"


def measured_twin(detail: str | None) -> str | None:
    """Returns the name of the kernel that was measured for this pair; None for a pair that was measured
    itself."""
    if not detail or not detail.startswith(_TWIN_OF):
        return None
    return detail.removeprefix(_TWIN_OF).partition(";")[0]


def measured_kernels(records: pd.DataFrame) -> pd.Series:
    """For each row, the name of the kernel that was measured: another one than `kernel` in copies. Equal
    names are one object."""
    import pandas as pd

    codes, kernels = pd.factorize(records["kernel"])
    names = np.array([*map(str, kernels), None], dtype=object)[codes]
    if "detail" in records:
        details, texts = pd.factorize(records["detail"])
        twins = [*map(measured_twin, texts), None]
        is_copy = np.array([name is not None for name in twins])[details]
        if is_copy.any():
            names[is_copy] = np.array(twins, dtype=object)[details[is_copy]]
    return pd.Series(names, index=records.index, dtype=object)


def is_measured(records: pd.DataFrame) -> pd.Series:
    """For each row, whether it was measured itself: not in copies."""
    import pandas as pd

    own = pd.Series(True, index=records.index)
    if "detail" in records:
        details, texts = pd.factorize(records["detail"])
        twins = np.array([*(measured_twin(text) is not None for text in texts), False], dtype=bool)
        marked = twins[details]
        if marked.any():
            own[marked] = measured_kernels(records[marked]) == records.loc[marked, "kernel"].astype(object)
    return own
