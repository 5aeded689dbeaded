"""Nightly sessions, started by a scheduler, that keep baselines and a history."""
