"""Builds CK Tile's own kernels: what a checkout offers, the source that instantiates it, its compilers.

Only `api` knows CK Tile's classes and parameters. `headers` finds and identifies a checkout, `declarations`
reads C++ declarations, `source` and `unit` write translation units, `toolchain` compiles them, and
`offload_bundle` extracts the GPU code from a library.
"""
