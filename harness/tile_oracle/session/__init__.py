"""The implementation of `pytest --problem-set`; tile_oracle.plugin's hooks delegate to this."""
