"""This process: its memory, collector and cores."""
