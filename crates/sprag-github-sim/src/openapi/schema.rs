//! [`Schemas`]: as much of JSON Schema as GitHub's description uses.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::Findings;
use crate::stamp::Stamp;

/// The description, which schemas refer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schemas<'a> {
    description: &'a Value,
    /// Whether there may be fields that are not described.
    pub(super) loose: bool,
}

impl<'a> Schemas<'a> {
    pub(super) const fn new(description: &'a Value) -> Self {
        Self { description, loose: false }
    }

    /// Follows `$ref`.
    pub(super) fn resolve(self, schema: &'a Value) -> &'a Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(path) => {
                let place = self.description.pointer(path.trim_start_matches('#'));
                place.map_or(&Value::Null, |schema| self.resolve(schema))
            }
            None => schema,
        }
    }

    /// Finds everything that is wrong with a value.
    pub(super) fn check(
        self,
        schema: &'a Value,
        value: &Value,
        place: &str,
        findings: &mut Findings,
    ) {
        let schema = self.resolve(schema);
        if value.is_null() && schema["nullable"] == true {
            return;
        }
        if let Some(list) = list(schema, "allOf") {
            // Each of them describes a part of the fields.
            let loose = Self { loose: true, ..self };
            for part in list {
                loose.check(part, value, place, findings);
            }
        }
        // `oneOf` is read as `anyOf`: in GitHub's description the alternatives overlap.
        for word in ["anyOf", "oneOf"] {
            if let Some(list) = list(schema, word) {
                self.check_any(list, value, place, findings);
            }
        }
        if !fits_type(schema, value) {
            let message = format!("is {value}, where {} is wanted", schema["type"]);
            findings.push((place.to_owned(), message));
            return;
        }
        if let Some(allowed) = list(schema, "enum")
            && !allowed.contains(value)
        {
            findings.push((place.to_owned(), format!("{value} is not one of {allowed:?}")));
        }
        match value {
            Value::String(text) => check_text(schema, text, place, findings),
            Value::Array(items) if !schema["items"].is_null() => {
                for (at, item) in items.iter().enumerate() {
                    self.check(&schema["items"], item, &format!("{place}[{at}]"), findings);
                }
            }
            Value::Object(object) => self.check_object(schema, object, place, findings),
            _ => {}
        }
    }

    /// At least one has to fit; if none does, the complaints of the closest are told.
    fn check_any(
        self,
        alternatives: &'a [Value],
        value: &Value,
        place: &str,
        findings: &mut Findings,
    ) {
        let complaints = alternatives.iter().map(|schema| {
            let mut findings = Vec::new();
            self.check(schema, value, place, &mut findings);
            findings
        });
        // One that is of another kind altogether is further away than one with many mistakes.
        let distance = |complaints: &Findings| {
            (complaints.iter().any(|(at, _)| at == place), complaints.len())
        };
        findings.extend(complaints.min_by_key(distance).into_iter().flatten());
    }

    fn check_object(
        self,
        schema: &'a Value,
        object: &Map<String, Value>,
        place: &str,
        findings: &mut Findings,
    ) {
        for name in list(schema, "required").into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                findings.push((format!("{place}.{name}"), "is missing".into()));
            }
        }
        let Some(known) = schema["properties"].as_object() else { return };
        for (name, value) in object {
            let mut inner = place.to_owned();
            write!(inner, ".{name}").expect("a text takes everything");
            match (known.get(name), &schema["additionalProperties"]) {
                (Some(schema), _) => self.check(schema, value, &inner, findings),
                (None, more @ Value::Object(_)) => self.check(more, value, &inner, findings),
                (None, Value::Bool(true)) => {}
                (None, _) if self.loose => {}
                // Allowed by the letter, but a misspelt name is what it usually is.
                (None, _) => findings.push((inner, "is not described".into())),
            }
        }
    }
}

fn list<'a>(schema: &'a Value, word: &str) -> Option<&'a [Value]> {
    schema.get(word)?.as_array().map(Vec::as_slice)
}

fn fits_type(schema: &Value, value: &Value) -> bool {
    match schema["type"].as_str() {
        None => true,
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(_) => false,
    }
}

fn check_text(schema: &Value, text: &str, place: &str, findings: &mut Findings) {
    let good = match schema["format"].as_str() {
        Some("uri") => text.contains("://") && !text.contains(['{', ' ']),
        Some("date-time") => Stamp::parse(text).is_some(),
        Some("email") => text.contains('@'),
        _ => true,
    };
    if !good {
        findings.push((place.to_owned(), format!("{text:?} is no {}", schema["format"])));
    }
    let length = text.chars().count() as u64;
    let limits = [("minLength", false), ("maxLength", true)];
    for (word, most) in limits {
        if let Some(limit) = schema[word].as_u64()
            && length != limit
            && (length > limit) == most
        {
            findings.push((place.to_owned(), format!("{text:?} breaks {word} {limit}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn findings(value: &Value) -> Vec<String> {
        let description = json!({"components": {"name": {"type": "string", "maxLength": 3}}});
        let schema = json!({
            "type": "object",
            "required": ["name", "state"],
            "properties": {
                "name": {"$ref": "#/components/name"},
                "state": {"type": "string", "enum": ["open", "closed"], "nullable": true},
                "list": {"type": "array", "items": {"anyOf": [
                    {"type": "integer"},
                    {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
                ]}},
                "at": {"type": "string", "format": "date-time"},
            },
        });
        let mut findings = Vec::new();
        Schemas::new(&description).check(&schema, value, "x", &mut findings);
        findings.into_iter().map(|(place, message)| format!("{place} {message}")).collect()
    }

    #[test]
    fn what_is_as_described_passes() {
        let at = "2026-01-01T00:00:00Z";
        let good = json!({"name": "abc", "state": null, "list": [1, {"id": "x"}], "at": at});
        assert_eq!(findings(&good), [""; 0]);
    }

    #[test]
    fn everything_that_is_wrong_is_found_with_its_place() {
        assert_eq!(findings(&json!([])), ["x is [], where \"object\" is wanted"]);
        let bad = json!({"name": "abcd", "list": [{}, "a"], "at": "now", "nmae": 1});
        let mut found = findings(&bad);
        found.sort();
        assert_eq!(
            found,
            [
                "x.at \"now\" is no \"date-time\"",
                "x.list[0].id is missing",
                "x.list[1] is \"a\", where \"integer\" is wanted",
                "x.name \"abcd\" breaks maxLength 3",
                "x.nmae is not described",
                "x.state is missing",
            ]
        );
        let wrong = json!({"name": "a", "state": "ajar"});
        assert_eq!(findings(&wrong).len(), 1);
    }
}
