"""The descriptor of an operation: all that is particular to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tile_oracle.errors import OperationError
from tile_oracle.operation.bands import BANDS
from tile_oracle.operation.kind import Kind

if TYPE_CHECKING:
    from tile_oracle.arch import Arch
    from tile_oracle.features.operation_features import OperationFeatures
    from tile_oracle.json_tree import JsonTree
    from tile_oracle.kernel import Kernel
    from tile_oracle.operation.ck_tile import CkTileUnits
    from tile_oracle.operation.gpu_source import GpuSource
    from tile_oracle.operation.kernel_lists import KernelLists
    from tile_oracle.operation.on_device import OnDevice
    from tile_oracle.operation.on_gpu import OnGpu
    from tile_oracle.operation.search_axes import SearchAxes
    from tile_oracle.problem import Problem

Belongs = Callable[[Any], bool]
"""Whether a problem of the operation belongs to a slice."""


@dataclass(frozen=True)
class Argument:
    """An array that a kernel reads or writes: its name, and its axes in C order (`N Hi Wi G C/G`)."""

    name: str
    axes: str


class RuleBlock(Protocol):
    """One block of a rule set: kernels by the cross product of its lists."""

    @property
    def arch(self) -> tuple[str, ...]:
        """The architectures that it is for."""

    @property
    def candidates(self) -> int:
        """How many kernels it proposes for one kind of problem, before any is refused."""

    def covers(self, kind: Kind, arch: str) -> bool:
        """Whether it says anything about this kind of problem."""

    def kernels(self, kind: Kind, arch: Arch) -> Iterator[Kernel]:
        """What it proposes for a kind that it covers. Raises RuleError."""


def _like_none(kernel: Kernel) -> None:
    return None


def _as_given(values: dict[str, Any]) -> dict[str, Any]:
    return values


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation. Fields that would import much are functions, called when they are first needed.

    name: as in records and ids (`gemm`). plural: in messages ("GEMMs").
    problem, kernel: the classes, whose fields are the columns of records. parse_kernel: full name -> kernel.
    kind_fields: what a problem and its kernels share, with the values that there are; kind_words names them
    in messages, kind_format is how a kind is written ("{direction} {dtype} {ndim}D"); kernel_prefix_format
    is how the full names of its kernels begin, before the short name.
    id_prefixes: how the ids of problems begin, and short_names the pattern of kernels' short names: pytest's
    test ids are read with both. id_pattern: the pattern of a problem's id.
    marks: columns that tell a table of this operation where it has no column `op`.
    required: columns that a problem set must have; defaults: what text columns say when they are left out;
    completed: fills in what is computed from the given columns.
    outputs: properties of a problem that a table may state beside its fields; they are checked, and
    `completed` may compute fields from them. foreign_columns: what other programs call a column, in lower
    case, and what it is here, for messages.
    model_type: what model folders call the operation. models_by: fields of a kind that each have models of
    their own.
    family_varies: fields in which problems of one family differ (the layer's size, not its weights).
    fold_fields: fields that cross-validation holds together, for grouping by problem.
    slices: name -> whether a problem belongs; they may overlap. bands: further slices, of an
    evaluation alone.
    rules_key, read_rules: where the operation's blocks stand in a rule set's file, and what reads one.
    kernel_lists: lists of its kernels that programs of Composable Kernel read and write; None: there are
    none.
    rules_folder: has NAME.json with the operation's blocks of the shipped rule set NAME; None: the set's own
    file has them.
    refusals, problem_refusals: the reasons of an architecture against a kernel, and against a kernel on a
    problem of its kind.
    cpu_source: the text of a kernel's translation unit for the target cpu, which exports what
    kernels/cpu/abi.h declares; None: the operation has no kernels there.
    gpu_source: what it adds to the translation units of kernels/gpu; None: it has no kernels there.
    ck_tile: its kernels in CK Tile; None: CK Tile has none that are adapted.
    on_device: what a worker process knows of the operation.
    on_gpu: how its kernels are launched on a GPU; None: they run on none.
    arguments: both operands and the result of a problem, as callers of `Registry.run` give and get them;
    None: it takes no arrays of callers.
    features: what models read of its problems and kernels; None: it has no models.
    search: its kernels as combinations of choices; None: they are not searched.
    derived_columns: properties of its problems that tables from elsewhere may have in place of fields.
    timed_like: another kernel that measurements show to time like this one, or None.
    """

    name: str
    plural: str
    problem: type[Problem]
    kernel: type[Kernel]
    parse_kernel: Callable[[str], Kernel]
    kind_fields: Mapping[str, tuple[str | int, ...]]
    kind_words: str
    kind_format: str
    kernel_prefix_format: str
    id_prefixes: tuple[str, ...]
    id_pattern: str
    short_names: str
    marks: tuple[str, ...]
    required: tuple[str, ...]
    model_type: str
    rules_key: str
    read_rules: Callable[[JsonTree, Mapping[str, JsonTree]], RuleBlock]
    refusals: Callable[[Arch, Any], Iterator[str]]
    problem_refusals: Callable[[Arch, Any, Any], Iterator[str]]
    defaults: Mapping[str, str] = field(default_factory=dict)
    completed: Callable[[dict[str, Any]], dict[str, Any]] = _as_given
    outputs: tuple[str, ...] = ()
    foreign_columns: Mapping[str, str] = field(default_factory=dict)
    models_by: tuple[str, ...] = ("dtype",)
    family_varies: tuple[str, ...] = ()
    fold_fields: tuple[str, ...] | None = None
    slices: Mapping[str, Belongs] = field(default_factory=dict)
    bands: Mapping[str, Belongs] = field(default_factory=lambda: BANDS)
    kernel_lists: Callable[[], KernelLists] | None = None
    rules_folder: Path | None = None
    cpu_source: Callable[[Any], str] | None = None
    gpu_source: Callable[[], GpuSource] | None = None
    ck_tile: Callable[[], CkTileUnits] | None = None
    on_device: Callable[[], OnDevice] | None = None
    on_gpu: Callable[[], OnGpu] | None = None
    arguments: Callable[[Any], tuple[Argument, Argument, Argument]] | None = None
    features: Callable[[], OperationFeatures] | None = None
    search: Callable[[], SearchAxes] | None = None
    derived_columns: tuple[str, ...] = ()
    timed_like: Callable[[Any], Kernel | None] = _like_none

    @cached_property
    def problem_fields(self) -> tuple[str, ...]:
        """The columns of a problem, in the order of its key."""
        return tuple(one.name for one in fields(self.problem))

    @cached_property
    def kernel_fields(self) -> tuple[str, ...]:
        """The columns of a kernel, those that it shares with its problem included."""
        return tuple(one.name for one in fields(self.kernel))

    @cached_property
    def free_fields(self) -> tuple[str, ...]:
        """The fields in which problems of one kind differ."""
        return tuple(name for name in self.problem_fields if name not in self.kind_fields)

    @cached_property
    def worker(self) -> OnDevice:
        """`on_device`, for a worker process. Raises OperationError where there is none."""
        if self.on_device is None:
            raise OperationError(f"the operation {self.name} runs nowhere: its descriptor needs on_device")
        return self.on_device()

    @cached_property
    def for_gpus(self) -> GpuSource | None:
        """`gpu_source`, or None where there is none."""
        return None if self.gpu_source is None else self.gpu_source()

    @cached_property
    def for_models(self) -> OperationFeatures:
        """`features`. Raises OperationError where there are none."""
        if self.features is None:
            raise OperationError(f"the operation {self.name} has no models: its descriptor needs features")
        return self.features()

    def kind(self, words: Mapping[str, Any]) -> Kind:
        """The kind with these values of `kind_fields`; other entries are ignored."""
        return Kind(self.name, tuple((name, words[name]) for name in self.kind_fields))

    def kinds(self, only: Mapping[str, Sequence[str | int]]) -> list[Kind]:
        """All kinds; of a field with values in `only`, those with one of these."""
        axes = [only.get(name) or known for name, known in self.kind_fields.items()]
        return [Kind(self.name, tuple(zip(self.kind_fields, one, strict=True))) for one in product(*axes)]

    def kind_text(self, kind: Kind) -> str:
        """A kind in words: forward bf16 2D."""
        return self.kind_format.format_map(kind.words)

    def kernel_prefix(self, kind: Kind) -> str:
        """How the full names of a kind's kernels begin: what stands before a short name."""
        return self.kernel_prefix_format.format_map(kind.words)

    def file_stem(self, kind: Kind) -> str:
        """A kind in a file's name: forward_bf16_2d."""
        return self.kind_text(kind).lower().replace(" ", "_")

    def group_fields(self, grouping: str) -> tuple[str, ...]:
        """The fields that are equal in all rows of one group: of one `problem`, or of one `family`."""
        varies = self.family_varies if grouping == "family" else ()
        return tuple(name for name in self.problem_fields if name not in varies)
