"""Memory that Arrow keeps after its tables are gone."""

from __future__ import annotations


def give_back() -> None:
    """Returns unused memory of Arrow's pool to the system. Arrow's arrays hold pandas' texts, and its pool
    would keep what a sort or a join needed for a moment."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
