//! Circles that must be found, and chains that must not.
