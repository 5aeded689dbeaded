"""Grouped convolutions of CK Tile (see `tile_oracle.operation.descriptor`)."""

from __future__ import annotations

from tile_oracle.compiling.ck_tile.api import CONV_KERNELS, CONV_LAYOUTS, CONVERT, CkTileApi, Pipeline
from tile_oracle.compiling.ck_tile.unit import UnitParts, check_there, partitioner, pipeline_of, unit_text
from tile_oracle.errors import KernelError
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem

_CONV = "tensor_layout::convolution::"
_LETTERS = {"forward": "f", "bwd_data": "d", "bwd_weight": "w"}

_TAKES_MORE_STEPS = frozenset({"compv3"})
"""Pipelines whose instance for a long loop is also correct for a shorter one: further steps add zeros."""


def unit(api: CkTileApi, kernel: GroupedConvKernel) -> str:
    """Returns the kernel's translation unit. Raises KernelError when this CK Tile does not have the
    kernel."""
    direction = kernel.direction
    check_there(api, direction)
    pipeline = pipeline_of(api, kernel, kernel.double_smem_buffer, api.gemm_layouts[direction])
    _check_has(api, kernel, pipeline)
    if kernel.specialization not in api.specializations:
        raise KernelError(f"specialization: this CK Tile has no {kernel.specialization}")
    kernel_class, args_class = CONV_KERNELS[direction]
    vectors = {"vectorsizea": kernel.vector_a, "vectorsizeb": kernel.vector_b, "vectorsizec": kernel.vector_c}
    widths = {name: str(width) for name, width in vectors.items()}
    own = "FixedGemmParams" in api.templates["GroupedConvTraits"].body
    args = api.templates[args_class]
    features = ["#define TO_CK_SPLIT_IMAGE"] if kernel.split_image else []
    if kernel.two_stage:
        features += [f"using Convert = {_convert(api)};", "#define TO_CK_TWO_STAGE"]
    if kernel.pipeline in _TAKES_MORE_STEPS:
        features.append("#define TO_CK_TAKES_MORE_STEPS")
    parts = UnitParts(
        op="TO_CK_CONV",
        letter=_LETTERS[direction],
        layouts=api.gemm_layouts[direction],
        widths={**widths, "fixedvectorsize": "true"},
        double_buffer=kernel.double_smem_buffer,
        partitioner=partitioner(api, spatially_local=own),
        kernel_class=kernel_class,
        before=[f"using Conv = {_traits(api, kernel, widths)};"],
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
        result="float" if kernel.two_stage else "T",
    )
    return unit_text(api, kernel, pipeline, parts)


def _check_has(api: CkTileApi, kernel: GroupedConvKernel, pipeline: Pipeline) -> None:
    """Raises KernelError for an option that this CK Tile's kernel for the direction does not support."""
    direction = kernel.direction
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


def _traits(api: CkTileApi, kernel: GroupedConvKernel, widths: dict[str, str]) -> str:
    image, filters, result = CONV_LAYOUTS[kernel.ndim]
    extra = {
        "numgroupstomerge": str(kernel.num_groups_to_merge) if kernel.num_groups_to_merge > 1 else "",
        "enablesplitimage": "true" if kernel.split_image else "",
        "explicitgemm": "true" if kernel.explicit_gemm else "",
    }
    wanted = {name: value for name, value in extra.items() if value}
    return api.arguments(
        "GroupedConvTraits",
        {
            "ndimspatial": str(kernel.ndim),
            "convspecialization": f"ConvolutionSpecialization::{kernel.specialization}",
            "inlayout": _CONV + image,
            "weilayout": _CONV + filters,
            "dslayout": "tuple<>",
            "outlayout": _CONV + result,
            **widths,
            **wanted,
        },
        needed=tuple(wanted),
    )


def _convert(api: CkTileApi) -> str:
    """Returns the kernel that rounds the sums of two_stage, tiled as in CK Tile's example. Raises
    KernelError."""
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


def problem_refusal(problem: GroupedConvProblem) -> str | None:
    """None: CK Tile's kernels check their arguments themselves."""
    return None
