//! As much of HTTP/1.1 as clients of GitHub speak.

mod answer;
mod request;
mod server;
mod talk;

pub use answer::Answer;
pub use request::{Body, Request};
pub(crate) use server::{Delivery, Server};
pub use talk::Talk;
