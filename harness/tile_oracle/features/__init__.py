"""Model inputs computed from problems and kernels: columns, formulas, feature schemas."""
