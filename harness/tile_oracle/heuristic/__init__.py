"""The model side: features, training, prediction, evaluation, search."""
