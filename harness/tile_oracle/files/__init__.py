"""Reading and writing files: safely, atomically, sealed."""
