"""What a pytest session with --problem-set does; harness.plugin's hooks delegate to this."""
