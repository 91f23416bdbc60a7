//! What happened, as every process saw it, and whether it may happen.
