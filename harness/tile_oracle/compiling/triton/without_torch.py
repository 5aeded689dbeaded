"""A stand-in for PyTorch where it is not installed. Only for child processes.

Files of Triton kernels import it for the wrappers that launch them, which nothing here calls. So names of
torch may be imported, called and subclassed, and what needs a value of one is an error in one line.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABCMeta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from tile_oracle.errors import HarnessError

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
