//! The simulator, asked over its port as any client would.

#[cfg(test)]
mod access;
#[cfg(test)]
mod emulate;
#[cfg(test)]
mod gh;
#[cfg(test)]
mod graphql;
#[cfg(test)]
mod issues;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod refs;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trouble;
