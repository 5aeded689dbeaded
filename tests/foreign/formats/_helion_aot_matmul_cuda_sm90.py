def autotune_matmul(m, n, k):
    return {"block_sizes": [128, 64, 32], "num_warps": 8 if m * n > 65536 else 4}
