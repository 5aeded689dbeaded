"""Recorded measurements: the row, the crash-safe writer, datasets, importers of foreign files."""
