"""What a pytest session with --problem-set does; tile_oracle.plugin's hooks delegate to this."""
