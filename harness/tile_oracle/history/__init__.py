"""The history of many runs: one page over all nights, with steps told from noise."""
