"""The vendors' runtimes through ctypes. Only a worker process imports what is in here."""
