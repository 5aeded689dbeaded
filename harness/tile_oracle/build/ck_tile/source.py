"""Kernel -> the translation unit that instantiates CK Tile's kernel of the same fields."""

from __future__ import annotations

from tile_oracle.build.ck_tile.api import (
    CONV_KERNELS,
    CONV_LAYOUTS,
    CONVERT,
    DTYPES,
    PIPELINE_CLASSES,
    CkTileApi,
    Pipeline,
)
from tile_oracle.errors import KernelError
from tile_oracle.kernel import GemmKernel, GroupedConvKernel, Kernel

_GEMM = "tensor_layout::gemm::"
_CONV = "tensor_layout::convolution::"
_LETTERS = {"r": "RowMajor", "c": "ColumnMajor"}
_GROUPED_TILES = ("8", "4")
"""Group and M01 of GemmSpatiallyLocalTilePartitioner, as in CK Tile's own examples and FixedGemmParams."""


_TWO_GROUPS = (1, 1, 2)

_TAKES_MORE_STEPS = frozenset({"compv3"})
"""Pipelines whose instance for a long loop is right for a shorter one, too: further steps add zeros."""


def source_for(api: CkTileApi, kernel: Kernel) -> str:
    """The text of the kernel's translation unit.

    Raises KernelError, whose message is the reason, for a kernel that this CK Tile does not have.
    """
    return _conv_source(api, kernel) if isinstance(kernel, GroupedConvKernel) else _gemm_source(api, kernel)


def _conv_source(api: CkTileApi, kernel: GroupedConvKernel) -> str:
    direction = kernel.direction
    _check_there(api, direction)
    pipeline = _pipeline(api, kernel, kernel.double_smem_buffer, api.gemm_layouts[direction])
    if kernel.double_smem_buffer and not api.takes_two_buffers(direction):
        raise KernelError(f"double_smem_buffer: this CK Tile's {direction} kernel does not compile with two")
    if pipeline.lists_only and not api.passes_lists(direction):
        raise KernelError(
            f"{pipeline.name} of this CK Tile takes lists of operands; its {direction} kernel passes one each"
        )
    if kernel.split_image and not api.splits_image(direction):
        raise KernelError(f"split_image: this CK Tile's {direction} kernel takes no pieces of an image")
    if kernel.num_groups_to_merge > 1 and not api.merges_groups(direction):
        raise KernelError(
            f"num_groups_to_merge: this CK Tile's {direction} kernel is launched group by group"
        )
    if not (kernel.pad_m and kernel.pad_n and kernel.pad_k):
        raise KernelError("padding: CK Tile's convolutions have all three paddings on")
    kernel_class, args_class = CONV_KERNELS[direction]
    image, filters, result = CONV_LAYOUTS[kernel.ndim]
    vectors = {"vectorsizea": kernel.vector_a, "vectorsizeb": kernel.vector_b, "vectorsizec": kernel.vector_c}
    widths = {name: str(width) for name, width in vectors.items()}
    extra = {
        "numgroupstomerge": str(kernel.num_groups_to_merge) if kernel.num_groups_to_merge > 1 else "",
        "enablesplitimage": "true" if kernel.split_image else "",
        "explicitgemm": "true" if kernel.explicit_gemm else "",
    }
    wanted = {name: value for name, value in extra.items() if value}
    traits = api.arguments(
        "GroupedConvTraits",
        {
            "ndimspatial": str(kernel.ndim),
            "convspecialization": "ConvolutionSpecialization::Default",
            "inlayout": _CONV + image,
            "weilayout": _CONV + filters,
            "dslayout": "tuple<>",
            "outlayout": _CONV + result,
            **widths,
            **wanted,
        },
        needed=tuple(wanted),
    )
    own = "FixedGemmParams" in api.templates["GroupedConvTraits"].body
    args = api.templates[args_class]
    features = ["#define TO_CK_SPLIT_IMAGE"] if kernel.split_image else []
    if kernel.two_stage:
        features += [f"using Convert = {_convert(api)};", "#define TO_CK_TWO_STAGE"]
    if kernel.pipeline in _TAKES_MORE_STEPS:
        features.append("#define TO_CK_TAKES_MORE_STEPS")
    return _unit(
        api,
        kernel,
        pipeline,
        layouts=api.gemm_layouts[direction],
        widths={**widths, "fixedvectorsize": "true"},
        double_buffer=kernel.double_smem_buffer,
        partitioner=_partitioner(api, spatially_local=own),
        kernel_class=kernel_class,
        before=[f"using Conv = {traits};"],
        host_args=[
            f"using Args = {args_class}{'<>' if args.parameters else ''};",
            "inline std::vector<index_t> extents(int d, int h, int w) {",
            f"  return {'{h, w}' if kernel.ndim == 2 else '{d, h, w}'};",
            "}",
            "inline Args host_args(const to_ck_problem& p) {",
            f"  return Args({api.constructor('GroupedConvHostArgs', _conv_arguments(api, kernel))});",
            "}",
            *features,
        ],
        direction=direction,
        result="float" if kernel.two_stage else "T",
    )


def _convert(api: CkTileApi) -> str:
    """The kernel that rounds the sums of two_stage: tiles as in CK Tile's example. Raises KernelError."""
    if api.missing_for_two_stage:
        raise KernelError(f"two_stage is not in this CK Tile: {api.missing_for_two_stage}")
    shape_name, problem_name, kernel_name, policy = CONVERT
    sizes = {"blockwarps": "sequence<8>", "blocktile": "sequence<2048>", "warptile": "sequence<64>"}
    shape = api.arguments(shape_name, {**sizes, "computedatatype": "float"})
    types = {"xdatatype": "float", "computedatatype": "float", "ydatatype": "T"}
    what = {"blockshape": shape, "elementwiseoperation": "element_wise::UnaryConvert"}
    problem = api.arguments(problem_name, {**types, **what})
    return api.arguments(kernel_name, {"problem": problem, "policy": policy})


def _conv_arguments(api: CkTileApi, kernel: GroupedConvKernel) -> dict[str, str]:
    pointers = {
        "forward": ("p.in0", "p.in1", "p.out"),
        "bwd_data": ("p.out", "p.in1", "p.in0"),
        "bwd_weight": ("p.in0", "p.workspace" if kernel.two_stage else "p.out", "p.in1"),
    }[kernel.direction]
    pads = "extents(p.pad_d, p.pad_h, p.pad_w)"
    param = api.constructor(
        "ConvParam",
        {
            "n_dim": "Conv::NDimSpatial",
            "group_count": "p.G",
            "n_batch": "p.N",
            "n_out_channels": "p.K / p.G",
            "n_in_channels": "p.C / p.G",
            "filters_len": "extents(p.Z, p.Y, p.X)",
            "input_len": "extents(p.Di, p.Hi, p.Wi)",
            "strides": "extents(p.stride_d, p.stride_h, p.stride_w)",
            "dilations": "extents(p.dilation_d, p.dilation_h, p.dilation_w)",
            "left_pads": pads,
            "right_pads": pads,
        },
    )
    return {
        "conv_param": f"conv::ConvParam({param})",
        **dict(zip(("in_ptr", "wei_ptr", "out_ptr"), pointers, strict=True)),
        "ds_ptr": "std::vector<const void*>{}",
        "k_batch": "1",
    }


def _gemm_source(api: CkTileApi, kernel: GemmKernel) -> str:
    _check_there(api, kernel.op)
    double_buffer = kernel.pipeline in ("compv4", "comp_async")
    a, b, c = tuple(kernel.layout)
    layouts = (_LETTERS[a], _LETTERS[b], _LETTERS[c])
    pipeline = _pipeline(api, kernel, double_buffer, layouts)
    if kernel.persistent and not pipeline.persistent:
        raise KernelError(
            f"persistent: {pipeline.name} of this CK Tile does not say whether it is, and would be built as "
            "a kernel of one tile a workgroup"
        )
    rows = {"r": "p.gemm_k", "c": "p.gemm_m"}[a], {"r": "p.gemm_n", "c": "p.gemm_k"}[b]
    stride_c = {"r": "p.gemm_n", "c": "p.gemm_m"}[c]
    args = api.constructor(
        "GemmHostArgs",
        {
            "a_ptr": "p.in0",
            "b_ptr": "p.in1",
            "c_ptr": "p.out",
            "e_ptr": "p.out",
            "k_batch": "1",
            "m": "p.gemm_m",
            "n": "p.gemm_n",
            "k": "p.gemm_k",
            "stride_a": rows[0],
            "stride_b": rows[1],
            "stride_c": stride_c,
            "stride_e": stride_c,
        },
    )
    name = "GemmHostArgs" + ("<>" if api.templates["GemmHostArgs"].parameters else "")
    return _unit(
        api,
        kernel,
        pipeline,
        layouts=layouts,
        widths={},
        double_buffer=double_buffer,
        partitioner=_partitioner(api, spatially_local=True),
        kernel_class="GemmKernel",
        before=[],
        host_args=[
            f"using Args = {name};",
            "inline Args host_args(const to_ck_problem& p) {",
            f"  return Args({args});",
            "}",
        ],
        direction="",
    )


def _check_there(api: CkTileApi, what: str) -> None:
    if what in api.missing:
        raise KernelError(f"{api.headers.identity} cannot make {what} kernels: {api.missing[what]}")


def _pipeline(api: CkTileApi, kernel: Kernel, double_buffer: bool, layouts: tuple[str, str, str]) -> Pipeline:
    """The pipeline's class, if it has what the kernel asks for. Raises KernelError."""
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
    if found.along_rows and layouts[:2] != ("RowMajor", "ColumnMajor"):
        raise KernelError(
            f"{found.name} of this CK Tile goes along the second axis of A and B whatever their layout: A "
            f"must be row-major and B column-major, not {layouts[0]} and {layouts[1]}"
        )
    if found.alternates and kernel.waves != _TWO_GROUPS:
        raise KernelError(f"{found.name} of this CK Tile is for two groups of one wave: waves 1x1x2")
    if found.two_lds and not double_buffer:
        raise KernelError(f"{found.name} of this CK Tile needs double_smem_buffer")
    if double_buffer and not found.two_lds:
        raise KernelError(f"{found.name} of this CK Tile takes one LDS buffer, not double_smem_buffer")
    if api.tails_are_arguments and not found.fixed_single and not found.tail_handler:
        raise KernelError(
            f"{found.name} of this CK Tile fixes the loop's tail when a kernel is compiled and has no "
            "TailHandler to choose by"
        )
    if kernel.dtype not in DTYPES:
        raise KernelError(f"dtype {kernel.dtype} is not one of {', '.join(DTYPES)}")
    tiles = api.warp_tiles.get(kernel.dtype)
    # An empty list means that the table of matrix instructions looks different, not that there are none.
    if tiles and kernel.warp_tile not in tiles:
        shown = ", ".join("x".join(map(str, tile)) for tile in sorted(tiles))
        size = "x".join(map(str, kernel.warp_tile))
        raise KernelError(f"warp tile {size} of {kernel.dtype} is not in this CK Tile: {shown}")
    return found


def _scheduler(kernel: Kernel, pipeline: Pipeline) -> str:
    """What the block GEMM is told: with a pipeline that never reads fragments it must do so by itself."""
    return "Default" if pipeline.loads_by_itself else kernel.scheduler.capitalize()


def _partitioner(api: CkTileApi, *, spatially_local: bool) -> str:
    local, plain = "GemmSpatiallyLocalTilePartitioner", "GemmTile1DPartitioner"
    shape = {"blockgemmshape": "Shape", "blockgemmshapetype": "Shape"}
    if (spatially_local or plain not in api.templates) and local in api.templates:
        group, m01 = _GROUPED_TILES
        return api.arguments(local, {**shape, "groupnum": group, "m01": m01})
    return api.arguments(plain, shape)


def _unit(
    api: CkTileApi,
    kernel: Kernel,
    pipeline: Pipeline,
    *,
    layouts: tuple[str, str, str],
    widths: dict[str, str],
    double_buffer: bool,
    partitioner: str,
    kernel_class: str,
    before: list[str],
    host_args: list[str],
    direction: str,
    result: str = "T",
) -> str:
    a, b, c = (_GEMM + layout for layout in layouts)
    flags = {name: "true" if getattr(kernel, name) else "false" for name in ("pad_m", "pad_n", "pad_k")}
    is_persistent = isinstance(kernel, GemmKernel) and kernel.persistent
    persistent = {"usepersistentkernel": "true"} if is_persistent else {}
    groups = {"numwavegroups": "2"} if pipeline.alternates else {}
    shape = api.arguments(
        "TileGemmShape",
        {
            "blocktile": _sequence(kernel.tile),
            "blockwarps": _sequence(kernel.waves),
            "warptile": _sequence(kernel.warp_tile),
        },
    )
    # A GEMM's load widths follow from layout and padding. Some pipelines leave that to a simple problem.
    simple = (
        not widths
        and pipeline.asks_problem
        and {"GemmPipelineProblem", "TileGemmTraits"} <= set(api.templates)
    )
    universal = api.arguments(
        "TileGemmTraits" if simple else "TileGemmUniversalTraits",
        {
            "padm": flags["pad_m"],
            "padn": flags["pad_n"],
            "padk": flags["pad_k"],
            "doublesmembuffer": "true" if double_buffer else "false",
            **dict.fromkeys(("alayout", "aslayout"), a),
            **dict.fromkeys(("blayout", "bslayout"), b),
            "clayout": c,
            **persistent,
            **groups,
        },
        needed=(*persistent, *groups),
    )
    problem = api.arguments(
        "GemmPipelineProblem" if simple else "UniversalGemmPipelineProblem",
        {
            **dict.fromkeys(("adatatype", "bdatatype", "asdatatype", "bsdatatype", "computedatatype"), "T"),
            **dict.fromkeys(("cdatatype", "edatatype"), "float"),
            "blockgemmshape": "Shape",
            "traits": "TileTraits",
            "tilegemmtraits": "TileTraits",
            "scheduler": f"GemmPipelineScheduler::{_scheduler(kernel, pipeline)}",
            **({"hashotloop": "HotLoop", "tailnum": "Tail"} if api.tails_are_arguments else {}),
            **{name: value for name, value in widths.items() if name != "vectorsizec"},
        },
        needed=tuple(name for name in widths if name != "vectorsizec"),
    )
    epilogue = {
        **dict.fromkeys(("adatatype", "bdatatype", "asdatatype", "bsdatatype"), "T"),
        "odatatype": result,
        "dsdatatype": "tuple<>",
        "accdatatype": "float",
        "dslayout": "tuple<>",
        "elayout": c,
        "clayout": c,
        "cdelementwise": "element_wise::PassThrough",
        "blocksize": "Problem::kBlockSize",
        "m": str(kernel.tile[0]),
        "n": str(kernel.tile[1]),
        "padm": flags["pad_m"],
        "padn": flags["pad_n"],
        "mwave": str(kernel.waves[0]),
        "nwave": str(kernel.waves[1]),
        **groups,
        **{f"{axis}perxdl": str(size) for axis, size in zip("mnk", kernel.warp_tile, strict=True)},
        "isctransposed": "Problem::TransposeC",
        "memoryoperation": "memory_operation_enum::set",
        **{name: value for name, value in widths.items() if name in ("fixedvectorsize", "vectorsizec")},
    }
    epilogue_class = {"cshuffle": "CShuffleEpilogue", "default": "DefaultGemm2DEpilogue"}[kernel.epilogue]
    if f"{epilogue_class}Problem" not in api.templates:
        raise KernelError(f"epilogue {kernel.epilogue} is not in this CK Tile: it has no {epilogue_class}")
    wanted = ("vectorsizec",) if widths and kernel.epilogue == "cshuffle" else ()
    epilogue_problem = api.arguments(f"{epilogue_class}Problem", epilogue, needed=wanted)
    arguments = {
        **dict.fromkeys(("groupedconvtraitstype", "groupedconvtraits"), "Conv"),
        "tilepartitioner": "Partitioner",
        "gemmpipeline": "Pipeline",
        "epiloguepipeline": "Epilogue",
    }
    tails = "TailNumber" if api.tails_are_arguments else "int"
    only = "TailNumber::Full" if api.tails_are_arguments else "0"
    handler = pipeline.tail_handler if api.tails_are_arguments else ""
    # The check wants the nearest bf16 of the exact sum; so does whoever trains with it.
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
        f"inline constexpr int32_t op = {'TO_CK_CONV' if direction else 'TO_CK_GEMM'};",
        f"inline constexpr char direction = '{_DIRECTION_LETTERS[direction]}';",
        f"inline constexpr bool persistent = {'true' if is_persistent else 'false'};",
        f"using T = {DTYPES[kernel.dtype]};",
        f"using Shape = {shape};",
        *before,
        f"using Partitioner = {partitioner};",
        f"using TileTraits = {universal};",
        f"template <bool HotLoop, {tails} Tail>",
        "struct Instance {",
        f"  using Problem = {problem};",
        f"  using Pipeline = {pipeline.name}<Problem>;",
        f"  using Epilogue = {epilogue_class}<{epilogue_problem}>;",
        f"  using Kernel = {api.arguments(kernel_class, arguments)};",
        "};",
        f"using Only = Instance<true, {only}>;",
        *host_args,
        *([f"#define TO_CK_TAIL_HANDLER {handler}"] if handler else []),
        "}  // namespace ck_tile::to_adapter",
        "",
        '#include "adapter.hpp"',
        "",
    ]
    return "\n".join(lines)


_DIRECTION_LETTERS = {"forward": "f", "bwd_data": "d", "bwd_weight": "w", "": "g"}


def _sequence(sizes: tuple[int, int, int]) -> str:
    return f"sequence<{', '.join(map(str, sizes))}>"
