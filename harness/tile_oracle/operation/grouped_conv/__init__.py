"""The operation grouped convolution."""
