"""Matrix products: what is particular to the operation."""
