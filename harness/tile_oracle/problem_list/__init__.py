"""Files that list problems; one module reads each kind."""
