"""Imports a user's file of Triton kernels, and puts what goes wrong into one line.

Only for child processes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from abc import ABCMeta
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from tile_oracle.compiling.triton.user_reads import package_of
from tile_oracle.errors import HarnessError
from tile_oracle.triton.declare import Declaration, declared

_TORCH = "torch"
_KNOWN: dict[str, object] = {
    "torch.__version__": "2.9.0",
    "torch.version.cuda": None,
    "torch.version.hip": None,
}
"""What can be said of PyTorch where it is missing."""
_ANSWERS: dict[str, object] = {"is_available": False, "device_count": 0}
"""What its functions of these names return: it sees no device."""


class TorchMissing(HarnessError):
    """A value of PyTorch is needed, and it is not installed."""


class StandIn:
    """A name of torch, or the result of calling one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name} of PyTorch, which is not installed"

    def __getattr__(self, name: str) -> Any:
        whole = f"{self._name}.{name}"
        if name.startswith("__") and name.endswith("__") and whole not in _KNOWN:
            raise AttributeError(name)
        self.__dict__[name] = _KNOWN[whole] if whole in _KNOWN else StandIn(whole)
        return self.__dict__[name]

    def __call__(self, *given: Any, **named: Any) -> Any:
        if len(given) == 1 and not named and isinstance(given[0], FunctionType):
            return given[0]  # a decorator
        last = self._name.rpartition(".")[2]
        return _ANSWERS[last] if last in _ANSWERS else StandIn(f"{self._name}()")

    def __getitem__(self, _: Any) -> StandIn:
        return self

    __or__ = __ror__ = __getitem__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, StandIn))
        return (_Base,) if self is first else ()

    def _needed(self, *_: Any) -> NoReturn:
        raise TorchMissing(
            f"needs {self._name}, and PyTorch is not installed here: pip install torch, or import the "
            "kernels from a file that needs none"
        )

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = _needed
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = _needed
    __mul__ = __rmul__ = __floordiv__ = __mod__ = __truediv__ = _needed


class _Inherited(ABCMeta):
    def __getattr__(cls, name: str) -> Any:
        return getattr(StandIn(cls.__name__), name)


class _Base(metaclass=_Inherited):
    """What classes of torch are to those of the file: `apply = Function.apply` is often read at once."""


class _Module(ModuleType):
    __all__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        found = getattr(StandIn(self.__name__), name)
        setattr(self, name, found)
        return found


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == _TORCH else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return


def allow_torch_to_be_missing() -> None:
    """Makes `import torch` give the stand-in if there is no PyTorch."""
    if _TORCH not in sys.modules and importlib.util.find_spec(_TORCH) is None:
        sys.meta_path.append(_Finder())


_LONGEST = 400


class FileFailure(HarnessError):
    """The user's file cannot be used; the message begins with its name and line."""


def write_answer(answer: Path, find: Callable[[], dict[str, object]]) -> int:
    """Writes what was found as JSON, or {"error": one line}. Returns the exit status: 1 for an error."""
    try:
        found = find()
    except HarnessError as error:
        found = {"error": str(error)}
    answer.write_text(json.dumps(found), "utf-8")
    return 1 if "error" in found else 0


def import_declarations(path: Path) -> list[Declaration]:
    """Imports the file and returns its declarations. Raises FileFailure."""
    known = importlib.util.find_spec(path.stem)
    if known is not None and Path(known.origin or "").resolve() != path.resolve():
        raise FileFailure(f"{path.name}: {path.stem} is also an installed module: give the file another name")
    allow_torch_to_be_missing()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileFailure(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # whatever the file raises, SystemExit and KeyboardInterrupt too
        raise FileFailure(one_line(error, path.parent, path.name)) from None
    found = declared()
    if not found:
        raise FileFailure(
            f"{path.name} declares no kernel: put @tile_oracle.triton.gemm(...) or grouped_conv(...) over a "
            "@triton.jit function"
        )
    return found


def jit_function(function: Any) -> Any:
    """Returns the @triton.jit or @gluon.jit function below Triton's decorators. Raises FileFailure for
    others."""
    seen = function
    while type(seen).__name__ not in ("JITFunction", "GluonJITFunction", "InterpretedFunction"):
        if type(seen).__name__ == "Heuristics":
            raise FileFailure(
                "@triton.heuristics makes the code depend on the problem: declare its values as "
                "configurations, each with a constraint"
            )
        if type(seen).__name__ != "Autotuner":
            raise FileFailure(f"{_name_of(function)} is not a @triton.jit function")
        seen = seen.fn
    return seen


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def one_line(error: BaseException, folder: Path, name: str, line: int = 0) -> str:
    """FILE:LINE: what happened. The line is the innermost one of the user's files, else `line`."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, HarnessError):
        text = str(error)
    if isinstance(error, SyntaxError) and error.filename:
        name, line = _relative(error.filename, folder) or name, error.lineno or 0
        text = f"{type(error).__name__}: {error.msg}"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            where = _relative(frame.filename, folder)
            if where is not None:
                name, line = where, frame.lineno or 0
    text = " ".join(text.split())[:_LONGEST]
    return f"{name}:{line}: {text}" if line else f"{name}: {text}"


def _relative(file: str, folder: Path) -> str | None:
    """Returns the name of one of the user's files, from its folder if it lies there; None for other files."""
    path = Path(file)
    if not path.is_absolute() or package_of(file) not in (None, package_of(str(folder / "main.py"))):
        return None
    path, folder = path.resolve(), folder.resolve()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
