"""Parts of a descriptor that are imported when they are first needed: a plain pytest run imports none."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def part(place: str, package: str | None = None) -> Callable[[], Any]:
    """Returns a function that imports a part and returns it.

    place: `package.module` for a module, `package.module:name` for an object in it; relative to `package` if
    it begins with a dot.
    """
    module, _, name = place.partition(":")

    def load() -> Any:
        found = import_module(module, package)
        return getattr(found, name) if name else found

    return load


def deferred(place: str, package: str | None = None) -> Callable[..., Any]:
    """Returns a function that calls the function at a place, as for `part`, and imports it only then."""
    load = part(place, package)
    return lambda *given: load()(*given)
