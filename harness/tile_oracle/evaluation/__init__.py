"""Evaluation of models on held-out measurements: picks and predictions."""
