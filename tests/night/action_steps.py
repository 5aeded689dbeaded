"""Runs a GitHub action like a runner: the `run:` steps of an action.yml, with inputs substituted.

Reads the YAML of our own actions: two spaces per level, `run: |` blocks, plain and double-quoted scalars.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class Step:
    name: str
    condition: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    script: str = ""


def steps_of(action: Path) -> list[Step]:
    """The steps of `runs:`, with expressions unevaluated."""
    steps: list[Step] = []
    lines = iter(action.read_text().partition("\nruns:\n")[2].splitlines())
    block = ""
    for line in lines:
        indent, text = len(line) - len(line.lstrip()), line.strip()
        if block == "run" and (indent >= 8 or not text):
            steps[-1].script += line[8:] + "\n"
        elif block == "env" and indent >= 8:
            name, _, value = text.partition(": ")
            steps[-1].environment[name] = _scalar(value)
        elif text.startswith("- name: "):
            steps.append(Step(text.removeprefix("- name: ")))
            block = ""
        elif text in ("env:", "run: |"):
            block = text[:3]
        elif text.startswith("if: "):
            steps[-1].condition = text.removeprefix("if: ")
            block = ""
    return steps


def defaults_of(action: Path) -> dict[str, str]:
    """Input -> default."""
    inputs = action.read_text().partition("\ninputs:\n")[2].partition("outputs:\n")[0]
    found = re.findall(
        r"^  ([a-z-]+):\n(?:    (?!default).*\n)*(?:    default: (.*)\n)?", inputs, re.MULTILINE
    )
    return {name: _scalar(default) for name, default in found}


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


def _scalar(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
