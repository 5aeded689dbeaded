"""Recorded measurements: row schema, crash-safe writer, datasets."""
