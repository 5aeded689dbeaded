"""The descriptor of an operation, with everything that is particular to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from tile_oracle.errors import OperationError, ProblemError
from tile_oracle.operation.bands import BANDS
from tile_oracle.operation.kind import Kind, filled

if TYPE_CHECKING:
    from tile_oracle.arch import Arch
    from tile_oracle.compiling.ck_tile.api import CkTileApi
    from tile_oracle.features.feature_table import OperationFeatures
    from tile_oracle.files.json_tree import JsonTree
    from tile_oracle.kernel import Kernel
    from tile_oracle.operation.on_device import OnDevice, OnGpu
    from tile_oracle.operation.search_axes import SearchAxes
    from tile_oracle.problem import Problem
    from tile_oracle.triton.views import ProblemView


class GpuSource(Protocol):
    """Implemented by a module with these members."""

    HEADER: str
    """The header of kernels/gpu with the operation's kernel, without its suffix."""

    GPU_DTYPES: Mapping[str, tuple[str, ...]]
    """Machine of `tile_oracle.compiling.isa` -> data types that kernels/gpu multiplies there."""

    def code_refusal(self, kernel: Any, arch: str) -> str | None:
        """Returns why a kernel that the architecture allows has no code, or None."""

    def macros(self, kernel: Any, arch: str) -> dict[str, object]:
        """Returns the macros that are particular to the operation."""


class CkTileUnits(Protocol):
    """Implemented by a module with these functions."""

    def unit(self, api: CkTileApi, kernel: Any) -> str:
        """Returns the kernel's translation unit. Raises KernelError when this CK Tile does not have the
        kernel."""

    def problem_refusal(self, problem: Any) -> str | None:
        """Returns why the adapted CK Tile kernels cannot compute a problem, or None."""


Belongs = Callable[[Any], bool]
"""Whether a problem of the operation is in a slice."""


class RuleBlock(Protocol):
    """One block of a rule set, which proposes the cross product of its lists."""

    @property
    def arch(self) -> tuple[str, ...]:
        """The architectures that the block is for."""

    @property
    def candidates(self) -> int:
        """Number of kernels proposed for one kind of problem, before any is refused."""

    def covers(self, kind: Kind, arch: str) -> bool:
        """Returns whether the block applies to this kind of problem."""

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[Kernel]:
        """Returns the kernels proposed for a kind that the block covers. Raises RuleError."""


def _like_none(kernel: Kernel) -> None:
    return None


def _refuses_none(arch: Arch, kernel: Any, problem: Any) -> Iterator[str]:
    return iter(())


def _as_given(values: dict[str, Any]) -> dict[str, Any]:
    return values


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """One operation. Fields that would import much are functions, called when they are first needed. A text
    or list that is left empty follows from the others (`_derived`).

    plural: the plural in messages ("GEMMs").
    problem, kernel: the classes, whose fields are the columns of records. parse_kernel: full name -> kernel.
    kind_fields: the fields that a problem shares with its kernels, with all values. kind_words: their names
    in messages. is_kind: whether there are problems with these values; None: with all.
    kind_format: format of a kind ("{direction} {dtype} {ndim}D"). kernel_prefix_format: start of
    the full names of its kernels, before the short name. In brackets stands what is left out while a field
    has its value in `defaults`.
    id_prefixes: prefixes of problem ids. short_names: pattern of the kernels' short names. Both are used to
    read pytest's test ids. id_pattern: pattern of a problem id.
    marks: columns that identify a table of this operation without a column `op`.
    required: columns that a problem set must have. defaults: values of omitted text columns. completed: adds
    the values computed from the given columns.
    outputs: properties of a problem that a table may have besides the fields. They are checked, and
    `completed` may compute fields from them.
    foreign_columns: other programs' name of a column, in lower case -> our name, for messages.
    model_type: the operation's name in model folders. models_by: fields of a kind that have separate models
    for each value.
    family_varies: fields in which problems of one family differ (the layer's size, not its weights).
    fold_fields: fields that are equal within a cross-validation group, for grouping by problem.
    slices: name -> whether a problem is in the slice; slices may overlap. bands: further slices, only for
    evaluations.
    rules_key, read_rules: key of the operation's blocks in a rule set's file, and the reader of a block.
    kernel_lists: kernel lists in formats of Composable Kernel; None if there are none.
    rules_folder: folder with NAME.json, the operation's blocks of the shipped rule set NAME; None if the rule
    set's own file has them.
    refusals, problem_refusals: why an architecture refuses a kernel, and a kernel for a problem of its kind.
    cpu_source: text of a kernel's translation unit for the target cpu, which exports what kernels/cpu/abi.h
    declares; None without kernels for cpu.
    gpu_source: its part of the translation units of kernels/gpu; None without kernels there.
    ck_tile: its part for CK Tile; None without adapted CK Tile kernels.
    on_device: its part in a worker process.
    least_work: the operations that any known exact algorithm needs for a problem, and the bytes of the
    operands that the result depends on, so that an impossible time is found; None: no time is.
    on_gpu: its part for launching kernels on a GPU; None if they run on no GPU.
    triton_view: what declarations of Triton kernels see of its problems; None without such kernels.
    features: the features of its models; None without models.
    search: its kernels as combinations of choices; None if they cannot be searched.
    derived_columns: properties of its problems that imported tables may have instead of fields.
    terms: words in its kernels' names -> their meaning, for the legend of reports.
    timed_like: another kernel that measurements show to have the same times, or None.
    """

    plural: str
    problem: type[Problem]
    kernel: type[Kernel]
    parse_kernel: Callable[[str], Kernel]
    kind_fields: Mapping[str, tuple[str | int, ...]]
    short_names: str
    marks: tuple[str, ...]
    read_rules: Callable[[JsonTree, Mapping[str, JsonTree]], RuleBlock]
    refusals: Callable[[Arch, Any], Iterator[str]]
    is_kind: Callable[[Mapping[str, Any]], bool] | None = None
    kind_words: str = ""
    kind_format: str = ""
    kernel_prefix_format: str = ""
    id_prefixes: tuple[str, ...] = ()
    id_pattern: str = ""
    required: tuple[str, ...] = ()
    model_type: str = ""
    rules_key: str = ""
    problem_refusals: Callable[[Arch, Any, Any], Iterator[str]] = _refuses_none
    defaults: Mapping[str, str] = field(default_factory=dict)
    completed: Callable[[dict[str, Any]], dict[str, Any]] = _as_given
    outputs: tuple[str, ...] = ()
    foreign_columns: Mapping[str, str] = field(default_factory=dict)
    models_by: tuple[str, ...] = ("dtype",)
    family_varies: tuple[str, ...] = ()
    fold_fields: tuple[str, ...] | None = None
    slices: Mapping[str, Belongs] = field(default_factory=dict)
    bands: Mapping[str, Belongs] = field(default_factory=lambda: BANDS)
    kernel_lists: Callable[[], ModuleType] | None = None
    rules_folder: Path | None = None
    cpu_source: Callable[[Any], str] | None = None
    gpu_source: Callable[[], GpuSource] | None = None
    ck_tile: Callable[[], CkTileUnits] | None = None
    on_device: Callable[[], OnDevice] | None = None
    least_work: Callable[[Any], tuple[float, int]] | None = None
    on_gpu: Callable[[], OnGpu] | None = None
    triton_view: Callable[[], type[ProblemView]] | None = None
    features: Callable[[], OperationFeatures] | None = None
    search: Callable[[], SearchAxes] | None = None
    derived_columns: tuple[str, ...] = ()
    terms: Mapping[str, str] = field(default_factory=dict)
    timed_like: Callable[[Any], Kernel | None] = _like_none

    def __post_init__(self) -> None:
        for name, value in self._derived().items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    def _derived(self) -> dict[str, Any]:
        """Returns what fields that were left empty are: the operation's name and its problem's fields say."""
        placeholders = [f"{{{name}}}" for name in self.kind_fields]
        *first, last = self.kind_fields
        needed = (one.name for one in fields(self.problem) if one.default is MISSING)
        return {
            "kind_words": f"{', '.join(('operation', *first))} and {last}",
            "kind_format": " ".join((self.name, *placeholders)),
            "kernel_prefix_format": "_".join((self.name, *placeholders, "")),
            "id_prefixes": (f"{self.name}-",),
            "id_pattern": re.sub(r"\(\?P<\w+>", "(?:", self.problem.id_pattern()),
            "required": tuple(name for name in needed if name not in self.defaults),
            "model_type": self.name,
            "rules_key": self.name,
        }

    @property
    def name(self) -> str:
        """The name in records and ids (`gemm`)."""
        return self.problem.op

    @cached_property
    def problem_fields(self) -> tuple[str, ...]:
        """The columns of a problem, in the order of its key."""
        return tuple(one.name for one in fields(self.problem))

    @cached_property
    def kernel_fields(self) -> tuple[str, ...]:
        """The columns of a kernel, including those that it shares with its problem."""
        return tuple(one.name for one in fields(self.kernel))

    @cached_property
    def free_fields(self) -> tuple[str, ...]:
        """The fields in which problems of one kind differ."""
        return tuple(name for name in self.problem_fields if name not in self.kind_fields)

    @cached_property
    def worker(self) -> OnDevice:
        """`on_device`, for a worker process. Raises OperationError when it is None."""
        if self.on_device is None:
            raise OperationError(f"the operation {self.name} runs nowhere: its descriptor needs on_device")
        return self.on_device()

    def work_bound(self, problem: Any) -> tuple[float, int]:
        """Returns `least_work` of a problem; zeros where it is None."""
        return (0.0, 0) if self.least_work is None else self.least_work(problem)

    @cached_property
    def for_gpus(self) -> GpuSource | None:
        """The module of `gpu_source`, or None."""
        return None if self.gpu_source is None else self.gpu_source()

    @cached_property
    def for_models(self) -> OperationFeatures:
        """The module of `features`. Raises OperationError when it is None."""
        if self.features is None:
            raise OperationError(f"the operation {self.name} has no models: its descriptor needs features")
        return self.features()

    def problem_of(self, values: Mapping[str, Any]) -> Problem:
        """Returns the problem with these fields and outputs; missing fields are completed, outputs are
        checked. Raises ProblemError."""
        completed = self.completed(dict(values))
        problem = self.problem(
            **{name: value for name, value in completed.items() if name in self.problem_fields}
        )
        for name in self.outputs:
            given, right = values.get(name), getattr(problem, name)
            if name in values and given != right:
                raise ProblemError(
                    f"{name} = {given}, but the other dimensions give {name} = {right}; "
                    f"correct them, or remove the column {name}"
                )
        return problem

    def kind(self, words: Mapping[str, Any]) -> Kind:
        """Returns the kind with these values of `kind_fields`; other entries are ignored."""
        return Kind(self.name, tuple((name, words[name]) for name in self.kind_fields))

    def kind_of(self, one: Any) -> Kind:
        """Returns the kind of a problem or kernel with the operation's fields."""
        return self._kind(*[getattr(one, name) for name in self.kind_fields])

    @lru_cache(maxsize=4096, typed=True)  # noqa: B019 - operations live as long as the process
    def _kind(self, *values: str | int) -> Kind:
        """Returns one object for all problems and kernels of a kind, so that its words and prefix are made
        once."""
        return Kind(self.name, tuple(zip(self.kind_fields, values, strict=True)))

    def kinds(self, only: Mapping[str, Sequence[str | int]]) -> list[Kind]:
        """Returns all kinds. `only` restricts the values of fields."""
        axes = [only.get(name) or known for name, known in self.kind_fields.items()]
        found = [Kind(self.name, tuple(zip(self.kind_fields, one, strict=True))) for one in product(*axes)]
        return [kind for kind in found if self.is_kind is None or self.is_kind(kind.words)]

    def kind_text(self, kind: Kind) -> str:
        """Returns a kind in words: forward bf16 2D."""
        return filled(self.kind_format, kind.words, self.defaults)

    @lru_cache(maxsize=4096)  # noqa: B019 - operations live as long as the process
    def kernel_prefix(self, kind: Kind) -> str:
        """Returns the part of a full kernel name before the short name."""
        return filled(self.kernel_prefix_format, kind.words, self.defaults)

    def file_stem(self, kind: Kind) -> str:
        """Returns a kind as part of a file name: forward_bf16_2d."""
        return self.kind_text(kind).lower().replace(" ", "_")

    @cache  # noqa: B019 - operations live as long as the process
    def group_fields(self, grouping: str) -> tuple[str, ...]:
        """Returns the fields that are equal within a group, which is a `problem` or a `family`."""
        varies = self.family_varies if grouping == "family" else ()
        return tuple(name for name in self.problem_fields if name not in varies)
