//! [`OUTER`]: the store of the run around this one, whose URL has a secret in it.
//!
//! Such a URL is not written into the environment of the command. What is written there is this
//! name, and the inner sprag asks for the URL over `SPRAG_SOCKET`. It also does so where `SPRAG_STORE` was
//! taken away.

use std::path::PathBuf;

use super::socket;
use crate::code::Code;
use crate::failure::Failure;

/// What stands for that URL in `SPRAG_STORE`.
pub(crate) const OUTER: &str = "outer:";

/// The URL of the store of the run around this one.
///
/// # Errors
///
/// If that one cannot be asked. No other store is taken instead: its locks would exclude nobody.
pub(crate) fn store() -> Result<String, Failure> {
    let Some(socket) = std::env::var_os("SPRAG_SOCKET").filter(|path| !path.is_empty()) else {
        return Err(refuse("SPRAG_SOCKET, where that run is asked for its store, is not set"));
    };
    let socket = PathBuf::from(socket);
    match socket::ask_for_store(&socket) {
        Ok(Some(url)) => Ok(url),
        Ok(None) => Err(refuse("the run behind SPRAG_SOCKET does not tell its store")),
        Err(error) => {
            let at = format!("{}: {error}", socket.display());
            Err(refuse("that run cannot be asked for its store; it may be over").fact("socket", at))
        }
    }
}

fn refuse(why: &str) -> Failure {
    let message = format!("the store of the sprag run around this is not known: {why}");
    Failure::new(Code::Config, message)
        .advice("name the store with -S, or set SPRAG_STORE to its URL")
}
