"""The native ranker, which picks a kernel in microseconds."""
