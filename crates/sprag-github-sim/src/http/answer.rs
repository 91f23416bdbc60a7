//! [`Answer`]: what the simulator says to a request.

use serde_json::{Value, json};

/// A status, headers and a JSON body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The status, such as 201.
    pub status: u16,
    /// Headers with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; `null` for none.
    pub body: Value,
}

impl Answer {
    /// A body with a status.
    pub(crate) const fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    /// 200 with a body.
    pub(crate) const fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    /// 204.
    pub(crate) const fn nothing() -> Self {
        Self::new(204, Value::Null)
    }

    /// An error as GitHub writes them.
    pub(crate) fn error(status: u16, message: &str) -> Self {
        let body = json!({
            "message": message,
            "documentation_url": "https://docs.github.com/rest",
            "status": status.to_string(),
        });
        Self::new(status, body)
    }

    /// 404.
    pub(crate) fn not_found() -> Self {
        Self::error(404, "Not Found")
    }

    /// 422 about one field.
    pub(crate) fn invalid(resource: &str, field: &str, code: &str) -> Self {
        let mut answer = Self::error(422, "Validation Failed");
        answer.body["errors"] = json!([{"resource": resource, "field": field, "code": code}]);
        answer
    }

    /// With one more header.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as it is sent.
    pub(crate) fn text(&self) -> String {
        if self.body.is_null() { String::new() } else { self.body.to_string() }
    }

    /// The whole answer as it is sent.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let text = self.text();
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !text.is_empty() {
            head.push_str("content-type: application/json; charset=utf-8\r\n");
        }
        // These never have a body, and a length would be taken for one.
        if !matches!(self.status, 204 | 304) {
            head.push_str(&format!("content-length: {}\r\n", text.len()));
        }
        head.push_str("\r\n");
        head.push_str(&text);
        head.into_bytes()
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        410 => "Gone",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Something Else",
    }
}
