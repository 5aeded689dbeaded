"""The published feature schemas of grouped convolution: 97, 91 and 83 columns.

Models trained elsewhere depend on exactly these values, so two of their errors are kept on purpose. A
kernel's name has tile_m x tile_n x tile_k, but these schemas read the three numbers as block size x m x n;
and they describe the GEMM of all groups together, with N = K.
"""

from __future__ import annotations

from tile_oracle.features.feature_table import ELEMENT_BYTES, Feature, FeatureSchema
from tile_oracle.features.formulas import formulas

PIPELINE_CODES: dict[str, float] = {
    "compv3": 0, "compv4": 1, "compv5": 2, "mem": 3, "preshufflev2": 4, "basic_v1": 5, "compv6": 6,
}  # fmt: skip
"""Published codes; a pipeline that is not listed counts as 0."""

HARDWARE_FEATURES: tuple[Feature, ...] = formulas("""
hw_num_cus  # compute units
hw_simds_per_cu  # SIMDs in a compute unit
hw_total_simds  # SIMDs in all compute units
hw_shader_engines  # shader engines
hw_max_clock_mhz  # highest clock, MHz
hw_max_waves_per_cu  # waves that a compute unit holds
hw_wavefront_size  # lanes of a wave
hw_lds_capacity  # LDS by the published count, bytes
hw_l1_cache_kb  # vector L1 cache of a compute unit, KiB
hw_l2_cache_kb  # L2 cache of a die, KiB
hw_l3_cache_kb  # last-level cache, KiB
hw_num_xcd  # compute dies
""")
"""The twelve hardware columns at the end of every published schema."""
_INTERMEDIATES = formulas("""
bytes_each = dtype  # bytes of one element
Cg = C / G  # input channels of a group
Kg = K / G  # output channels of a group
in_volume = Di * Hi * Wi  # input positions of an image
out_volume = Do * Ho * Wo  # output positions of an image
""")

_FEATURES = formulas("""
N  # images
C  # input channels, all groups
K  # output channels, all groups
G  # groups
Hi  # input rows
Wi  # input columns
Y  # filter rows
X  # filter columns
stride_h  # step along rows
stride_w  # step along columns
pad_h  # rows of padding on each side
pad_w  # columns of padding on each side
Ho = (Hi + 2 * pad_h - ((Y - 1) * dilation_h + 1)) // stride_h + 1  # output rows
Wo = (Wi + 2 * pad_w - ((X - 1) * dilation_w + 1)) // stride_w + 1  # output columns
log2_N = log2_of(N)  # log2 of N
log2_C = log2_of(C)  # log2 of C
log2_K = log2_of(K)  # log2 of K
log2_G = log2_of(G)  # log2 of G
log2_Hi = log2_of(Hi)  # log2 of Hi
log2_Wi = log2_of(Wi)  # log2 of Wi
log2_spatial = log2_of(in_volume)  # log2 of the input positions
log2_filter = log2_of(filter_area)  # log2 of the filter taps
log2_output = log2_of(out_volume)  # log2 of the output positions
arithmetic_intensity = 2 * N * K * out_volume * Cg * filter_area / (
    bytes_each * (N * C * in_volume + K * Cg * filter_area + N * K * out_volume)
)  # floating-point operations per byte, each tensor moved once
filter_area = Z * Y * X  # filter taps
is_1x1_conv = (Y == 1) & (X == 1) & (Z == 1)  # one tap
is_3x3_conv = (Y == 3) & (X == 3) & ((Z == 3) | (is_3d == 0))  # three taps along every axis
channels_per_group = Cg  # C/G
aspect_ratio_hw = Hi / Wi  # Hi/Wi
aspect_ratio_filter = Y / X  # Y/X
is_3d = (Di > 1) | (Z > 1) | (pad_d > 0)  # the problem has depth
Di  # input planes
Z  # filter planes
Do = where(is_3d == 0, 1.0, (Di + 2 * pad_d - ((Z - 1) * dilation_d + 1)) // stride_d + 1)  # output planes
stride_d  # step along planes
pad_d  # planes of padding on each side
dilation_h  # distance of filter rows
dilation_w  # distance of filter columns
log2_channels_per_group = log2_of(Cg)  # log2 of C/G
log2_output_channels_per_group = log2_of(Kg)  # log2 of K/G
is_depthwise = (G == C) & (G == K)  # one channel per group
group_density = G / C  # G/C
is_small_group = (Cg < 16) | (Kg < 16)  # a group has under 16 channels
channels_product_per_group = Cg * Kg  # (C/G)(K/G)
batch_group_product = N * G  # N G
is_small_batch_grouped = (N < 8) & (G > 1)  # few images, several groups
block_size = tile_m  # first number of the tile
gemm_m_per_block = tile_n  # second number of the tile
gemm_n_per_block = tile_k  # third number of the tile
pipeline  # published pipeline code
num_warps = block_size / 4  # block size / 4
tile_volume = tile_mn * block_size  # m n b
tile_mn = gemm_m_per_block * gemm_n_per_block  # m n
lds_usage_estimate = (gemm_m_per_block + gemm_n_per_block) * block_size * bytes_each
    # bytes of both operand tiles
lds_usage_ratio = lds_usage_estimate / where(is_compv4 == 1, 32768.0, 65536.0)
    # share of the LDS that the pipeline can use
block_tile_ratio_m = gemm_m_per_block / block_size  # m/b
block_tile_ratio_n = gemm_n_per_block / block_size  # n/b
block_efficiency = minimum(gemm_m_per_block, gemm_n_per_block) / maximum(gemm_m_per_block, gemm_n_per_block)
    # min(m, n)/max(m, n)
is_compv3 = pipeline == "compv3"  # pipeline compv3
is_compv4 = pipeline == "compv4"  # pipeline compv4
is_compv5 = pipeline == "compv5"  # pipeline compv5
is_intrawave = scheduler == "intrawave"  # one wave ahead
has_dsb = double_smem_buffer  # two LDS buffers
has_si = split_image  # the image is split
is_basic = starts(pipeline, "basic_v")  # pipeline basic_vN
is_compv6 = pipeline == "compv6"  # pipeline compv6
is_mem = pipeline == "mem"  # pipeline mem
gemm_m_output = N * out_volume  # M: output positions of the batch
gemm_n_output = K  # N: output channels, all groups together
gemm_k_output = trunc(Cg * filter_area)  # K: (C/G) taps
num_tiles_m = ceil_div(gemm_m_output, gemm_m_per_block)  # ceil(M/m)
num_tiles_n = ceil_div(gemm_n_output, gemm_n_per_block)  # ceil(N/n)
num_tiles_k = ceil_div(gemm_k_output, block_size)  # ceil(K/b)
total_output_tiles = num_tiles_m * num_tiles_n  # output tiles
tile_eff_m = tile_fill(gemm_m_output, gemm_m_per_block)  # fill of the last tile along M
tile_eff_n = tile_fill(gemm_n_output, gemm_n_per_block)  # fill of the last tile along N
tile_eff_k = tile_fill(gemm_k_output, block_size)  # fill of the last tile along K
overall_tile_efficiency = tile_eff_m * tile_eff_n * tile_eff_k  # product of the three
cu_utilization = ratio(total_output_tiles, hw_num_cus)  # output tiles per CU
ratio_gemm_m_to_tile_m = gemm_m_output / gemm_m_per_block  # M/m
ratio_gemm_n_to_tile_n = gemm_n_output / gemm_n_per_block  # N/n
ratio_gemm_k_to_tile_k = gemm_k_output / block_size  # K/b
problem_smaller_than_tile_m = gemm_m_output < gemm_m_per_block  # M < m
problem_smaller_than_tile_n = gemm_n_output < gemm_n_per_block  # N < n
problem_smaller_than_tile_k = gemm_k_output < block_size  # K < b
""")

GROUPED_CONV_97 = FeatureSchema(
    "grouped_conv_97",
    "grouped_conv",
    (*_FEATURES, *HARDWARE_FEATURES),
    _INTERMEDIATES,
    {"dtype": ELEMENT_BYTES, "pipeline": PIPELINE_CODES},
    ("pipeline",),
)
"""2D, 3D, dilation, and the flags that a kernel's name says after its pipeline."""
