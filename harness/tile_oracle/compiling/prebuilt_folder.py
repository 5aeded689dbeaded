"""Folders of prebuilt kernels, compiled on one machine for use on another.

    manifest.json               the kernels, what built them, the CPU features that they need
    binaries/<source hash>.so   the binaries, each stored once (.hsaco, .ptx, .cubin, .zip for GPUs)

A folder may come from anywhere, so the manifest is validated and every binary is checked against its sha256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from tile_oracle.compiling.binary import Binary
from tile_oracle.compiling.isa import Cpu, missing_features
from tile_oracle.compiling.source import DEVICE_WORK
from tile_oracle.errors import BuildError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.sealed_json import read_object, typed
from tile_oracle.files.trusted_folder import check_part_trusted, check_trusted

MANIFEST = "manifest.json"
BINARIES = "binaries"
FORMAT = "tile-oracle kernels 1"

_FIX = "make the folder with tile-oracle build"
_WHAT = "the prebuilt kernels"
_Size = Annotated[int, Meta(ge=0)]
_Line = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_BinaryName = Annotated[str, Meta(pattern=rf"^{BINARIES}/[0-9a-f]{{64}}\.(so|hsaco|ptx|cubin|zip)\Z")]


@dataclass(frozen=True)
class PrebuiltFacts:
    """Build settings shared by all kernels of a folder."""

    abi: _Size
    arch: _Line
    features: tuple[_Line, ...]
    """CPU features that the kernels need, as /proc/cpuinfo names them."""
    flags: tuple[_Line, ...]
    harness_version: _Line
    headers: _Line
    """Digest of the headers they were compiled from (Headers.digest)."""
    isa: _Line
    machine: _Line
    """x86_64, aarch64."""
    toolchain: _Line


@dataclass(frozen=True)
class PrebuiltEntry:
    """One kernel of a folder."""

    binary: _BinaryName
    """Path of the binary, relative to the folder."""
    bytes: _Size
    sha256: _Hash
    """sha256 of the binary."""
    source_hash: _Hash
    """Hash of everything that determines the binary (Binary.source_hash)."""
    source_sha256: _Hash
    """sha256 of the kernel's translation unit."""


def is_prebuilt_folder(folder: Path) -> bool:
    """Returns whether the folder holds prebuilt kernels, judged by the presence of a manifest."""
    try:
        return (folder / MANIFEST).is_file()
    except OSError:
        return False


def sha256_of_text(text: str) -> str:
    """sha256 of a translation unit, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


class PrebuiltFolder:
    """Kernels compiled on another machine.

    Raises BuildError when the manifest is missing or invalid, or other users may change the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        check_trusted(self.folder, _WHAT)
        check_part_trusted([self.folder / MANIFEST], self.folder, _WHAT)
        self.facts, self.entries = _read_manifest(self.folder)

    def check_runs_on(self, cpu: Cpu) -> None:
        """Raises BuildError, which names the missing features, when this CPU cannot run the kernels."""
        facts = self.facts
        missing = missing_features(facts.machine, facts.features, cpu)
        if missing:
            raise BuildError(
                f"{self.folder} was built for {facts.isa}: this machine ({cpu.machine}) lacks "
                f"{', '.join(missing)}; build again with an --isa that it has"
            )

    def find(self, name: str, source: str) -> Binary | None:
        """Returns the verified binary of a kernel; None when it is absent or was built from other source.

        Raises BuildError when the file is missing or differs from the manifest.
        """
        entry = self.entries.get(name)
        if entry is None or entry.source_sha256 != sha256_of_text(source):
            return None
        path = self.folder / entry.binary
        check_part_trusted((path.parent, path), self.folder, _WHAT)
        problem = _what_is_wrong_with(path, self.folder, entry)
        if problem is not None:
            raise BuildError(
                f"{path} {problem}: copy the folder again, or build it again with tile-oracle build"
            )
        facts = self.facts
        return Binary(
            path, entry.source_hash, entry.bytes, facts.toolchain, facts.flags, facts.arch, facts.isa
        )


def _what_is_wrong_with(path: Path, folder: Path, entry: PrebuiltEntry) -> str | None:
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return "points outside its folder"
        if path.stat().st_size != entry.bytes:
            return f"is not {entry.bytes} bytes long as in the manifest"
        content = path.read_bytes()
    except FileNotFoundError:
        return "is missing"
    except (OSError, RuntimeError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        return "does not have the manifest's sha256"
    return None


# ---- reading a manifest --------------------------------------------------------------------------


def _read_manifest(folder: Path) -> tuple[PrebuiltFacts, dict[str, PrebuiltEntry]]:
    path = folder / MANIFEST
    document = read_object(path, BuildError, _FIX)
    if document.get("format") != FORMAT:
        raise BuildError(f"{path} is not of the format {FORMAT!r}: {_FIX}")
    return (
        typed(document, PrebuiltFacts, path, BuildError, _FIX),
        typed(document.get("kernels"), dict[str, PrebuiltEntry], f"{path}: kernels", BuildError, _FIX),
    )


# ---- writing -------------------------------------------------------------------------------------


class PrebuiltWriter:
    """Writes a folder: `add` each kernel, then `finish`. The old manifest stays valid until `finish`.

    If the folder has the same facts, the kernels are added to it. If its facts differ, `finish` drops the old
    kernels.
    """

    def __init__(self, folder: Path, facts: PrebuiltFacts) -> None:
        """Raises BuildError for a folder that holds other files or cannot be written."""
        self.folder = folder.absolute()
        self.facts = facts
        self.replaced: int = 0
        """Number of kernels dropped because their manifest had other facts."""
        self._old: dict[str, PrebuiltEntry] = {}
        self._entries: dict[str, PrebuiltEntry] = {}
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            strangers = sorted(p.name for p in self.folder.iterdir() if p.name not in (MANIFEST, BINARIES))
        if is_prebuilt_folder(self.folder):
            old_facts, self._old = _read_manifest(self.folder)
            if old_facts == facts:
                self._entries = dict(self._old)
            else:
                self.replaced = len(self._old)
        elif strangers:
            raise BuildError(
                f"{self.folder} holds other files ({strangers[0]!r}) and no {MANIFEST}: "
                "name a new or empty folder"
            )
        with self._writing():
            (self.folder / BINARIES).mkdir(exist_ok=True)

    def add(self, kernel: str, source: str, binary: Binary) -> None:
        """Copies a kernel's binary into the folder. Raises BuildError."""
        name = f"{BINARIES}/{binary.source_hash}{binary.path.suffix}"
        with self._writing():
            content = binary.path.read_bytes()
            write_atomically(self.folder / name, content)
        digest = hashlib.sha256(content).hexdigest()
        entry = PrebuiltEntry(name, len(content), digest, binary.source_hash, sha256_of_text(source))
        self._entries[kernel] = entry

    def finish(self, without: Iterable[str] = ()) -> int:
        """Writes the manifest and removes old binaries that it does not list. Returns its number of kernels.

        `without`: names to remove from the manifest, because these kernels no longer build.
        """
        for name in without:
            self._entries.pop(name, None)
        content: dict[str, Any] = asdict(self.facts) | {"format": FORMAT}
        content["kernels"] = {name: asdict(entry) for name, entry in self._entries.items()}
        with self._writing():
            text = json.dumps(content, indent=1, sort_keys=True) + "\n"
            write_atomically(self.folder / MANIFEST, text.encode())
            named = {entry.binary for entry in self._entries.values()}
            for entry in self._old.values():
                if entry.binary not in named:
                    (self.folder / entry.binary).unlink(missing_ok=True)
        return len(self._entries.keys() - {DEVICE_WORK})

    def _writing(self) -> AbstractContextManager[None]:
        return disk_errors_as(BuildError, f"{self.folder} cannot be written")
