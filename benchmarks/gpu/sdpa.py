"""PyTorch's scaled dot-product attention by its own backends, timed from CUDA graphs.

`python benchmarks/gpu/sdpa.py attention_validation sdpa.json` writes {problem id: {backend: milliseconds}}.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from cudnn import time_cpu, time_graph

from tile_oracle.operations.attention.problem import AttentionProblem
from tile_oracle.problem_set import load_problem_sets

BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


def time_attention(torch: Any, problem: AttentionProblem, backend: str, device: str = "cuda") -> float:
    """Milliseconds of one run. Raises RuntimeError where the backend does not take the problem."""
    attention, bias = (importlib.import_module(f"torch.nn.attention{part}") for part in ("", ".bias"))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[problem.dtype]
    q, k, v = (torch.randn(shape, device=device, dtype=dtype) for shape in problem.operand_shapes[:3])
    options: dict[str, Any] = {"enable_gqa": problem.group > 1}
    if problem.causal and problem.seq_q > 1:
        # PyTorch's is_causal aligns the mask at the top left; a single query sees every key in any case.
        if problem.seq_q == problem.seq_kv:
            options["is_causal"] = True
        else:
            options["attn_mask"] = bias.causal_lower_right(problem.seq_q, problem.seq_kv)

    def run() -> None:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    chosen = [getattr(attention.SDPBackend, backend)] if device == "cuda" else [attention.SDPBackend.MATH]
    with attention.sdpa_kernel(chosen), torch.no_grad():
        run()
        return time_cpu(run) if device == "cpu" else time_graph(torch, run)


def main(problem_set: str, output: str, device: str = "cuda") -> None:
    """Writes the times. A backend that refuses a problem is left out, and said."""
    import torch

    found: dict[str, dict[str, float]] = {}
    for problem in load_problem_sets(problem_set).problems:
        assert isinstance(problem, AttentionProblem)
        found[problem.id] = {}
        for backend in BACKENDS:
            try:
                found[problem.id][backend] = time_attention(torch, problem, backend, device)
            except RuntimeError as error:
                print(f"{problem.id} {backend}: {str(error).splitlines()[0][:100]}", flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
        Path(output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
