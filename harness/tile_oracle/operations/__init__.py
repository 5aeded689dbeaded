"""The package's own operations, one folder each. The other packages ask their descriptors."""
