"""cuDNN's backend interface, as far as convolutions and attention need it.

Functions, descriptors and numbers are those that NVIDIA documents in "cuDNN Backend API", chapter
"libcudnn_graph" (docs.nvidia.com/deeplearning/cudnn), for version 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, byref, c_bool, c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.calls import (
    Calls,
    LibraryFailure,
    Prepared,
    StreamLibrary,
    channels_second,
    version_text,
    word_of,
)
from tile_oracle.problem import Problem

_V = c_void_p
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "Create": (_V,), "SetStream": (_V, _V), "BackendCreateDescriptor": (c_int, _V),
    "BackendDestroyDescriptor": (_V,), "BackendFinalize": (_V,),
    "BackendSetAttribute": (_V, c_int, c_int, c_int64, _V),
    "BackendGetAttribute": (_V, c_int, c_int, c_int64, _V, _V), "BackendExecute": (_V, _V, _V),
}  # fmt: skip

# Types of attributes.
_HANDLE, DATA_TYPE, _BOOLEAN, INT64, _FLOAT, _POINTER, _MODE, _HEURISTIC, _KNOB = (0, 1, 2, 3, 4, 6, 7, 8, 9)
POINTWISE_MODE, DESCRIPTOR = 14, 15
_C_TYPES: Mapping[int, Any] = {
    **dict.fromkeys((DATA_TYPE, _MODE, _HEURISTIC, _KNOB, POINTWISE_MODE), c_int),
    **dict.fromkeys((_HANDLE, _POINTER, DESCRIPTOR), c_void_p),
    _BOOLEAN: c_bool,
    INT64: c_int64,
    _FLOAT: c_float,
}

# Types of descriptors.
_CONVOLUTION, _ENGINE, _CONFIGURATION, _RANKING, _PLAN, _CHOICE = 1, 2, 3, 4, 5, 7
_GRAPH, _PACK, _TENSOR = 15, 16, 17
_OPERATIONS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "forward": (10, (700, 701, 702, 704, 703, 705)),
    "bwd_data": (12, (706, 707, 708, 711, 709, 710)),
    "bwd_weight": (11, (712, 713, 714, 716, 717, 715)),
}
"""Direction -> the operation's descriptor, and its attributes: alpha, beta, convolution, first operand,
second operand, result."""

TYPES: Mapping[str, int] = {"fp32": 0, "fp16": 2, "int32": 4, "bf16": 9, "boolean": 11}
_COMPUTED_IN = 0
_CROSS_CORRELATION = 1
_ALIGNMENT_BYTES = 16
RANKINGS = (3, 1, 2)
"""Modes of heuristics: the decision tree (A), the neural network (B), engines that always work."""
_MOST_CHOICES = 64

KNOBS: Mapping[int, str] = {
    1: "swizzle", 2: "tile_size", 4: "edge", 11: "multiply", 12: "split_k_buf", 13: "tile_k", 14: "stages",
    15: "reduction", 17: "split_k_slices", 18: "index", 23: "filter", 24: "kernel", 25: "workspace",
    27: "cluster_m", 28: "cluster_n", 29: "block", 30: "occupancy", 31: "array", 33: "split_columns",
    34: "tile_rows", 35: "tile_columns", 36: "load", 37: "workgroups", 38: "stream_k", 39: "split_p_slices",
    40: "tile_m", 41: "tile_n", 42: "warps", 43: "swap", 44: "tma_in", 45: "tma_out",
}  # fmt: skip
"""cudnnBackendKnobType_t -> its word in an algorithm's name."""

Choices = tuple[tuple[int, int], ...]
"""Knobs and their values, by knob."""


class Descriptor:
    """One descriptor of the backend. `close` destroys it."""

    def __init__(self, calls: Calls, kind: int) -> None:
        self._calls = calls
        self.handle = c_void_p()
        calls("BackendCreateDescriptor", kind, byref(self.handle))

    def set(self, attribute: int, kind: int, *values: Any) -> None:
        """Sets an attribute. Raises LibraryFailure."""
        array = (_C_TYPES[kind] * len(values))(*values)
        self._calls("BackendSetAttribute", self.handle, attribute, kind, len(values), array)

    def finalized(self, *attributes: tuple[Any, ...]) -> Descriptor:
        """Sets attributes, each with its number, its type and its values, and returns the descriptor,
        finalized. Raises LibraryFailure where the library does not take it."""
        for attribute in attributes:
            self.set(*attribute)
        self._calls("BackendFinalize", self.handle)
        return self

    def get(self, attribute: int, kind: int) -> int:
        """Returns an attribute that is one number. Raises LibraryFailure."""
        value, count = _C_TYPES[kind](), c_int64()
        self._calls("BackendGetAttribute", self.handle, attribute, kind, 1, byref(count), byref(value))
        return int(value.value)

    def fill(self, attribute: int, into: Sequence[Descriptor]) -> int:
        """Fills descriptors with those of an attribute, and returns how many it has."""
        count, array = c_int64(), (c_void_p * len(into))(*(one.handle for one in into))
        asked = (attribute, DESCRIPTOR, len(into), byref(count), array if into else None)
        self._calls("BackendGetAttribute", self.handle, *asked)
        return count.value

    def close(self) -> None:
        """Destroys the descriptor."""
        self._calls.status("BackendDestroyDescriptor", self.handle)


class Cudnn(StreamLibrary):
    """The loaded library with a handle for the current device.

    Raises OSError and ValueError when it cannot be loaded, LibraryFailure when it cannot be initialized.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(Calls(path, "cudnn", _SIGNATURES, "GetErrorString"))
        self.version = version_text(self.calls.number("GetVersion"))

    def descriptor(self, kind: int) -> Descriptor:
        return Descriptor(self.calls, kind)


class Graph:
    """An operation graph: a problem as the library sees it. Those of operations derive from it.

    A run gets the operands and the result as tensors 0, 1 and so on.
    """

    graph: Descriptor

    def __init__(self, library: Cudnn) -> None:
        self._library = library
        self._kept: list[Descriptor] = []
        self._scalars: dict[int, Any] = {}
        self._plans: dict[tuple[int, Choices], Plan] = {}

    def _graph_of(self, *operations: Descriptor) -> Descriptor:
        """Returns the graph of these operations. Raises LibraryFailure where the library does not take it."""
        handles = (one.handle for one in operations)
        return self._made(_GRAPH).finalized((800, _HANDLE, self._library.handle), (801, DESCRIPTOR, *handles))

    def _made(self, kind: int) -> Descriptor:
        made = self._library.descriptor(kind)
        self._kept.append(made)
        return made

    def _array(
        self,
        identity: int,
        dims: Sequence[int],
        strides: Sequence[int],
        dtype: str,
        *,
        virtual: bool = False,
        by_value: bool = False,
    ) -> Descriptor:
        """Returns a tensor. virtual: it is not in memory. by_value: a number in the memory of the host."""
        return self._made(_TENSOR).finalized(
            *((901, DATA_TYPE, TYPES[dtype]), (902, INT64, *dims), (903, INT64, *strides)),
            *((906, INT64, identity), (900, INT64, _ALIGNMENT_BYTES)),
            *([(907, _BOOLEAN, True)] * virtual + [(908, _BOOLEAN, True)] * by_value),
        )

    def prepare(self, algorithm: tuple[int, Choices]) -> Prepared:
        """Returns the algorithm's runs. Raises Unlaunchable where the library does not take it."""
        if algorithm not in self._plans:
            self._plans[algorithm] = self.plan(*algorithm)
        plan = self._plans[algorithm]

        def prepare(*addresses: int) -> Callable[[int], None]:
            pack = plan.pack(addresses[:-1], addresses[-1])
            return lambda stream: plan.start(pack, stream)

        return plan.workspace_bytes, prepare

    def close(self) -> None:
        """Destroys its descriptors and plans, which are large."""
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()
        for made in reversed(self._kept):
            made.close()
        self._kept.clear()

    def ranking(self, mode: int) -> list[tuple[int, Choices]]:
        """Engines and their choices in the order of a mode of heuristics; empty where it has none."""
        heuristic = self._library.descriptor(_RANKING)
        configurations: list[Descriptor] = []
        try:
            heuristic.finalized((201, DESCRIPTOR, self.graph.handle), (200, _HEURISTIC, mode))
            count = heuristic.fill(202, [])
            configurations = [self._library.descriptor(_CONFIGURATION) for _ in range(count)]
            filled = heuristic.fill(202, configurations) if configurations else 0
            return [self._read(one) for one in configurations[:filled]]
        except LibraryFailure:
            return []
        finally:
            for one in (*configurations, heuristic):
                one.close()

    def _read(self, configuration: Descriptor) -> tuple[int, Choices]:
        """Returns the engine and the choices of a configuration."""
        engine = self._library.descriptor(_ENGINE)
        choices = [self._library.descriptor(_CHOICE) for _ in range(_MOST_CHOICES)]
        try:
            configuration.fill(300, [engine])
            filled = configuration.fill(302, choices)
            found = sorted((one.get(600, _KNOB), one.get(601, INT64)) for one in choices[:filled])
            return engine.get(1301, INT64), tuple(found)
        finally:
            for one in (engine, *choices):
                one.close()

    @property
    def engines(self) -> int:
        """How many engines there are for the operation."""
        return self.graph.get(802, INT64)

    def plan(self, number: int, choices: Choices) -> Plan:
        """Returns the plan of an engine with these choices, the others as the engine has them. Raises
        Unlaunchable where the library does not take it."""
        made: list[Descriptor] = []

        def descriptor(kind: int, *attributes: tuple[Any, ...]) -> Descriptor:
            made.append(self._library.descriptor(kind))
            return made[-1].finalized(*attributes)

        try:
            engine = descriptor(_ENGINE, (1300, DESCRIPTOR, self.graph.handle), (1301, INT64, number))
            chosen = [
                descriptor(_CHOICE, (600, _KNOB, knob), (601, INT64, value)).handle for knob, value in choices
            ]
            of_engine = [(300, DESCRIPTOR, engine.handle), *([(302, DESCRIPTOR, *chosen)] if chosen else [])]
            configuration = descriptor(_CONFIGURATION, *of_engine)
            of_plan = (400, _HANDLE, self._library.handle), (401, DESCRIPTOR, configuration.handle)
            plan = descriptor(_PLAN, *of_plan)
            return Plan(self._library, plan, made, plan.get(402, INT64), self._scalars)
        except LibraryFailure as failure:
            for one in reversed(made):
                one.close()
            raise Unlaunchable(str(failure)) from None


class Convolution(Graph):
    """A convolution: a graph of one operation."""

    def __init__(self, library: Cudnn, problem: Problem) -> None:
        """problem: of the operation grouped_conv. Raises LibraryFailure for one that the library does not
        take."""
        super().__init__(library)
        row = problem.as_row()
        axes = ("d", "h", "w")[3 - row["ndim"] :]
        named = ((102, "dilation"), (103, "stride"), (104, "pad"), (105, "pad"))
        convolution = self._made(_CONVOLUTION).finalized(
            *((100, DATA_TYPE, _COMPUTED_IN), (101, _MODE, _CROSS_CORRELATION), (106, INT64, len(axes))),
            *((number, INT64, *(row[f"{name}_{axis}"] for axis in axes)) for number, name in named),
        )
        kind, (alpha, beta, described, *places) = _OPERATIONS[row["direction"]]
        operation = self._made(kind)
        weight = {"forward": 1, "bwd_data": 1, "bwd_weight": 2}[row["direction"]]
        for place, (attribute, shape) in enumerate(zip(places, problem.operand_shapes, strict=True)):
            tensor = self._array(place, *channels_second(shape, weight=place == weight), problem.dtype)
            operation.set(attribute, DESCRIPTOR, tensor.handle)
        operation.finalized(
            (alpha, _FLOAT, 1.0), (beta, _FLOAT, 0.0), (described, DESCRIPTOR, convolution.handle)
        )
        self.graph = self._graph_of(operation)


@dataclass(frozen=True)
class Plan:
    """An execution plan. `close` destroys it. kept: its descriptors. scalars: the numbers that the graph
    takes by value, by tensor."""

    library: Cudnn
    plan: Descriptor
    kept: list[Descriptor]
    workspace_bytes: int
    scalars: Mapping[int, Any]

    def pack(self, addresses: Sequence[int], workspace: int) -> Descriptor:
        """Returns the addresses of the operands, the result and the workspace, for `start`."""
        pack = self.library.descriptor(_PACK)
        self.kept.append(pack)
        return pack.finalized(
            (1000, INT64, *range(len(addresses)), *self.scalars),
            (1001, _POINTER, *addresses, *map(addressof, self.scalars.values())),
            (1003, _POINTER, workspace),
        )

    def start(self, pack: Descriptor, stream: int) -> None:
        """Starts a run on a stream. Raises LibraryFailure."""
        self.library.use_stream(stream)
        self.library.calls("BackendExecute", self.library.handle, self.plan.handle, pack.handle)

    def close(self) -> None:
        """Destroys its descriptors."""
        for one in reversed(self.kept):
            one.close()


def algorithm_name(engine: int, choices: Choices) -> str:
    """e38.split_k_slices=1.stages=4: the engine, then its knobs by name."""
    words = sorted((KNOBS.get(knob, f"knob{knob}"), value) for knob, value in choices)
    return ".".join((f"e{engine}", *(f"{word}={word_of(value)}" for word, value in words)))


def as_data(engine: int, choices: Choices) -> str:
    """Returns the algorithm's description: 38,14:4,17:1."""
    return ",".join((str(engine), *(f"{knob}:{value}" for knob, value in choices)))


def of_data(text: str) -> tuple[int, Choices]:
    """Returns the inverse of `as_data`. Raises ValueError."""
    engine, *pairs = text.split(",")
    knobs = (pair.partition(":") for pair in pairs)
    return int(engine), tuple((int(knob), int(value)) for knob, _, value in knobs)
