"""The algorithms that a library offers for problems, and their file in a run's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tile_oracle.compiling.binary import Binary
from tile_oracle.errors import BuildError, RecordError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.kernel.named import NamedKernel, parse_named_kernel
from tile_oracle.operation import Kind, operation_named
from tile_oracle.problem import Problem

_FILE = "library_{}.json"
WORKSPACE_BYTES: Mapping[str, int] = {
    "cublaslt": 32 << 20, "hipblaslt": 64 << 20, "cudnn": 1 << 30, "miopen": 1 << 30, "torch": 0,
}  # fmt: skip
"""Library -> the most workspace of an algorithm. PyTorch gives cuBLASLt as much on a Hopper GPU; it gives
cuDNN what is free."""


@dataclass(frozen=True)
class Offer:
    """One algorithm.

    algorithm: its name within the library (`a66.stages=36.tile=20`). data: its opaque description, as
    hexadecimal digits, for the same library version. rank: its place in the library's own ranking, from 0;
    None if the library did not name it by itself.
    """

    algorithm: str
    data: str
    workspace_bytes: int
    rank: int | None = None

    def kernel(self, kind: Kind, library: str) -> NamedKernel:
        """Returns the algorithm as a kernel. Raises KernelError for a text that is no kernel's."""
        return parse_named_kernel(f"{operation_named(kind.op).kernel_prefix(kind)}{library}.{self.algorithm}")


@dataclass(frozen=True)
class ProblemOffers:
    """One problem's offers, the library's own ranking first. why_none: why there is none, else "".

    accepted: algorithms that the library accepts, those beyond --library-algorithms included. too_large: of
    them those that need more workspace than WORKSPACE_BYTES, which are not offered.
    """

    offers: tuple[Offer, ...] = ()
    why_none: str = ""
    accepted: int = 0
    too_large: int = 0

    @classmethod
    def ranked(cls, library: str, found: Iterable[tuple[str, str, int]], most: int) -> ProblemOffers:
        """Returns the first `most` of a library's ranking. found: name, data and workspace of each."""
        several = list(found)
        fitting = [one for one in several if one[2] <= WORKSPACE_BYTES[library]]
        offers = (Offer(*one, rank) for rank, one in enumerate(fitting[:most]))
        return cls.of(offers, len(several), len(several) - len(fitting))

    @classmethod
    def of(cls, offers: Iterable[Offer], accepted: int, too_large: int = 0) -> ProblemOffers:
        """Returns those of a library that knows the problem."""
        several = tuple(offers)
        why_none = "" if several else "the library has no algorithm for it"
        return cls(several, why_none, accepted, too_large)


@dataclass(frozen=True)
class Offers:
    """What a library offered on a device. of_problem: by problem id."""

    library: str
    path: str
    version: str
    device: str
    driver: str
    of_problem: dict[str, ProblemOffers] = field(default_factory=dict)

    def kernels(self, problem: Problem) -> tuple[NamedKernel, ...]:
        """Returns the candidates for a problem, the library's own ranking first."""
        found = self.of_problem.get(problem.id, ProblemOffers())
        return tuple(offer.kernel(problem.kind, self.library) for offer in found.offers)

    def ranking(self, problem: Problem) -> tuple[NamedKernel, ...]:
        """Returns the algorithms that the library itself names, its first choice first."""
        found = self.of_problem.get(problem.id, ProblemOffers()).offers
        return tuple(one.kernel(problem.kind, self.library) for one in found if one.rank is not None)

    def describe(self) -> str:
        """Returns one line for the session's header."""
        several = self.of_problem.values()
        offered = sum(len(one.offers) for one in several)
        accepted, large = (sum(getattr(one, name) for one in several) for name in ("accepted", "too_large"))
        without = [one.why_none for one in several if not one.offers]
        parts = [f"{self.library}: {self.version}, {offered:,} of {accepted:,} algorithms that it accepts"]
        if large:
            parts.append(f"{large:,} need more than {WORKSPACE_BYTES[self.library] >> 20} MiB of workspace")
        if without:
            more = f" and {len(without) - 1} more" if len(without) > 1 else ""
            parts.append(f"none for {len(without)} of {len(several)} problems ({without[0]}{more})")
        return ", ".join(parts)


def offers_file(folder: Path, library: str) -> Path:
    """Returns a run's file of a library's offers."""
    return folder / _FILE.format(library)


def save_offers(folder: Path, offers: Offers) -> None:
    """Raises RecordError when the file cannot be written."""
    path = offers_file(folder, offers.library)
    with disk_errors_as(RecordError, f"{path} cannot be written"):
        write_atomically(path, msgspec.json.format(msgspec.json.encode(offers), indent=1))


def load_offers(path: Path) -> Offers:
    """Raises RecordError for a file that cannot be read or holds something else."""
    with disk_errors_as(RecordError, f"the library's offers in {path} cannot be read"):
        content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=Offers)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{path} is no file of a library's offers: {error}") from None


@dataclass(frozen=True)
class Question:
    """visible: value for CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, "" to keep the current one. runtime:
    path of libamdhip64, "" to let the loader find it. most: offers of a problem."""

    library: str
    path: str
    visible: str
    runtime: str
    most: int
    problems: list[dict[str, Any]]


@dataclass(frozen=True)
class About:
    """The first line: the library and the device, or why they cannot be opened."""

    version: str = ""
    device: str = ""
    driver: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Answer:
    """One problem's line."""

    problem: str
    offers: ProblemOffers = field(default_factory=ProblemOffers)


SUFFIX = ".algorithm"


@dataclass(frozen=True)
class AlgorithmFile:
    """library, path, version: the library that has the algorithm. data: see vendor.offers.Offer. kernel: its
    full name."""

    library: str
    path: str
    version: str
    kernel: str
    data: str

    def binary(self, folder: Path, arch: str) -> Binary:
        """Writes the file unless it is there. Raises BuildError when it cannot be written."""
        content = msgspec.json.encode(self)
        digest = hashlib.sha256(content).hexdigest()
        path = folder / f"{digest}{SUFFIX}"
        if not path.exists():
            with disk_errors_as(BuildError, f"{path} cannot be written"):
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content)
        toolchain = f"{self.library} {self.version}"
        return Binary(path, digest, len(content), toolchain, (), arch, arch)
