"""Builds CK Tile's own kernels: detects what a checkout supports, writes the source and compiles it.

Only `api` knows CK Tile's classes and parameters. `headers` finds and identifies a checkout, `declarations`
reads C++ declarations, `source` and `unit` write translation units, `toolchain` compiles them, and
`offload_bundle` extracts the GPU code from a library.
"""
