"""A verifier of gfx9 machine code: proves that all required waits, barriers and wait states are present.

The modules in the order of the work: `assembly` parses text; `registers` and `instructions` give what each
instruction reads, writes and counts; `graph` builds the control-flow graph; `counters` and `wait_states`
track what is outstanding along all paths; `rules` checks it; `findings` holds the results. `verifier` is the
entry point. The text is the compiler's assembly or a disassembly (tile_oracle.compiling.disassembly).
"""
