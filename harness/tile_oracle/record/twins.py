"""How records mark a copy: a pair that was not measured itself, because its kernel is another one's twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_TWIN_OF = "twin of "


def twin_detail(measured: str, detail: str) -> str:
    """The column `detail` of a copy: the name of the measured kernel, then that kernel's own detail."""
    return f"{_TWIN_OF}{measured}; {detail}" if detail else f"{_TWIN_OF}{measured}"


def measured_twin(detail: str | None) -> str | None:
    """The name of the kernel that was measured for this pair; None for a pair that was measured itself."""
    if not detail or not detail.startswith(_TWIN_OF):
        return None
    return detail.removeprefix(_TWIN_OF).partition(";")[0]


def measured_kernels(records: pd.DataFrame) -> pd.Series:
    """For each row, the name of the kernel that was measured: another one than `kernel` in copies."""
    names = records["kernel"].astype(object)
    if "detail" not in records:
        return names
    found = {
        detail: measured_twin(detail) for detail in records["detail"].unique() if isinstance(detail, str)
    }
    found = {detail: name for detail, name in found.items() if name is not None}
    return records["detail"].astype(object).map(found).fillna(names) if found else names
