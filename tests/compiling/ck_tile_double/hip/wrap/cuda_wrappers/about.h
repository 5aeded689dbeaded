// Clang's wrappers of the C++ library would be here.
