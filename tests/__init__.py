"""The tests; a package, so that no other distribution can shadow it on the path."""
