"""What a model reads of a problem and a kernel: columns, formulas, schemas."""
