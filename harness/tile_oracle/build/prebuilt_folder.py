"""Folders of prebuilt kernels, compiled on one machine for use on another.

    manifest.json               the kernels, what built them, the CPU features that they need
    binaries/<source hash>.so   the binaries, each stored once (.hsaco, .ptx, .cubin, .zip for GPUs)

A folder may come from anywhere, so the manifest is validated and every binary is checked against its sha256.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tile_oracle.build.binary import Binary
from tile_oracle.build.isa import Cpu, missing_features
from tile_oracle.build.source import DEVICE_WORK
from tile_oracle.errors import BuildError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.trusted_folder import check_part_trusted, check_trusted

MANIFEST = "manifest.json"
BINARIES = "binaries"
FORMAT = "tile-oracle kernels 1"

_MOST_MANIFEST_BYTES = 256 << 20
_WHAT = "the prebuilt kernels"
_HASH = re.compile(r"[0-9a-f]{64}")
_BINARY_NAME = re.compile(r"binaries/[0-9a-f]{64}\.(?:so|hsaco|ptx|cubin|zip)")


@dataclass(frozen=True)
class PrebuiltFacts:
    """Build settings shared by all kernels of a folder."""

    abi: int
    arch: str
    features: tuple[str, ...]
    """CPU features that the kernels need, as /proc/cpuinfo names them."""
    flags: tuple[str, ...]
    harness_version: str
    headers: str
    """Digest of the headers they were compiled from (Headers.digest)."""
    isa: str
    machine: str
    """x86_64, aarch64."""
    toolchain: str


@dataclass(frozen=True)
class PrebuiltEntry:
    """One kernel of a folder."""

    binary: str
    """Path of the binary, relative to the folder."""
    bytes: int
    sha256: str
    """sha256 of the binary."""
    source_hash: str
    """Hash of everything that determines the binary (Binary.source_hash)."""
    source_sha256: str
    """sha256 of the kernel's translation unit."""


def is_prebuilt_folder(folder: Path) -> bool:
    """Whether the folder holds prebuilt kernels, judged by the presence of a manifest."""
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
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise BuildError(f"{folder} holds no {MANIFEST}: make the folder with tile-oracle build") from None
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from None
    try:
        if len(content) > _MOST_MANIFEST_BYTES:
            raise _ManifestError(f"longer than {_MOST_MANIFEST_BYTES >> 20} MiB")
        return _parse_manifest(content)
    except _ManifestError as error:
        raise BuildError(
            f"{path} is not a manifest ({error}): make the folder with tile-oracle build"
        ) from None


class _ManifestError(ValueError):
    """An invalid manifest."""


def _parse_manifest(content: bytes) -> tuple[PrebuiltFacts, dict[str, PrebuiltEntry]]:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise _ManifestError("not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _ManifestError(f"its format is not {FORMAT!r}")
    facts = PrebuiltFacts(
        abi=_number(data, "abi"),
        arch=_word(data, "arch"),
        features=_words(data, "features"),
        flags=_words(data, "flags"),
        harness_version=_word(data, "harness_version"),
        headers=_word(data, "headers"),
        isa=_word(data, "isa"),
        machine=_word(data, "machine"),
        toolchain=_word(data, "toolchain"),
    )
    kernels = data.get("kernels")
    if not isinstance(kernels, dict):
        raise _ManifestError("kernels is not a mapping")
    return facts, {name: _entry(name, value) for name, value in kernels.items()}


def _entry(name: str, data: object) -> PrebuiltEntry:
    if not isinstance(data, dict):
        raise _ManifestError(f"kernel {name[:120]!r} is not a mapping")
    try:
        return PrebuiltEntry(
            binary=_matching(data, "binary", _BINARY_NAME),
            bytes=_number(data, "bytes"),
            sha256=_matching(data, "sha256", _HASH),
            source_hash=_matching(data, "source_hash", _HASH),
            source_sha256=_matching(data, "source_sha256", _HASH),
        )
    except _ManifestError as error:
        raise _ManifestError(f"kernel {name[:120]!r}: {error}") from None


def _number(data: Mapping[str, object], name: str) -> int:
    value = data.get(name)
    if type(value) is not int or value < 0:
        raise _ManifestError(f"{name} is not a number")
    return value


def _word(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        raise _ManifestError(f"{name} is not a line of text")
    return value


def _words(data: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = data.get(name)
    if not isinstance(value, list):
        raise _ManifestError(f"{name} is not a list")
    return tuple(_word({name: item}, name) for item in value)


def _matching(data: Mapping[str, object], name: str, pattern: re.Pattern[str]) -> str:
    value = _word(data, name)
    if not pattern.fullmatch(value):
        raise _ManifestError(f"{name} {value[:120]!r} is not of the form {pattern.pattern}")
    return value


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
        if not _BINARY_NAME.fullmatch(name):
            raise BuildError(f"{binary.source_hash!r} is not a source hash")
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

    def _writing(self) -> _Writing:
        return _Writing(
            lambda error: BuildError(f"{self.folder} cannot be written: {error.strerror or error}")
        )


class _Writing:
    """Turns an OSError inside a with block into a BuildError."""

    def __init__(self, translate: Callable[[OSError], BuildError]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._translate(error) from None
