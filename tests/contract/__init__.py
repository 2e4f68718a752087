"""One suite of tests that every pool of the package has to pass."""
