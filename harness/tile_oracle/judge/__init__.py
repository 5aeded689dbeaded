"""Baselines, acceptance criteria and the verdict on a run. docs/gate.md is the prose of this package."""
