"""Readers of files that list problems, one module per kind of file."""
