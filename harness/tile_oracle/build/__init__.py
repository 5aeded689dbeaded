"""Kernel -> binary: toolchains, source generation, content-addressed cache, builder, inspection."""
