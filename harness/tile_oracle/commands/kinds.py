"""The kinds of problems that a command is about: --op, --direction, --layout, --dtype, --ndim."""

from __future__ import annotations

import argparse

from tile_oracle.errors import RuleError
from tile_oracle.operation import Operation, operation_named, operation_names
from tile_oracle.problem import Kind

_FIELDS = {
    "direction": "of a convolution: forward, bwd_data, bwd_weight",
    "layout": "of a GEMM: rcr, rrr, ccr, crr",
    "dtype": "data type: bf16, fp16, fp32, of GEMM also fp8",
    "ndim": "rank of a convolution: 2, 3",
}
KINDS = "\n".join(
    (
        f"--op OP  operation: {', '.join(operation_names())} (default: {operation_names()[0]})",
        *(f"--{name} WORDS  {text} (several: with commas)" for name, text in _FIELDS.items()),
    )
)
"""The arguments that name kinds of problems, for an `argument_table`."""


def asked_words(args: argparse.Namespace) -> dict[str, list[str]]:
    """Field of a kind -> the words that are given for it."""
    given = {name: getattr(args, name) for name in _FIELDS}
    return {
        name: [word.strip() for word in text.split(",")] for name, text in given.items() if text is not None
    }


def kinds_of(args: argparse.Namespace, *, defaults: bool) -> list[Kind]:
    """Returns the kinds of problems that the arguments name, those of one data type together, then of one
    rank.

    defaults: a field without words has its default value; else all of its values. Raises RuleError.
    """
    operation = operation_named(args.op or operation_names()[0])
    asked = asked_words(args)
    for name in asked:
        if name not in operation.kind_fields:
            raise RuleError(f"--{name} is not for --op {operation.name}: leave it out")
    only, usual = {}, []
    for name, values in operation.kind_fields.items():
        known = {str(value): value for value in values}
        of_field = asked.get(name) or [*known]
        if unknown := [word for word in of_field if word not in known]:
            raise RuleError(f"--{name} {unknown[0]!r} is not one of {', '.join(known)}")
        only[name] = [known[word] for word in dict.fromkeys(of_field)]
        if defaults and name not in asked:
            usual.append((name, known[operation.defaults.get(name, str(values[0]))]))
    kinds = operation.kinds(only)
    for name, value in usual:
        kinds = [kind for kind in kinds if kind.words[name] == value] or kinds
    return sorted(kinds, key=lambda kind: _place(operation, kind))


def _place(operation: Operation, kind: Kind) -> list[int]:
    places = {name: list(operation.kind_fields[name]).index(value) for name, value in kind.fields}
    return [places.pop("dtype"), *reversed(places.values())]
