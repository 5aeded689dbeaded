"""The matrix product of the package fla-core (flash-linear-attention), as tile-oracle measures it."""

from fla.ops.utils.matmul import matmul_kernel

from tile_oracle.triton import cdiv, gemm

tuned = matmul_kernel.fn  # below @triton.heuristics, whose values stand in `plain`
plain = {"input": None, "alpha": None, "beta": None, "stride_ab": 0, "stride_cb": 0, "ACTIVATION": ""}
plain |= {"HAS_INPUT": False, "HAS_ALPHA": False, "HAS_BETA": False, "ALLOW_TF32": True}


def operands(p):
    """C = A B in one batch."""
    names = (*("M", "N", "K"), *(f"stride_{one}" for one in ("am", "ak", "bk", "bn", "cm", "cn")))
    return {"a": p.a, "b": p.b, "c": p.c, **plain, **{name: getattr(p, name) for name in names}}


gemm(
    grid=lambda meta: (1, cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"])),
    arguments=operands,
)(tuned)
