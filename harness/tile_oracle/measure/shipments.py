"""Binaries on their way between machines: from one cache into another, under the same content hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tile_oracle.compiling.binary import Binary
from tile_oracle.compiling.builder import Builder
from tile_oracle.kernel import Kernel
from tile_oracle.measure.assignments import Shipment


def shipment_of(binary: Binary) -> Shipment:
    """Returns a binary with its provenance. Raises OSError."""
    return Shipment(binary.source_hash, binary.path.read_bytes(), *_provenance(binary))


def keep(builder: Builder, kernel: Kernel, shipment: Shipment) -> None:
    """Puts a binary that another machine has built into this machine's cache, if it is the one that would be
    built here. Raises BuildError and OSError."""
    key, cache = builder.source_hash(kernel), builder.cache
    if not key or shipment.key != key or cache.find(key) is not None:
        return  # another instruction set or toolchain, or it is there
    digest = shipment.facts.get("sha256")
    if digest is not None and digest != hashlib.sha256(shipment.content).hexdigest():
        return
    lock = cache.try_lock(key)
    if lock is None:
        return
    with lock, cache.work_folder() as work:
        path = work / "shipped"
        path.write_bytes(shipment.content)
        cache.add(key, path, shipment.source, shipment.facts)


def _provenance(binary: Binary) -> tuple[str, Mapping[str, Any]]:
    """Returns the translation unit and the facts of a binary's cache entry; of a prebuilt binary what is
    known."""
    try:
        facts = json.loads((binary.path.parent / "entry.json").read_text("utf-8"))
        (unit,) = (p for p in binary.path.parent.iterdir() if p.suffix in (".cpp", ".hip", ".cu", ".py"))
        return unit.read_text("utf-8"), facts
    except (OSError, ValueError):
        return "", {"toolchain": binary.toolchain, "flags": list(binary.flags)}
