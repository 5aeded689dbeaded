"""A verifier of gfx9 machine code: proves that all required waits, barriers and wait states are present.

The order of the modules is the order of the work: `assembly` reads text, `registers` and `instructions` say
what each instruction reads, writes and counts, `graph` makes blocks of a function, `counters` and
`wait_states` follow what is outstanding along all paths, `rules` applies them, `findings` shows what was
found, `verifier` is the entry. `sources` finds the text: the compiler's assembly, or a disassembly of a
code object.
"""
