"""What --kernels names: the kernel set, kernels written in Triton, and vendors' libraries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tile_oracle.build.kernel_source import TRITON
from tile_oracle.build.prebuilt_folder import is_prebuilt_folder
from tile_oracle.build.source_providers import kernels_option
from tile_oracle.errors import BuildError
from tile_oracle.pool import sources_of_list
from tile_oracle.vendor.libraries import NATIVE, TritonPart, library_names, read_sources

_KNOWN = f"{NATIVE}, triton, a Python file, a folder of tile-oracle build"


@dataclass(frozen=True)
class GivenKernels:
    """The parts of --kernels.

    kernel_set: a .json file, or None. build_dir: the folder with the binaries of the first source, or None.
    source: the kernels written in Triton that take the place of the kernel set (`triton`, a file or a
    folder), or ""; name: of their pool. more: further kernel sources, each NAME[=ARGUMENT]. sources: the text
    for `read_sources`; "" for a single source.
    """

    kernel_set: str | None = None
    build_dir: Path | None = None
    source: str = ""
    more: tuple[str, ...] = ()
    sources: str = ""
    name: str = ""


def read_kernels(given: str, here: Path) -> GivenKernels:
    """Reads a value of --kernels. here: the folder of relative paths.

    A folder of binaries is that of Triton's kernels or of a kernel set, as it says itself. Raises BuildError
    for parts that exclude each other.
    """
    words = [word.strip() for word in given.split(",")] if given.strip() else []
    native = False
    kernel_set: str | None = None
    folders: list[Path] = []
    triton: list[str] = []
    libraries: list[str] = []
    for word in words:
        name, equals, path = word.partition("=")
        if name in library_names():
            libraries.append(word)
        elif name == NATIVE and bool(equals) == bool(path):
            native = True
            folders += [_native_folder(here / Path(path).expanduser())] if path else []
        elif name == TRITON and bool(equals) == bool(path):
            triton.append(str(here / Path(path).expanduser()) if path else TRITON)
        elif word.endswith(".json"):
            if kernel_set is not None:
                raise BuildError(f"--kernels {given}: give one list of kernels (.json)")
            kernel_set = word
        elif not word or equals:
            raise BuildError(f"--kernels {word!r} is none of {_KNOWN}, {', '.join(library_names())}")
        elif _is_native_folder(here / Path(word).expanduser()):
            native = True
            folders.append(here / Path(word).expanduser())
        else:
            triton.append(str(here / Path(word).expanduser()))
    if kernel_set is not None:
        lists_native, lists_triton = sources_of_list(kernel_set)
        native = native or lists_native
        if lists_triton and not triton:
            triton.append(TRITON)
    if len(folders) > 1:
        raise BuildError(f"--kernels {given}: give one folder with binaries of the kernel set")
    if len(set(triton)) < len(triton):
        raise BuildError(f"--kernels {given} names a source twice")
    first = triton[0] if triton and not native else None
    more = triton if native else triton[1:]
    if not words:
        return GivenKernels()
    base = native or bool(triton)
    parts = [TritonPart("" if one == TRITON else Path(one).name).text for one in more]
    text = ",".join((*((NATIVE,) if base else ()), *parts, *libraries))
    read_sources(text)
    alone = base and not parts and not libraries
    return GivenKernels(
        kernel_set=kernel_set,
        build_dir=folders[0] if folders else _folder(first),
        source=first or "",
        more=tuple(map(kernels_option, more)),
        sources="" if alone and given.strip() != NATIVE else text,
        name="" if first is None else Path(first).name,
    )


def _is_native_folder(path: Path) -> bool:
    from tile_oracle.build.triton.description import is_described

    return is_prebuilt_folder(path) and not is_described(path)


def _native_folder(path: Path) -> Path:
    """Return the path. Raises BuildError if it is not a folder of binaries of a kernel set."""
    if not _is_native_folder(path):
        raise BuildError(f"--kernels {NATIVE}={path}: it is no folder that tile-oracle build made of them")
    return path


def _folder(triton: str | None) -> Path | None:
    path = None if triton is None or triton == TRITON else Path(triton)
    return path if path is not None and is_prebuilt_folder(path) else None
