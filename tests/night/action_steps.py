"""Runs a GitHub action like a runner: the `run:` steps of an action.yml, with inputs substituted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class Step:
    name: str
    condition: str
    environment: dict[str, str]
    script: str


def steps_of(action: Path) -> list[Step]:
    """The steps of `runs:` that run something, with expressions unevaluated."""
    steps: list[dict[str, Any]] = yaml.safe_load(action.read_text())["runs"]["steps"]
    return [Step(one["name"], one.get("if", ""), one.get("env", {}), one["run"]) for one in steps]


def defaults_of(action: Path) -> dict[str, str]:
    """Input -> default."""
    inputs: dict[str, dict[str, str]] = yaml.safe_load(action.read_text())["inputs"]
    return {name: str(one.get("default", "")) for name, one in inputs.items()}


def filled(text: str, inputs: Mapping[str, str]) -> str:
    """`${{ inputs.a || inputs.b }}` replaced, as a runner does before the step."""

    def value(match: re.Match[str]) -> str:
        for part in match[1].split(" || "):
            kind, _, name = part.partition(".")
            assert kind in ("inputs", "github"), part
            if found := inputs[name] if kind == "inputs" else "":
                return found
        return ""

    return _EXPRESSION.sub(value, text)
