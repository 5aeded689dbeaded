"""`tile-oracle pool list --verify`: runs the verifier on the machine code of a pool, or on a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.disassembly import read_assembly
from tile_oracle.errors import BuildError
from tile_oracle.kernel import Kernel
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.text_table import first_few
from tile_oracle.verify.findings import Report
from tile_oracle.verify.rules import RULES
from tile_oracle.verify.verifier import verify_parsed

NOT_PROVEN = 3
"""Exit status where nothing is found, but not everything is proven."""
_KERNELS_SHOWN = 10
_FINDINGS_SHOWN = 3


@dataclass(frozen=True)
class Verified:
    """A kernel's report, or the reason why there is none."""

    name: str
    report: Report | None
    why_not: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether all code was analysed, and all waits are proven to be there."""
        report = self.report
        return report is not None and not (report.findings or report.not_proven or report.incomplete)


def verified_status(found: Sequence[Verified]) -> int:
    """Returns the exit status: 1 with findings or code that could not be followed, NOT_PROVEN, or 0."""
    bad = [one for one in found if not one.is_clean]
    undecided = [one.report and not (one.report.findings or one.report.incomplete) for one in bad]
    return 0 if not bad else NOT_PROVEN if all(undecided) else 1


def verify_kernel(builder: Builder, kernel: Kernel) -> Verified:
    """Verifies a kernel that was built."""
    try:
        return Verified(kernel.name, builder.report(kernel))
    except BuildError as error:
        return Verified(kernel.name, None, str(error))


def verify_file(path: Path) -> Verified:
    """Returns the report on an assembly file or a code object. Raises BuildError for any other file."""
    return Verified(str(path), verify_parsed(read_assembly(path)))


def verified_lines(found: Sequence[Verified], details: bool = False) -> list[str]:
    """Findings of the first kernels that have any (details: all findings of all kernels), and a count."""
    lines: list[str] = []
    offenders = [one for one in found if not one.is_clean]
    for one in offenders if details else offenders[:_KERNELS_SHOWN]:
        lines += [one.name, *(f"  {line}" for line in _about(one, details))]
    if not details and len(offenders) > _KERNELS_SHOWN:
        lines.append(f"and {len(offenders) - _KERNELS_SHOWN:,} more kernels with findings or not proven")
    reports = [one.report for one in found if one.report is not None]
    broken = Counter(rule for report in reports for rule in {finding.rule for finding in report.findings})
    lines += [f"{number:,} of {rule}: {RULES[rule]}" for rule, number in broken.most_common()]
    counts = {
        "not proven": sum(bool(one.not_proven and not one.findings) for one in reports),
        "not followed to the end": sum(bool(one.incomplete) for one in reports),
        "could not be read": len(found) - len(reports),
    }
    further = (f", {number:,} {what}" for what, number in counts.items() if number)
    with_findings = sum(bool(one.findings) for one in reports)
    said = f"{count(len(found), 'kernel')} verified, {with_findings:,} with findings"
    return [*lines, said + "".join(further)]


def verified_document(found: Sequence[Verified]) -> list[dict[str, object]]:
    """Returns the findings of each kernel or file, and what is not proven of it, for --json."""
    parts = ("findings", "not_proven", "incomplete")
    return [
        {
            **{"name": one.name, "clean": one.is_clean, "why_not": one.why_not or None},
            **{name: getattr(one.report, name) if one.report else () for name in parts},
        }
        for one in found
    ]


def _about(one: Verified, details: bool) -> list[str]:
    if one.report is None:
        return [one.why_not]
    findings = one.report.findings
    shown = len(findings) if details else _FINDINGS_SHOWN
    lines = first_few(["\n  ".join(finding.lines()) for finding in findings], shown)
    open_ = ["not proven: " + "\n  ".join(finding.lines()) for finding in one.report.not_proven]
    lines += first_few(open_, len(open_) if details else 1, "more not proven")
    return [*lines, *one.report.incomplete]


def file_lines(one: Verified) -> list[str]:
    """Returns the full report on a file: its functions, every finding."""
    assert one.report is not None
    lines = []
    for function in one.report.functions:
        lines.append(f"{function.name}: {function.instructions:,} instructions in {function.blocks:,} blocks")
    return [*lines, *verified_lines([one], details=True)]
