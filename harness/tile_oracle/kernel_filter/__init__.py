"""Kernel filters such as `tile_n >= 128 and pipeline == 'compv5'`: a small language over a kernel's fields.

    filter      disjunction, which must be boolean
    disjunction conjunction { "or" conjunction }
    conjunction negation { "and" negation }
    negation    "not" negation | comparison
    comparison  sum { ("<" | "<=" | ">" | ">=" | "==" | "!=" | "in" | "not" "in") sum }
    sum         product { ("+" | "-") product }
    product     signed { ("*" | "//" | "%") signed }
    signed      "-" signed | atom
    atom        integer | 'text' | "text" | True | False | field | "(" disjunction ")" | list
    list        "(" disjunction "," { disjunction "," } ")" | "[" disjunction { "," disjunction } "]"

The semantics are Python's, including chained comparisons and the order of evaluation. The types are stricter:
integers, strings and booleans do not mix, ordering and arithmetic are for integers only, and a list is valid
only after `in` (`in` with a string field tests for a substring). Types are checked while parsing, and an
error names the column, so a wrong filter cannot silently match nothing.

`syntax` has Python's parser build the syntax tree. `meaning` accepts only the nodes of the grammar above and
turns them into functions of a kernel. No filter is compiled or evaluated as Python code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tile_oracle.kernel import Kernel
from tile_oracle.kernel_filter.meaning import filter_fields, meaning
from tile_oracle.kernel_filter.syntax import MAX_CHARACTERS, MAX_DEPTH, MAX_TOKENS

__all__ = ["MAX_CHARACTERS", "MAX_DEPTH", "MAX_TOKENS", "KernelFilter", "filter_fields"]


@dataclass(frozen=True)
class KernelFilter:
    """A filter, parsed and checked on construction. Raises RuleError with the column of the error.

    Filters with equal texts are equal. They are hashable and can be pickled.
    """

    text: str
    _value: Callable[[Kernel], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_value", meaning(self.text))

    def matches(self, kernel: Kernel) -> bool:
        """Whether the filter accepts the kernel. Raises RuleError if it divides by zero for this kernel, or
        uses a field that kernels of this operation do not have."""
        return bool(self._value(kernel))

    def __reduce__(self) -> tuple[type[KernelFilter], tuple[str]]:
        return (KernelFilter, (self.text,))
