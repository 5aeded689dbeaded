"""Measurements of other tools: one contract for what their fields mean, a reader for each format."""
