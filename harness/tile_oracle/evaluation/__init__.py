"""How well models pick and predict on held-out measurements."""
