"""`tile-oracle pool list --features`: the feature schemas, and what their columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tile_oracle.features.schemas import SCHEMAS, schema_named


def features_document(name: str) -> list[dict[str, Any]]:
    """Returns the columns of a schema; without a name, the schemas. Raises ModelError."""
    if not name:
        return [
            {"schema": one.name, "operation": one.op, "columns": len(one.names)} for one in SCHEMAS.values()
        ]
    return [{"name": one.name, "meaning": one.meaning} for one in schema_named(name).features]


def features_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a document as text."""
    return [
        f"{one['schema']:<22}{one['operation']:<16}{one['columns']:>4} columns"
        if "schema" in one
        else f"{place:>3}  {one['name']:<34}  {one['meaning']}"
        for place, one in enumerate(found)
    ]
