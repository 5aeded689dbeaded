// Clang's own is not needed by a double.
