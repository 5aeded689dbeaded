"""Verifies machine code as it is built, and stores the reports beside the binaries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import msgspec

from tile_oracle.compiling.binary import Binary, BuildResult
from tile_oracle.compiling.cache import CacheEntry
from tile_oracle.compiling.gpu_toolchain import ASSEMBLY
from tile_oracle.compiling.isa import AMD_ARCHS
from tile_oracle.errors import BuildError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.kernel import Kernel
from tile_oracle.verify.findings import Report

NOTE, REFUSE = "note", "refuse"
"""What a builder does with findings: store them, or refuse the kernel."""

VERIFIABLE = AMD_ARCHS
"""Architectures whose machine code can be verified."""


class CodeVerifier:
    """Verifies each binary that is built, unless `mode` is ""."""

    def __init__(self, arch: str, mode: str) -> None:
        """Raises BuildError for an architecture whose code cannot be verified."""
        if mode and arch not in VERIFIABLE:
            raise BuildError(f"kernels for {arch} cannot be verified: only {', '.join(VERIFIABLE)}")
        self._arch, self._mode = arch, mode

    def knows(self, entry: CacheEntry) -> bool:
        """Returns whether a cache entry needs no further verification."""
        return not self._mode or read_verdict(entry.path.parent) is not None

    def look(self, work: Path, made: CacheEntry) -> None:
        """Verifies the assembly in a kernel's work folder, if there is one."""
        if self._mode and (work / ASSEMBLY).is_file():
            text = (work / ASSEMBLY).read_text("utf-8", "replace")
            keep_verdict(made.path.parent, _verified(text))

    def judged(self, result: BuildResult, assembly: Callable[[Kernel], str]) -> BuildResult:
        """Returns the result; a build_error when the kernel has findings and the mode is REFUSE."""
        if not self._mode or result.binary is None:
            return result
        findings = self.report(result.kernel, result.binary, assembly).findings
        if self._mode != REFUSE or not findings:
            return result
        log = "\n".join(["error: the machine code lacks required waits", *findings[0].lines()])
        made_by = result.binary.toolchain
        return replace(result, status="build_error", binary=None, log=log, failed_with=made_by)

    def report(self, kernel: Kernel, binary: Binary, assembly: Callable[[Kernel], str]) -> Report:
        """Returns the report stored beside the binary. If there is none, verifies `assembly(kernel)`."""
        kept = read_verdict(binary.path.parent)
        if kept is None:
            kept = _verified(assembly(kernel))
            keep_verdict(binary.path.parent, kept)
        return kept


def _verified(assembly: str) -> Report:
    from tile_oracle.verify.verifier import verify_assembly  # most sessions verify nothing

    return verify_assembly(assembly)


_FILE = "verified.json"


@lru_cache(maxsize=1)
def verifier_digest() -> str:
    """sha256 over the verifier's modules."""
    total = hashlib.sha256()
    for path in sorted((Path(__file__).parents[1] / "verify").glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


class _Kept(msgspec.Struct):
    verifier: str
    report: Report


def keep_verdict(folder: Path, report: Report) -> None:
    """Writes a report into a binary's folder; does nothing when the folder is read-only."""
    with suppress(OSError):
        write_atomically(folder / _FILE, msgspec.json.encode(_Kept(verifier_digest(), report)))


def read_verdict(folder: Path) -> Report | None:
    """Returns the report in a binary's folder; None when there is none from this version of the verifier."""
    try:
        kept = msgspec.json.decode((folder / _FILE).read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return kept.report if kept.verifier == verifier_digest() else None
