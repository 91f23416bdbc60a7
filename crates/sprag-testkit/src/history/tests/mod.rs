//! Every check sees the violation it is for, and nothing in histories that are as they should be.

mod model;
mod properties;
pub(super) mod samples;
mod seeded;
mod seeded_truth;
