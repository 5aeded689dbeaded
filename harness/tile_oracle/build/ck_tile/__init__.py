"""CK Tile's own kernels as binaries: what a checkout offers, the source that instantiates it, its compilers.

`api` is the one module that knows CK Tile's classes and parameters; `headers` finds a checkout and says which
it is, `declarations` reads C++ declarations, `source` writes translation units, `toolchain` compiles them,
`offload_bundle` takes the GPU's part out of a library again.
"""
