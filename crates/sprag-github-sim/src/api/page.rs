//! Long lists come in pages.

use serde_json::Value;

use super::Context;
use crate::http::Answer;

/// One page of a list, with the `link` header to the others.
pub(super) fn page<T>(
    context: &Context<'_>,
    repo: u64,
    items: &[T],
    render: impl Fn(&T) -> Value,
) -> Answer {
    let number = |name, otherwise: usize| {
        let value = context.request.query(name).and_then(|value| value.parse().ok());
        value.filter(|value| *value > 0).unwrap_or(otherwise)
    };
    let (size, page) = (number("per_page", 30).min(100), number("page", 1));
    let last = items.len().div_ceil(size).max(1);
    let shown = items.iter().skip(page.saturating_sub(1).saturating_mul(size)).take(size);
    let answer = Answer::ok(shown.map(render).collect());
    let mut links = Vec::new();
    let mut link = |page: usize, relation: &str| {
        let mut address = match context.request.path.first().map(String::as_str) {
            Some("repos") => context.address(repo, &context.request.path[3..]),
            _ => format!("{}/{}", context.base, context.request.path.join("/")),
        };
        address.push_str(&format!("?page={page}"));
        for (name, value) in context.request.query.iter().filter(|(name, _)| name != "page") {
            let value = value.replace('%', "%25").replace('&', "%26").replace(' ', "+");
            address.push_str(&format!("&{name}={}", value.replace('"', "%22").replace('#', "%23")));
        }
        links.push(format!("<{address}>; rel=\"{relation}\""));
    };
    if page > 1 {
        link(page.min(last + 1) - 1, "prev");
        link(1, "first");
    }
    if page < last {
        link(page + 1, "next");
        link(last, "last");
    }
    if links.is_empty() { answer } else { answer.with("link", links.join(", ")) }
}
