"""Recorded measurements: row schema, crash-safe writer, datasets, importers of foreign files."""
