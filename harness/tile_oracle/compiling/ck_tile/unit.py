"""The parts of a CK Tile translation unit that are common to all operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tile_oracle.compiling.ck_tile.api import DTYPES, PIPELINE_CLASSES, CkTileApi, Pipeline
from tile_oracle.errors import KernelError
from tile_oracle.kernel import TiledKernel

_GEMM = "tensor_layout::gemm::"
_GROUPED_TILES = ("8", "4")
"""GroupNum and M01 of GemmSpatiallyLocalTilePartitioner, as in CK Tile's examples and FixedGemmParams."""

_TWO_GROUPS = (1, 1, 2)

_OPERANDS = ("adatatype", "bdatatype", "asdatatype", "bsdatatype")


@dataclass(frozen=True)
class UnitParts:
    """What an operation contributes to a translation unit.

    op, letter: operation and direction, as named in kernels/ck_tile/abi.h and adapter.hpp.
    layouts: layouts of A, B and C.
    widths: vector widths of loads and stores, as template arguments; empty where they follow from the
    layouts.
    kernel_class: CK Tile's kernel template. partitioner: the tile partitioner's text.
    before: lines before the partitioner. host_args: lines of the function that makes the host arguments.
    result: the type that the epilogue stores.
    """

    op: str
    letter: str
    layouts: tuple[str, str, str]
    double_buffer: bool
    partitioner: str
    kernel_class: str
    host_args: Sequence[str]
    before: Sequence[str] = ()
    widths: Mapping[str, str] = field(default_factory=dict)
    result: str = "T"
    persistent: bool = False


def check_there(api: CkTileApi, what: str) -> None:
    """Raises KernelError when this CK Tile lacks the kernels of an operation or direction."""
    if what in api.missing:
        raise KernelError(f"{api.headers.identity} cannot build {what} kernels: {api.missing[what]}")


def pipeline_of(
    api: CkTileApi, kernel: TiledKernel, double_buffer: bool, layouts: tuple[str, str, str]
) -> Pipeline:
    """Returns the pipeline's class. Raises KernelError when it cannot build the kernel."""
    name = kernel.pipeline
    if name.startswith("preshuffle"):
        raise KernelError(f"pipeline {name}: B would have to be shuffled first, which is not adapted")
    if name not in api.pipelines:
        looked_for = PIPELINE_CLASSES.get(name)
        why = f"it has no {looked_for}" if looked_for else "tile-oracle does not know its class"
        raise KernelError(f"pipeline {name} is not in this CK Tile: {why}")
    found = api.pipelines[name]
    if kernel.scheduler not in (found.schedulers or {"intrawave"}):
        raise KernelError(f"{found.name} of this CK Tile has no {kernel.scheduler} schedule")
    if found.lacks:
        raise KernelError(
            f"{found.name} of this CK Tile has no {', '.join(found.lacks)}, which "
            "kernels/ck_tile/adapter.hpp uses"
        )
    if found.along_rows and layouts[:2] != ("RowMajor", "ColumnMajor"):
        raise KernelError(
            f"{found.name} of this CK Tile advances along the second axis of A and B in any layout: A must "
            f"be row-major and B column-major, not {layouts[0]} and {layouts[1]}"
        )
    if found.alternates and kernel.waves != _TWO_GROUPS:
        raise KernelError(f"{found.name} of this CK Tile is for two groups of one wave: waves 1x1x2")
    if found.two_lds and not double_buffer:
        raise KernelError(f"{found.name} of this CK Tile needs double_smem_buffer")
    if double_buffer and not found.two_lds:
        raise KernelError(f"{found.name} of this CK Tile takes one LDS buffer, not double_smem_buffer")
    if api.tails_are_arguments and not found.fixed_single and not found.tail_handler:
        raise KernelError(
            f"{found.name} of this CK Tile fixes the loop's tail at compile time and has no TailHandler to "
            "choose it"
        )
    if kernel.dtype not in DTYPES:
        raise KernelError(f"dtype {kernel.dtype} is not one of {', '.join(DTYPES)}")
    tiles = api.warp_tiles.get(kernel.dtype)
    # An empty list means that the instruction table was not recognised, not that there are none.
    if tiles and kernel.warp_tile not in tiles:
        shown = ", ".join("x".join(map(str, tile)) for tile in sorted(tiles))
        size = "x".join(map(str, kernel.warp_tile))
        raise KernelError(f"warp tile {size} of {kernel.dtype} is not in this CK Tile: {shown}")
    return found


def _scheduler(kernel: TiledKernel, pipeline: Pipeline) -> str:
    """Returns the block GEMM's scheduler: Default when the pipeline leaves reading fragments to the block
    GEMM."""
    return "Default" if pipeline.loads_by_itself else kernel.scheduler.capitalize()


def partitioner(api: CkTileApi, *, spatially_local: bool) -> str:
    """Returns the class that assigns tiles to workgroups."""
    local, plain = "GemmSpatiallyLocalTilePartitioner", "GemmTile1DPartitioner"
    shape = {"blockgemmshape": "Shape", "blockgemmshapetype": "Shape"}
    if (spatially_local or plain not in api.templates) and local in api.templates:
        group, m01 = _GROUPED_TILES
        return api.arguments(local, {**shape, "groupnum": group, "m01": m01})
    return api.arguments(plain, shape)


def unit_text(api: CkTileApi, kernel: TiledKernel, pipeline: Pipeline, parts: UnitParts) -> str:
    """Returns the complete translation unit. Raises KernelError."""
    shape = api.arguments(
        "TileGemmShape",
        {
            "blocktile": _sequence(kernel.tile),
            "blockwarps": _sequence(kernel.waves),
            "warptile": _sequence(kernel.warp_tile),
        },
    )
    # A GEMM's load widths follow from layout and padding. Some pipelines need the simple problem for that.
    simple = (
        not parts.widths
        and pipeline.asks_problem
        and {"GemmPipelineProblem", "TileGemmTraits"} <= set(api.templates)
    )
    traits = _traits(api, kernel, pipeline, parts, "TileGemmTraits" if simple else "TileGemmUniversalTraits")
    problem_class = "GemmPipelineProblem" if simple else "UniversalGemmPipelineProblem"
    problem = _problem(api, kernel, pipeline, parts, problem_class)
    epilogue = _epilogue(api, kernel, pipeline, parts)
    arguments = {
        **dict.fromkeys(("groupedconvtraitstype", "groupedconvtraits"), "Conv"),
        "tilepartitioner": "Partitioner",
        "gemmpipeline": "Pipeline",
        "epiloguepipeline": "Epilogue",
    }
    tails = "TailNumber" if api.tails_are_arguments else "int"
    only = "TailNumber::Full" if api.tails_are_arguments else "0"
    handler = pipeline.tail_handler if api.tails_are_arguments else ""
    # The check expects the nearest bf16 of the exact sum, and training needs it too.
    rounding = [f"#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT {api.nearest}"] if kernel.dtype == "bf16" else []
    lines = [
        *(rounding if api.nearest else []),
        "#include <hip/hip_runtime.h>",
        "#include <vector>",
        *(f'#include "{name}"' for name in api.includes),
        '#include "abi.h"',
        "",
        "namespace ck_tile::to_adapter {",
        f'inline constexpr char kernel_name[] = "{kernel.name}";',
        f"inline constexpr int32_t op = {parts.op};",
        f"inline constexpr char direction = '{parts.letter}';",
        f"inline constexpr bool persistent = {_flag(parts.persistent)};",
        f"using T = {DTYPES[kernel.dtype]};",
        f"using Shape = {shape};",
        *parts.before,
        f"using Partitioner = {parts.partitioner};",
        f"using TileTraits = {traits};",
        f"template <bool HotLoop, {tails} Tail>",
        "struct Instance {",
        f"  using Problem = {problem};",
        f"  using Pipeline = {pipeline.name}<Problem>;",
        f"  using Epilogue = {epilogue};",
        f"  using Kernel = {api.arguments(parts.kernel_class, arguments)};",
        "};",
        f"using Only = Instance<true, {only}>;",
        *parts.host_args,
        *([f"#define TO_CK_TAIL_HANDLER {handler}"] if handler else []),
        "}  // namespace ck_tile::to_adapter",
        "",
        '#include "adapter.hpp"',
        "",
    ]
    return "\n".join(lines)


def _traits(api: CkTileApi, kernel: TiledKernel, pipeline: Pipeline, parts: UnitParts, template: str) -> str:
    a, b, c = (_GEMM + layout for layout in parts.layouts)
    persistent = {"usepersistentkernel": "true"} if parts.persistent else {}
    groups = _groups(pipeline)
    return api.arguments(
        template,
        {
            "padm": _flag(kernel.pad_m),
            "padn": _flag(kernel.pad_n),
            "padk": _flag(kernel.pad_k),
            "doublesmembuffer": _flag(parts.double_buffer),
            **dict.fromkeys(("alayout", "aslayout"), a),
            **dict.fromkeys(("blayout", "bslayout"), b),
            "clayout": c,
            **persistent,
            **groups,
        },
        needed=(*persistent, *groups),
    )


def _problem(api: CkTileApi, kernel: TiledKernel, pipeline: Pipeline, parts: UnitParts, template: str) -> str:
    widths = {name: value for name, value in parts.widths.items() if name != "vectorsizec"}
    return api.arguments(
        template,
        {
            **dict.fromkeys((*_OPERANDS, "computedatatype"), "T"),
            **dict.fromkeys(("cdatatype", "edatatype"), "float"),
            "blockgemmshape": "Shape",
            "traits": "TileTraits",
            "tilegemmtraits": "TileTraits",
            "scheduler": f"GemmPipelineScheduler::{_scheduler(kernel, pipeline)}",
            **({"hashotloop": "HotLoop", "tailnum": "Tail"} if api.tails_are_arguments else {}),
            **widths,
        },
        needed=tuple(widths),
    )


def _epilogue(api: CkTileApi, kernel: TiledKernel, pipeline: Pipeline, parts: UnitParts) -> str:
    c = _GEMM + parts.layouts[2]
    widths = parts.widths
    epilogue = {
        **dict.fromkeys(_OPERANDS, "T"),
        "odatatype": parts.result,
        "dsdatatype": "tuple<>",
        "accdatatype": "float",
        "dslayout": "tuple<>",
        "elayout": c,
        "clayout": c,
        "cdelementwise": "element_wise::PassThrough",
        "blocksize": "Problem::kBlockSize",
        "m": str(kernel.tile[0]),
        "n": str(kernel.tile[1]),
        "padm": _flag(kernel.pad_m),
        "padn": _flag(kernel.pad_n),
        "mwave": str(kernel.waves[0]),
        "nwave": str(kernel.waves[1]),
        **_groups(pipeline),
        **{f"{axis}perxdl": str(size) for axis, size in zip("mnk", kernel.warp_tile, strict=True)},
        "isctransposed": "Problem::TransposeC",
        "memoryoperation": "memory_operation_enum::set",
        **{name: value for name, value in widths.items() if name in ("fixedvectorsize", "vectorsizec")},
    }
    name = {"cshuffle": "CShuffleEpilogue", "default": "DefaultGemm2DEpilogue"}[kernel.epilogue]
    if f"{name}Problem" not in api.templates:
        raise KernelError(f"epilogue {kernel.epilogue} is not in this CK Tile: it has no {name}")
    wanted: tuple[str, ...] = ("vectorsizec",) if widths and kernel.epilogue == "cshuffle" else ()
    if pipeline.alternates and kernel.epilogue == "cshuffle":
        # Without it the class counts the waves along m and n, which is one group of the two.
        wanted += ("blocksize",)
    return f"{name}<{api.arguments(f'{name}Problem', epilogue, needed=wanted)}>"


def _groups(pipeline: Pipeline) -> dict[str, str]:
    return {"numwavegroups": "2"} if pipeline.alternates else {}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _sequence(sizes: tuple[int, int, int]) -> str:
    return f"sequence<{', '.join(map(str, sizes))}>"
