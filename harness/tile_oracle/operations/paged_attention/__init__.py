"""Attention as it is served: keys and values in pages, sequences of different lengths, sinks and windows."""
