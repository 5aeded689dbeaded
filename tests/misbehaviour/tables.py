"""All families, for the tests and for `python -m tools.faults.misbehaviour`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.misbehaviour.families import GROUPS, Family
from tests.misbehaviour.precision import PRECISION


def read_families(group: str) -> tuple[Family, ...]:
    """Read the families of a group from its file, GROUP.inc.

    After `@part NAME` follow declarations for the families that name them by `with=`; after `@family NAME
    STATUSES FIELDS` a sentence and the body of `to_launch`, and behind `before: ` the family's declarations,
    behind `workspace: ` its expression.
    """
    parts: dict[str, str] = {}
    found = []
    text = Path(__file__).with_name(f"{group}.inc").read_text("utf-8")
    for block in re.split("^@", text, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        kind, name, *words = shlex.split(head)
        if kind == "part":
            parts[name] = body
            continue
        does, _, body = body.partition("\n")
        launch, *others = re.split("^(before|workspace): ", body, flags=re.MULTILINE)
        texts = dict(zip(others[::2], others[1::2], strict=True))
        fields: dict[str, Any] = {
            key: value or True for key, _, value in (one.partition("=") for one in words[1:])
        }
        shared = [parts[one] for one in fields.pop("with", "").split("+") if one]
        fields |= {"declarations": "".join([*shared, texts.pop("before", "")]), **texts}
        fields["limit_s"] = float(fields.get("limit_s", Family.limit_s))
        statuses = frozenset(words[0].split("|"))
        found.append(Family(name, group, does.removeprefix("// "), statuses, launch, **fields))
    return tuple(found)


FAMILIES: tuple[Family, ...] = tuple(
    family for group in GROUPS for family in (PRECISION if group == "precision" else read_families(group))
)
