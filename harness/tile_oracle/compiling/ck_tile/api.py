"""All that tile-oracle knows about CK Tile's classes and parameters. No other module knows any of it.

CK Tile has no stable interface. Between versions, template parameters are added, removed and reordered, but
their names hardly change. So this module never relies on positions: it reads the classes and the names of
their parameters from the headers, and passes every argument by name. An unknown parameter without a default
is reported by name. What a version lacks is not an error but a reason for refusal: `CkTileApi.missing`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tile_oracle.compiling.ck_tile.declarations import (
    Parameter,
    Template,
    bases_of,
    constructor_parameters,
    find_template,
    without_comments,
)
from tile_oracle.compiling.ck_tile.headers import CkTileHeaders
from tile_oracle.errors import KernelError

INCLUDES = (
    "ck_tile/core.hpp", "ck_tile/host/kernel_launch.hpp", "ck_tile/host/stream_config.hpp",
    "ck_tile/ops/gemm.hpp", "ck_tile/ops/epilogue.hpp", "ck_tile/ops/elementwise.hpp",
    "ck_tile/ops/grouped_convolution.hpp",
)  # fmt: skip
"""The headers that a translation unit includes, in order, if they exist."""

_LOOKED_AT = ("ops/gemm", "ops/epilogue", "ops/elementwise", "ops/grouped_convolution", "host")

PIPELINE_CLASSES: Mapping[str, str] = {
    "basic_v1": "GemmPipelineAGmemBGmemCRegV1", "basic_v2": "GemmPipelineAGmemBGmemCRegV2",
    "basic_async_v1": "GemmPipelineAGmemBGmemCRegAsyncV1", "mem": "GemmPipelineAgBgCrMem",
    "compv3": "GemmPipelineAgBgCrCompV3", "compv4": "GemmPipelineAgBgCrCompV4",
    "compv5": "GemmPipelineAgBgCrCompV5", "compv6": "GemmPipelineAgBgCrCompV6",
    "comp_async": "GemmPipelineAgBgCrCompAsync",
}  # fmt: skip
"""Pipeline -> CK Tile's class. preshufflevN is left out: it needs B shuffled before the kernel runs."""

CONV_KERNELS: Mapping[str, tuple[str, str]] = {
    "forward": ("GroupedConvolutionForwardKernel", "GroupedConvFwdHostArgs"),
    "bwd_data": ("GroupedConvolutionBackwardDataKernel", "GroupedConvBwdDataHostArgs"),
    "bwd_weight": ("GroupedConvolutionBackwardWeightKernel", "GroupedConvBwdWeightHostArgs"),
}
"""Direction -> the kernel's class and the class of its host arguments."""

CONV_DEVICE_ARGS: Mapping[str, str] = {
    "forward": "GroupedConvFwdKernelArgs",
    "bwd_data": "GroupedConvBwdDataKernelArgs",
    "bwd_weight": "GroupedConvBwdWeightKernelArgs",
}
"""Direction -> the class of the kernel's device arguments, which the host computes."""

CONVERT = ("ElementWiseShape", "ElementWisePipelineProblem", "ElementWiseKernel", "ElementWiseDefaultPolicy")
"""The classes of the second kernel of two_stage, besides `element_wise::UnaryConvert`."""

CONV_LAYOUTS: Mapping[int, tuple[str, str, str]] = {
    2: ("NHWGC", "GKYXC", "NHWGK"),
    3: ("NDHWGC", "GKZYXC", "NDHWGK"),
}
"""Rank -> the layouts of image, filters and result of our problems, in CK Tile's names."""

KERNEL_CALLS = ("MakeKernelArgs", "IsSupportedArgument", "GridSize", "operator()")
PIPELINE_CALLS = ("BlockSize",)
TAIL_CALLS = ("BlockHasHotloop", "GetBlockLoopTailNum", "TailHandler")
"""The members of CK Tile's classes that kernels/ck_tile/adapter.hpp uses, by the kind of class."""

DTYPES: Mapping[str, str] = {"bf16": "bf16_t", "fp16": "half_t", "fp32": "float"}

_WARP_TILE = re.compile(
    r"Dispatcher<\s*(?:ck_tile::)?(\w+),\s*(?:ck_tile::)?(\w+),\s*(?:float|int32_t),\s*(\d+),\s*(\d+),\s*(\d+),"
)
_GEMM_LAYOUT = re.compile(
    r"is_same_v<\s*Gemm([ABC])Layout\s*,\s*(?:ck_tile::)?tensor_layout::gemm::(\w+)\s*>"
)
_MERGES = re.compile(r"\bGroupedConvTraitsType_?::NumGroupsToMerge\s*[;)*/]")
_WEIGHTS_OF_EPILOGUE = re.compile(r"\bWeiDataType\s*=[^;]*\bEpiloguePipeline\w*::ODataType\b")
_ALONG_ROWS = re.compile(r"\bmove_tile_window\(\s*\w*_copy_dram_window,\s*\{\s*0,\s*kKPerBlock\s*\}\s*\)")
_TAKES_ONE_EACH = re.compile(
    r"!\s*is_detected<is_tuple[^{};]*?\boperator\(\)\(\s*const \w+\s*&\s*\w+,\s*const B\w+"
)
_ONE_WINDOW_EACH = re.compile(r"\boperator\(\)\(\s*a_block_window,\s*b_block_window\b")
_WINDOW_LENGTH = re.compile(r"tile_windows\w*\.at\(I0\)\.get_length\(")
_SPECIALIZATIONS = re.compile(r"\benum\s+(?:struct|class)\s+ConvolutionSpecialization\s*\{([^}]*)\}")
_PERSISTENT = re.compile(r"\bUsePersistentKernel\s*=")
_SCHEDULED = re.compile(r"PipelineImpl<\s*GemmPipelineScheduler::(\w+)\s*>")


@dataclass(frozen=True)
class Pipeline:
    """The class of one pipeline.

    schedulers: the schedulers it implements; empty when it has a single schedule that ignores the choice.
    two_lds: takes its second LDS buffer as a separate argument.
    fixed_single: never double-buffers.
    asks_problem: takes its load widths from its problem class. The simple problem computes them, the
    universal one does not.
    tail_handler: the class that turns the loop length into template arguments, or "".
    alternates: two groups of waves take turns in loading and multiplying.
    along_rows: advances along the second axis of both operands, so A must be row-major and B column-major.
    lists_only: accepts only lists of operands.
    loads_by_itself: has no schedule and leaves reading fragments to the block GEMM. Only the block GEMM of
    the scheduler Default reads them.
    persistent: declares whether it runs as a persistent kernel. For a pipeline that does not, CK Tile builds
    the plain kernel whatever its traits are.
    lacks: the members that the adapter needs and that it does not have.
    """

    name: str
    schedulers: frozenset[str]
    two_lds: bool
    fixed_single: bool
    asks_problem: bool
    tail_handler: str
    alternates: bool
    along_rows: bool
    lists_only: bool
    loads_by_itself: bool = False
    persistent: bool = True
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CkTileApi:
    """One version of CK Tile, as read from its headers.

    missing: operation or direction -> why its kernels cannot be built.
    gemm_layouts: direction -> the layouts of A, B and C that the implicit GEMM must have.
    warp_tiles: data type -> the warp tiles of its matrix instructions.
    nearest: the value of CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT that rounds results to the nearest bf16; "" where
    the default does so already.
    specializations: the convolution specializations.
    """

    headers: CkTileHeaders
    templates: Mapping[str, Template]
    pipelines: Mapping[str, Pipeline]
    missing: Mapping[str, str]
    gemm_layouts: Mapping[str, tuple[str, str, str]]
    warp_tiles: Mapping[str, frozenset[tuple[int, int, int]]]
    includes: tuple[str, ...]
    nearest: str = ""
    specializations: frozenset[str] = frozenset()

    def merges_groups(self, direction: str) -> bool:
        """Returns whether a direction's launch lets groups share a workgroup.

        Some versions use the number of merged groups in the index arithmetic only, and still launch a
        workgroup for each group.
        """
        args = self.templates.get(CONV_DEVICE_ARGS[direction])
        return args is not None and _MERGES.search(args.body) is not None

    def takes_two_buffers(self, direction: str) -> bool:
        """Returns whether a direction's kernel compiles with two LDS buffers.

        In a version of late 2025, bwd_data's does not: it asks a tile window for a length, which only views
        have.
        """
        return _WINDOW_LENGTH.search(self.templates[CONV_KERNELS[direction][0]].body) is None

    def passes_lists(self, direction: str) -> bool:
        """Returns whether a direction's kernel passes lists of operands to its pipeline, not one A and one
        B."""
        return _ONE_WINDOW_EACH.search(self.templates[CONV_KERNELS[direction][0]].body) is None

    def splits_image(self, direction: str) -> bool:
        """Returns whether a direction's kernel takes a list of pieces of the image."""
        args = self.templates.get(CONV_DEVICE_ARGS[direction])
        return args is not None and all(word in args.body for word in ("num_spatial_pieces", "split_image"))

    @property
    def missing_for_two_stage(self) -> str:
        """Why bwd_weight cannot store its sums in fp32 for a second kernel; "" when it can."""
        name = CONV_KERNELS["bwd_weight"][0]
        lacking = [needed for needed in (name, *CONVERT, "UnaryConvert") if needed not in self.templates]
        if lacking:
            return f"it has no {', '.join(lacking)}"
        if _WEIGHTS_OF_EPILOGUE.search(self.templates[name].body) is None:
            return f"its {name} stores its sums in the type of its operands"
        return ""

    @property
    def tails_are_arguments(self) -> bool:
        """Whether the loop's tail is a template argument, so that a kernel has several instances."""
        problem = self.templates.get("UniversalGemmPipelineProblem")
        return problem is not None and problem.has("HasHotLoop_", "HasHotLoop")

    def arguments(self, name: str, values: Mapping[str, str], needed: tuple[str, ...] = ()) -> str:
        """Returns a class with its template arguments, matched by the names of its parameters (see `plain`).

        Parameters without a value keep their default. Raises KernelError for a parameter with neither value
        nor default, and for a name in `needed` that the class has no parameter for.
        """
        template = self.templates[name]
        there = {plain(parameter.name) for parameter in template.parameters}
        for value in needed:
            if value not in there:
                raise KernelError(f"this CK Tile's {name} has no parameter for {value}")
        return f"{name}<{_filled(name, template.parameters, values)}>"

    def constructor(self, name: str, values: Mapping[str, str]) -> str:
        """Returns the arguments of a class's longest constructor, matched by name. Raises KernelError."""
        parameters = constructor_parameters(self.templates[name])
        if parameters is None:
            raise KernelError(f"this CK Tile's {name} has no constructor that takes arguments")
        return _filled(name, parameters, values)


def plain(name: str) -> str:
    """Returns a parameter's name without the parts that vary between versions: `kMWave_` and `MWave_` give
    mwave."""
    name = name.rstrip("_")
    if len(name) > 1 and name[0] == "k" and name[1].isupper():
        name = name[1:]
    return name.lower()


def _filled(name: str, parameters: tuple[Parameter, ...], values: Mapping[str, str]) -> str:
    filled: list[str] = []
    last = 0
    for number, parameter in enumerate(parameters, 1):
        value = values.get(plain(parameter.name))
        if value is not None:
            last = number
        elif parameter.default is None:
            raise KernelError(
                f"this CK Tile's {name} asks for {parameter.name or 'a parameter without a name'}, which "
                "tile-oracle does not know"
            )
        filled.append(value if value is not None else _default(parameter, parameters, filled))
    return ", ".join(filled[:last])


def _default(parameter: Parameter, parameters: tuple[Parameter, ...], filled: list[str]) -> str:
    """Returns the text of a default, with earlier parameters replaced by their values."""
    earlier = {p.name: value for p, value in zip(parameters, filled, strict=False)}
    return re.sub(r"[A-Za-z_]\w*", lambda match: earlier.get(match[0], match[0]), parameter.default or "")


@lru_cache(maxsize=4)
def detect(headers: CkTileHeaders) -> CkTileApi:
    """Detects what this version supports. Does not raise: what it lacks is in `missing`."""
    texts = _texts(headers)
    whole = "\n".join(texts.values())
    templates = {name: found for name in _NAMES if (found := find_template(whole, name)) is not None}
    pipelines = {
        pipeline: _pipeline(name, texts)
        for pipeline, name in PIPELINE_CLASSES.items()
        if find_template(whole, name) is not None
    }
    layouts = {
        direction: said
        for direction, (name, _) in CONV_KERNELS.items()
        if name in templates and (said := _gemm_layouts(templates[name])) is not None
    }
    missing: dict[str, str] = {}
    for operation, needed in {"gemm": ("GemmKernel", "GemmHostArgs"), **CONV_KERNELS}.items():
        more = () if operation == "gemm" else ("GroupedConvTraits", "GroupedConvHostArgs", "ConvParam")
        why = _lacks(templates, pipelines, (*_COMMON, *needed) if not more else (*needed, *more, *_COMMON))
        if more and not why and operation not in layouts:
            why = f"its {needed[0]} does not state which GEMM layouts it accepts"
        lacking = _members_missing(whole, needed[0], KERNEL_CALLS)
        if not why and lacking:
            why = f"its {needed[0]} has no {', '.join(lacking)}, which kernels/ck_tile/adapter.hpp uses"
        missing[operation] = why
    return CkTileApi(
        headers,
        templates,
        pipelines,
        {name: why for name, why in missing.items() if why},
        layouts,
        _warp_tiles(whole),
        tuple(name for name in INCLUDES if (headers.include / name).is_file()),
        _nearest(headers.text("ck_tile/core/config.hpp")),
        _specializations(whole),
    )


_MOST_BASES = 20
_COMMON = (
    "TileGemmShape", "TileGemmUniversalTraits", "UniversalGemmPipelineProblem", "CShuffleEpilogueProblem",
    "CShuffleEpilogue",
)  # fmt: skip
_PARTITIONERS = ("GemmSpatiallyLocalTilePartitioner", "GemmTile1DPartitioner")
_NAMES = (
    *_COMMON, *_PARTITIONERS, "DefaultGemm2DEpilogueProblem", "DefaultGemm2DEpilogue", "TileGemmTraits",
    "GemmPipelineProblem", "GemmKernel", "GemmHostArgs", "GroupedConvTraits", "GroupedConvHostArgs",
    "ConvParam", *(name for names in CONV_KERNELS.values() for name in names), *CONV_DEVICE_ARGS.values(),
    *CONVERT, "UnaryConvert",
)  # fmt: skip


def _texts(headers: CkTileHeaders) -> dict[str, str]:
    """Path -> text without comments, for the headers in _LOOKED_AT."""
    folder = headers.include / "ck_tile"
    paths = [path for part in _LOOKED_AT for path in sorted((folder / part).rglob("*.hpp"))]
    names = [path.relative_to(headers.include).as_posix() for path in paths]
    return {name: without_comments(headers.text(name)) for name in names}


def _pipeline(name: str, texts: Mapping[str, str]) -> Pipeline:
    text = next(text for text in texts.values() if find_template(text, name) is not None)
    own = find_template(text, name)
    base = find_template(text, f"Base{name}")
    assert own is not None
    tails = base is not None and "TailHandler" in base.body
    lacks = _members_missing(text, name, PIPELINE_CALLS)
    lacks += _members_missing(text, f"Base{name}", TAIL_CALLS) if tails else ()
    return Pipeline(
        name,
        frozenset(word.lower() for word in _SCHEDULED.findall(own.body)),
        two_lds=re.search(r"\bp_?smem_(?:ptr_)?1\b", own.body) is not None,
        fixed_single=re.search(r"\bDoubleSmemBuffer\s*=\s*false\b", own.body) is not None,
        asks_problem=re.search(r"return\s+Problem::VectorSizeA\b", own.body) is not None,
        tail_handler=f"Base{name}" if tails else "",
        alternates=re.search(r"%\s*NumWaveGroups\b", own.body) is not None,
        along_rows=_ALONG_ROWS.search(own.body) is not None,
        lists_only="is_detected<is_tuple" in own.body and _TAKES_ONE_EACH.search(own.body) is None,
        loads_by_itself=_SCHEDULED.search(own.body) is None and "LocalPrefetch" not in own.body,
        persistent=any(part is not None and _PERSISTENT.search(part.body) for part in (own, base)),
        lacks=lacks,
    )


def _members_missing(text: str, name: str, members: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of the members that neither a class nor its bases have; none for a class that is not in
    the text, or of which a base is not."""
    bodies, names = list[str](), [name]
    for each in names:
        template = find_template(text, each)
        if template is None or len(names) > _MOST_BASES:
            return ()
        bodies.append(template.body)
        names += bases_of(template)
    return tuple(one for one in members if not any(_own(one).search(body) for body in bodies))


def _own(member: str) -> re.Pattern[str]:
    """Returns a member where it is declared, not where another class's is called."""
    return re.compile(rf"(?<![\w:.>]){re.escape(member)}(?!\w)|\busing\s[^;]*::{re.escape(member)};")


def _gemm_layouts(kernel: Template) -> tuple[str, str, str] | None:
    """Returns the layouts that a kernel asserts; the first when it allows several."""
    found: dict[str, str] = {}
    for operand, layout in _GEMM_LAYOUT.findall(kernel.body):
        found.setdefault(operand, layout)
    return (found["A"], found["B"], found["C"]) if set(found) == {"A", "B", "C"} else None


def _warp_tiles(text: str) -> dict[str, frozenset[tuple[int, int, int]]]:
    ours = {theirs: dtype for dtype, theirs in DTYPES.items()} | {"fp16_t": "fp16"}
    found: dict[str, set[tuple[int, int, int]]] = {}
    for a, b, m, n, k in _WARP_TILE.findall(text):
        if a == b and a in ours:
            found.setdefault(ours[a], set()).add((int(m), int(n), int(k)))
    return {dtype: frozenset(tiles) for dtype, tiles in found.items()}


def _specializations(text: str) -> frozenset[str]:
    found = _SPECIALIZATIONS.search(text)
    return frozenset(re.findall(r"\w+", found[1])) if found else frozenset()


def _nearest(config: str) -> str:
    defaults = re.findall(r"#\s*define\s+CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT\s+(\w+)", config)
    # The standard rounding in assembly leaves an operand undefined, and clang assigns it a register in use.
    wrong = ("TRUNCATE", "STANDARD_ASM")
    if not any(default.endswith(wrong) for default in defaults):
        return ""
    name = "CK_TILE_FLOAT_TO_BFLOAT16_STANDARD"
    return name if re.search(rf"define\s+{name}\b", config) else ""


def _lacks(
    templates: Mapping[str, Template], pipelines: Mapping[str, Pipeline], needed: tuple[str, ...]
) -> str:
    lacking = [name for name in needed if name not in templates]
    if not any(name in templates for name in _PARTITIONERS):
        lacking.append(" or ".join(_PARTITIONERS))
    if not pipelines:
        lacking.append("any known pipeline")
    return f"it has no {', '.join(lacking)}" if lacking else ""
