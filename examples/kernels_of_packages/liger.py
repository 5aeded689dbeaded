"""RMS normalization and softmax of the package liger-kernel, as tile-oracle measures them."""

from liger_kernel.ops.rms_norm import _rms_norm_forward_kernel
from liger_kernel.ops.softmax import _softmax_multi_block_forward_kernel, _softmax_single_block_forward_kernel

from tile_oracle.triton import rms_norm, softmax


def of_row(x, y, columns):
    """The arguments that all of them take."""
    return {"X_ptr": x, "Y_ptr": y, "X_row_stride": columns, "Y_row_stride": columns, "n_cols": columns}


rows = {"dtypes": ["fp32", "fp16", "bf16"], "configs": [{"BLOCK_SIZE": 1024}]}
rows |= {"grid": lambda meta: (meta["rows"],), "arguments": lambda p: of_row(p.x, p.y, p.length)}
softmax(**rows, constraints=lambda p, meta: [p.length <= 1024])(_softmax_single_block_forward_kernel)
softmax(**rows)(_softmax_multi_block_forward_kernel)

weights = {"W_row_stride": 1, "RSTD_row_stride": 1, "offset": 0.0, "elementwise_affine": True}
rms_norm(
    grid=lambda meta: (meta["tokens"],),
    arguments=lambda p: (
        of_row(p.x, p.y, p.hidden) | {"W_ptr": p.w, "RSTD_ptr": p.workspace(), "eps": p.epsilon, **weights}
    ),
    configs=[{"BLOCK_SIZE": 1024, "casting_mode": mode} for mode in (0, 1)],
    constraints=lambda p, meta: [p.hidden <= 1024],
    workspace_bytes=lambda p, meta: 4 * p.tokens,
)(_rms_norm_forward_kernel)
