"""What --kernels names: sources whose kernels are compiled, libraries, and a list that narrows them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from tile_oracle.compiling.kernel_source import CK_TILE, NATIVE, TRITON
from tile_oracle.compiling.prebuilt_folder import is_prebuilt_folder
from tile_oracle.compiling.source_providers import ENTRY_POINTS
from tile_oracle.errors import BuildError
from tile_oracle.libraries.libraries import LIBRARIES, Library
from tile_oracle.pool import sources_of_list


@dataclass(frozen=True)
class GivenKernels:
    """The parts of --kernels."""

    sources: tuple[str, ...] = (NATIVE,)
    """NAME or NAME=ARGUMENT of each source whose kernels are compiled, with absolute paths. The first has the
    kernels that no other declares. None if only libraries are named."""
    libraries: tuple[tuple[Library, str], ...] = ()
    """Each with the path of its file, or ""."""
    kernel_set: str | None = None
    """The .json file that lists kernels."""
    text: str = ""
    """The same as a value of --kernels, without folders; "" for a single source."""

    def __str__(self) -> str:
        return self.text

    @property
    def first(self) -> str:
        """The first source's name."""
        return self.sources[0].partition("=")[0] if self.sources else ""

    @property
    def pool_name(self) -> str:
        """The name of the first source's pool if no kernel set is what names it, else ""."""
        return _without_folder(self.sources[0]).partition("=")[2] or TRITON if self.first == TRITON else ""

    @property
    def ck_tile(self) -> Path | None:
        """The folder of CK Tile, if it is a source."""
        name, _, argument = self.sources[0].partition("=") if self.sources else ("", "", "")
        return Path(argument) if name == CK_TILE else None

    def named(self, kernel_set: str) -> str:
        """Returns the pool in words: the kernel set, kernels in Triton, libraries."""
        more = (_without_folder(word) for word in self.sources[1:])
        names = (kernel_set, *(word.partition("=")[2] or word for word in more)) if self.sources else ()
        return "+".join((*names, *(library.name for library, _ in self.libraries)))


def read_kernels(given: str, here: Path, ck_tile: Path | None = None) -> GivenKernels:
    """Reads a value of --kernels. here: the folder of relative paths. ck_tile: that of --ck-tile, which means
    the source `ck_tile=DIR`.

    A folder of binaries is that of Triton's kernels or of a kernel set, as it says itself. Raises BuildError
    for words that mean nothing, and for parts that exclude each other.
    """
    words = [word.strip() for word in given.split(",")] if given.strip() else []
    libraries = [word for word in words if word.partition("=")[0] in LIBRARIES]
    lists = [word for word in words if word.endswith(".json")]
    sources = [_source(word, here) for word in words if word not in (*libraries, *lists)]
    if ck_tile is not None:
        sources.append(f"{CK_TILE}={ck_tile.absolute()}")
    if len(lists) > 1:
        raise BuildError(f"--kernels {given}: give one list of kernels (.json)")
    for path in lists:
        lists_native, lists_triton = sources_of_list(path)
        sources += [NATIVE] if lists_native and not any(map(_is_of_rules, sources)) else []
        sources += [TRITON] if lists_triton and not any(_name(one) == TRITON for one in sources) else []
    if not words and not sources:
        return GivenKernels()
    if len(set(sources)) < len(sources):
        raise BuildError(f"--kernels {given} names a source twice")
    sources.sort(key=lambda one: not _is_of_rules(one))
    if len(sources) > 1 and _is_of_rules(sources[1]):
        raise BuildError(
            f"--kernels: {sources[0]} and {sources[1]} both have the kernels of --kernel-set: leave one out"
        )
    alone = len(sources) == 1 and not libraries and words != [NATIVE]
    text = ",".join((*map(_without_folder, sources), *map(_name, libraries)))
    return GivenKernels(
        tuple(sources),
        tuple((LIBRARIES[_name(word)], word.partition("=")[2]) for word in libraries),
        lists[0] if lists else None,
        "" if alone else text,
    )


def _name(word: str) -> str:
    return word.partition("=")[0]


def _is_of_rules(word: str) -> bool:
    return _name(word) in (NATIVE, CK_TILE)


def _without_folder(word: str) -> str:
    """Returns the word without the folder of its file, and without a folder of binaries."""
    name, _, argument = word.partition("=")
    return f"{name}={Path(argument).name}" if argument and not _is_of_rules(word) else name


def _source(word: str, here: Path) -> str:
    """NAME or NAME=ARGUMENT of a source, with an absolute path. Raises BuildError."""
    name, equals, argument = word.partition("=")
    path = here / Path(argument if equals else word).expanduser()
    if name == NATIVE and argument and not _has_binaries_of_rules(path):
        raise BuildError(f"--kernels {NATIVE}={path}: it is no folder that tile-oracle build made of them")
    if (name in (NATIVE, TRITON) and bool(equals) == bool(argument)) or (name == CK_TILE and argument):
        return f"{name}={path}" if argument else name
    if word in ("", NATIVE, TRITON, CK_TILE) or equals:
        installed = entry_points(group=ENTRY_POINTS).names
        if name not in installed:
            known = (NATIVE, TRITON, "a Python file", "a folder of tile-oracle build", f"{CK_TILE}=DIR")
            raise BuildError(
                f"--kernels {word!r} is none of {', '.join((*known, *LIBRARIES, *sorted(installed)))}"
            )
        return word
    if _has_binaries_of_rules(path):
        return f"{NATIVE}={path}"
    is_installed = (
        path.suffix != ".py" and not path.exists() and word in entry_points(group=ENTRY_POINTS).names
    )
    return word if is_installed else f"{TRITON}={path}"


def _has_binaries_of_rules(path: Path) -> bool:
    from tile_oracle.compiling.triton.description import is_described

    return is_prebuilt_folder(path) and not is_described(path)
