"""Measuring: isolated, checked before timed, streamed."""
