"""The results of the verifier: findings, and reports on functions and texts."""

from __future__ import annotations

from dataclasses import dataclass

_BLOCKS_SHOWN = 12


@dataclass(frozen=True)
class Finding:
    """A violation of a rule on a path. line, text: the instruction that violates it. cause_line, cause: the
    instruction that is still outstanding there, or 0 and "". path: names of the blocks from the cause to the
    line, in order."""

    rule: str
    function: str
    line: int
    text: str
    what: str
    cause_line: int = 0
    cause: str = ""
    path: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Returns the finding as a few lines of text."""
        shown = [f"{self.function}, line {self.line}: {self.what} [{self.rule}]", f"    {self.text}"]
        if self.cause:
            shown.append(f"    since line {self.cause_line}: {self.cause}")
        if self.path:
            names = list(self.path)
            if len(names) > _BLOCKS_SHOWN:
                names = [*names[: _BLOCKS_SHOWN // 2], "...", *names[-_BLOCKS_SHOWN // 2 :]]
            shown.append(f"    path: {' -> '.join(names)}")
        return shown


@dataclass(frozen=True)
class FunctionReport:
    """The report on one function. not_proven: violations of rules if addresses meet that are not known.
    incomplete: code that the verifier cannot follow."""

    name: str
    instructions: int
    blocks: int
    findings: tuple[Finding, ...]
    not_proven: tuple[Finding, ...]
    incomplete: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The reports on all functions of a text."""

    target: str
    compiler: str
    functions: tuple[FunctionReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all functions, in order."""
        return tuple(one for function in self.functions for one in function.findings)

    @property
    def not_proven(self) -> tuple[Finding, ...]:
        """What is not proven of all functions, in order."""
        return tuple(one for function in self.functions for one in function.not_proven)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """`incomplete` of all functions, in order."""
        return tuple(f"{f.name}: {what}" for f in self.functions for what in f.incomplete)
