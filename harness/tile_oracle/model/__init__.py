"""Trained models: their parts, their folders, and what they predict."""
