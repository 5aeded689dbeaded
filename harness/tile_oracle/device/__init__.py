"""The worker's side: devices, data, checks, timing. The parent process imports none of it."""
