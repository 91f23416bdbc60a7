//! [`Http`]: sends one request and brings back the answer. No retries, no redirects, no cache.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use sprag_core::{Error, ErrorKind, Result};
use ureq::http::{HeaderMap, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::call::{Answer, Call, Facts, Method};
use crate::config::GitHubConfig;
use crate::error::error;
use crate::token::Token;

/// No answer that we understand is larger: a hundred issues or comments, with room to spare.
pub(crate) const LARGEST: u64 = 16 << 20;
const CONNECT: Duration = Duration::from_secs(5);
/// The version of the API whose answers we know.
const VERSION: &str = "2022-11-28";

/// A connection to GitHub's API, kept alive.
#[derive(Debug)]
pub(crate) struct Http {
    agent: Agent,
    api: String,
    graphql: String,
    token: Token,
}

impl Http {
    pub(crate) fn new(config: &GitHubConfig, token: Token) -> Result<Self> {
        let mut builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(config.timeout))
            .timeout_connect(Some(CONNECT.min(config.timeout)))
            .user_agent(concat!("sprag/", env!("CARGO_PKG_VERSION")))
            .https_only(!config.is_local());
        builder = if config.is_local() { builder.proxy(None) } else { builder.tls_config(tls()?) };
        // On a server of one's own GraphQL lives beside `/api/v3`, not below it.
        let graphql = match config.api.strip_suffix("/api/v3") {
            Some(server) => format!("{server}/api/graphql"),
            None => format!("{}/graphql", config.api),
        };
        Ok(Self { agent: builder.build().new_agent(), api: config.api.clone(), graphql, token })
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// If there was no whole answer; what was asked for may be done or not.
    pub(crate) fn send(&self, call: &Call, etag: Option<&str>) -> Result<Answer> {
        let url = if call.path == GRAPHQL {
            self.graphql.clone()
        } else {
            format!("{}{}", self.api, call.path)
        };
        let method = match call.method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        };
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header("authorization", format!("Bearer {}", self.token.reveal()))
            .header("accept", "application/vnd.github+json")
            .header("x-github-api-version", VERSION);
        if let Some(etag) = etag {
            request = request.header("if-none-match", etag);
        }
        let answer = match &call.body {
            None => {
                let request = request.body(()).map_err(|e| unsendable(&e))?;
                self.agent.run(request)
            }
            Some(body) => {
                let request = request
                    .header("content-type", "application/json")
                    .body(body.to_string())
                    .map_err(|e| unsendable(&e))?;
                let request = self.agent.configure_request(request);
                self.agent.run(request.allow_non_standard_methods(true).build())
            }
        };
        self.read(call, answer)
    }

    fn read(&self, call: &Call, answer: Result<Response<Body>, ureq::Error>) -> Result<Answer> {
        let answer = answer.map_err(|e| self.no_answer(call, &e))?;
        let (parts, mut body) = answer.into_parts();
        let body = body.with_config().limit(LARGEST).read_to_vec();
        let body = body.map_err(|e| self.no_answer(call, &e))?;
        Ok(Answer { status: parts.status.as_u16(), body, facts: facts(&parts.headers) })
    }

    fn no_answer(&self, call: &Call, cause: &ureq::Error) -> Error {
        let host = self.api.trim_start_matches("https://");
        let message = match cause {
            ureq::Error::BodyExceedsLimit(_) => {
                let most = LARGEST >> 20;
                format!("{host} answered {} with more than {most} MiB: check api", call.shown())
            }
            _ => format!("{host} did not answer {}: {cause}", call.shown()),
        };
        error(ErrorKind::Unavailable, message)
    }
}

/// The path that means GraphQL.
pub(crate) const GRAPHQL: &str = "/graphql";

fn unsendable(cause: &ureq::http::Error) -> Error {
    error(ErrorKind::BadInput, format!("that cannot be asked of GitHub: {cause}"))
}

fn tls() -> Result<TlsConfig> {
    let roots = rustls_native_certs::load_native_certs().certs;
    if roots.is_empty() {
        let message = "no certificates of authorities: install ca-certificates";
        return Err(error(ErrorKind::Refused, message));
    }
    let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build())
}

fn facts(headers: &HeaderMap) -> Facts {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let owned = |name: &str| text(name).map(str::to_owned);
    let number = |name: &str| text(name).and_then(|value| value.trim().parse().ok());
    Facts {
        etag: owned("etag"),
        next: text("link").and_then(next_page),
        location: owned("location"),
        date: text("date").and_then(unix_seconds),
        retry_after: number("retry-after"),
        limit: number("x-ratelimit-limit"),
        remaining: number("x-ratelimit-remaining"),
        reset: number("x-ratelimit-reset"),
        resource: owned("x-ratelimit-resource"),
    }
}

/// Where a `Link` header says that the next page is: only what comes behind the host, so that no
/// answer sends the token elsewhere.
fn next_page(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains(r#"rel="next""#))?;
    let url = next.trim().strip_prefix('<')?.split('>').next()?;
    let query = url.split_once('?')?.1;
    Some(query.to_owned())
}

/// Reads `Tue, 15 Nov 1994 08:12:31 GMT`.
pub(crate) fn unix_seconds(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<_> = date.split_ascii_whitespace().collect();
    let [_, day, month, year, time, _] = parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let mut clock = time.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let days = crate::time::days_since_1970(
        year.parse().ok()?,
        u64::try_from(month).ok()?,
        day.parse().ok()?,
    )?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        assert_eq!(unix_seconds("Tue, 15 Nov 1994 08:12:31 GMT"), Some(784_887_151));
        assert_eq!(unix_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(unix_seconds("yesterday"), None);
    }

    #[test]
    fn the_next_page_is_asked_of_the_same_host() {
        let link = r#"<https://evil.com/x?page=1>; rel="prev", <https://evil.com/x?page=3&a=b>; rel="next""#;
        assert_eq!(next_page(link).unwrap(), "page=3&a=b");
        assert_eq!(next_page(r#"<https://a/x?page=1>; rel="last""#), None);
    }
}
