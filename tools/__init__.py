"""Tools for the makers of the project; not part of the wheel."""
