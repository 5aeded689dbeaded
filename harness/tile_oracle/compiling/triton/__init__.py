"""Kernels that users write in Triton, as a kernel source.

`user_file`, `describe`, `specify` and `compile_unit` run in child processes, since only they import
Triton and the user's file. `child_process` starts them. `description` is what they answer: every kernel as
data. `kernel_source` and `toolchain` build from it; the worker needs neither Triton nor the file.
"""
