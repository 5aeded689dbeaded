"""What a user's file of kernels reads: modules, data files, environment variables. Only for child processes.

All of it decides what the kernels are, so it belongs to their identity and travels to the processes that
compile them. What is installed stays where it is: Python's library, Triton, this package, other packages.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from tile_oracle.errors import HarnessError

_PACKAGE = Path(__file__).resolve().parents[2]
_DATA = _PACKAGE / "_data"
_LIBRARY = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
"""Asked for here: of Python 3.13, sysconfig may read the environment, which is watched later."""
_FOLDERS = frozenset(("site-packages", "dist-packages"))


@cache
def package_of(file: str) -> Path | None:
    """Returns the installed package that a file belongs to, as its folder or only file; None for any other
    file."""
    path = Path(file).resolve()
    for place in (_DATA, _PACKAGE, *filter(None, [_triton()]), *_LIBRARY):
        if path.is_relative_to(place) and not _FOLDERS.intersection(path.relative_to(place).parts):
            return place
    ends = [number for number, part in enumerate(path.parts) if part in _FOLDERS]
    return Path(*path.parts[: ends[-1] + 2]) if ends else None


def _triton() -> Path | None:
    file = getattr(sys.modules.get("triton"), "__file__", None)
    return Path(file).resolve().parent if file else None


class UserReads:
    """Records what the files of one user read, from the time it is made until the process ends.

    The user's are the main file and all that belongs to the same package, or to none.

    variables: environment variables that are set and were read.
    """

    def __init__(self, main: Path, environment: Mapping[str, str]) -> None:
        """environment: the user's variables. The process itself has few."""
        self._main = main.resolve()
        self._opened: dict[Path, bool] = {}
        self._written: set[Path] = set()
        self._importing = True
        self.variables: dict[str, str] = {}
        self._imported: set[str] = set()
        sys.addaudithook(self._audit)
        os.environ = _Watched(environment, self)  # noqa: B003 - it shares the variables of the old one

    def owns(self, file: str) -> bool:
        """Returns whether a file is the user's."""
        return file.startswith("/") and package_of(file) in (None, package_of(str(self._main)))

    def end_import(self) -> None:
        """Says that the file is imported: what is read from now on is not read again by a compiler."""
        self._importing = False

    def by_the_user(self, frame: FrameType | None) -> bool:
        """Returns whether a frame runs for one of the user's files: not for Triton, and not to import a
        module."""
        while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
            file = frame.f_code.co_filename
            if self.owns(file):
                return True
            if file.startswith("/") and package_of(file) in (_PACKAGE, _triton()):
                return False
            frame = frame.f_back
        return False

    def files(self) -> dict[str, str]:
        """Path in the folder of a compiling process -> the user's file.

        Modules keep their dotted names, and other files their places beside modules. Raises HarnessError for
        a file that the import reads and that lies beside no module.
        """
        modules = [(name, Path(file).resolve()) for name, file in _module_files() if self.owns(file)]
        folders = {(self._main.parent, Path())}
        for name, path in modules:
            to = Path(*name.split(".")[: None if path.stem == "__init__" else -1])
            folders.add((path.parent, to))
            if to.parts and path.parent.parts[-len(to.parts) :] == to.parts:  # its metadata lie beside it
                folders.add((path.parent.parents[len(to.parts) - 1], Path()))
        found: dict[str, str] = {}
        for path, needed in (self._opened | {path: True for _, path in modules}).items():
            names = [to / path.relative_to(folder) for folder, to in folders if path.is_relative_to(folder)]
            if not names and needed:
                raise HarnessError(
                    f"{self._main.name} reads {path}, which is beside none of its modules: put it into the "
                    f"folder of {self._main.name}"
                )
            for name in map(Path.as_posix, names):
                if found.setdefault(name, str(path)) != str(path):
                    raise HarnessError(
                        f"{self._main.name} reads {path} and {found[name]}: both would be {name}; rename one"
                    )
        return found

    def _import(self, name: str, frame: FrameType | None) -> None:
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None and self.owns(frame.f_code.co_filename):
            self._imported.add(name)

    @property
    def imports_packages(self) -> bool:
        """Whether the user's files import installed packages, of which no file travels."""
        known = {None, package_of(str(self._main)), _PACKAGE, _DATA, _triton(), *_LIBRARY}
        files = [file for name, file in _module_files() if name in self._imported]
        return any(package_of(file) not in known for file in files)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and self._importing:
            self._import(arguments[0], sys._getframe(1))
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        if not self.by_the_user(sys._getframe(1)):
            return
        path = Path(os.fsdecode(arguments[0])).resolve()
        if arguments[2] & (os.O_WRONLY | os.O_RDWR):
            self._written.add(path)
        elif path not in self._written and path.is_file() and self.owns(str(path)):
            self._opened[path] = self._opened.get(path, False) or self._importing


class _Watched(os._Environ[str]):
    """os.environ of a child process: what the user's files read comes from the user's variables."""

    def __init__(self, users: Mapping[str, str], reads: UserReads) -> None:
        own = os.environ
        super().__init__(own._data, own.encodekey, own.decodekey, own.encodevalue, own.decodevalue)  # type: ignore[attr-defined]
        self._users, self._reads = dict(users), reads

    def __getitem__(self, name: str) -> str:
        if name not in self._users or not self._reads.by_the_user(sys._getframe(1)):
            return super().__getitem__(name)
        self._reads.variables[name] = self._users[name]
        return self._users[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._users.pop(name, None)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        known = self._users.pop(name, None)
        if known is None or name in set(super().__iter__()):
            super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:
        if self._reads.by_the_user(sys._getframe(1)):
            raise HarnessError(
                "it reads all environment variables, and each may change a kernel: read by name"
            )
        return super().__iter__()


def _module_files() -> list[tuple[str, str]]:
    """Returns each imported module's name and file. Further names that a package gives to a module are left
    out."""
    found = []
    for name, module in list(sys.modules.items()):
        file, spec = getattr(module, "__file__", None), getattr(module, "__spec__", None)
        is_alias = spec is not None and (spec.name, spec.origin) != (name, file)
        if isinstance(file, str) and file.startswith("/") and not is_alias:
            found.append((name, file))
    return found
