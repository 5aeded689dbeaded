"""From kernels to binaries: toolchains, source generation, content-addressed cache, builder, inspection."""
