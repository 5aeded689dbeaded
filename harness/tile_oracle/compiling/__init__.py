"""Builds kernels: toolchains, source generation, content-addressed cache, builder, inspection."""
