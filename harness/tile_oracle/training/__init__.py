"""Records to a trained model: rows, folds, recipes, cross-validation, and smaller models."""
