//! What the end-to-end tests share: finding the built binaries, private daemons, and the check that nothing is left.
