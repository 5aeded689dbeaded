"""The vendors' runtimes through ctypes. Only a worker process imports this package."""
