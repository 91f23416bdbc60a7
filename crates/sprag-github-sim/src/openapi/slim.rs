//! GitHub's description without what we do not use: every test reads it, and the whole has 13 MB.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::api::ROUTES;
use crate::hash::hash;

/// The description of our endpoints, taken out of the whole once and kept beside it.
pub(super) fn load(whole: &Path) -> Value {
    let routes: String = ROUTES.iter().map(|route| route.kind() + "\n").collect();
    let name = format!("endpoints-{}.json", &hash(&routes)[..10]);
    let slim = whole.with_file_name(name);
    if let Ok(text) = std::fs::read(&slim)
        && let Ok(description) = serde_json::from_slice(&text)
    {
        return description;
    }
    let text = std::fs::read(whole).expect("the description can be read");
    let description = reduce(&serde_json::from_slice(&text).expect("the description is JSON"));
    // Another test may be doing the same. Without it, only time is lost.
    let draft = slim.with_extension(std::process::id().to_string());
    if std::fs::write(&draft, description.to_string()).is_ok() {
        drop(std::fs::rename(&draft, &slim));
    }
    description
}

fn reduce(whole: &Value) -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = &whole["paths"][route.template];
        paths.insert(route.template.to_owned(), plain(path));
    }
    let mut slim = json!({"paths": paths});
    let mut open = BTreeSet::from(["#/components/schemas/basic-error".to_owned()]);
    references(&slim, &mut open);
    let mut known = BTreeSet::new();
    while let Some(path) = open.pop_first() {
        if !known.insert(path.clone()) {
            continue;
        }
        let mut parts = path.trim_start_matches("#/components/").splitn(2, '/');
        let (Some(kind), Some(name)) = (parts.next(), parts.next()) else { continue };
        let component = plain(&whole["components"][kind][name]);
        let mut more = BTreeSet::new();
        references(&component, &mut more);
        open.extend(more.difference(&known).cloned());
        slim["components"][kind][name] = component;
    }
    slim
}

/// Without the words for people.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let wordy = |name: &str, value: &Value| {
                matches!(name, "description" | "example") && value.is_string() || name == "examples"
            };
            let kept = object.iter().filter(|(name, value)| !wordy(name, value));
            kept.map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match value.as_str() {
                    Some(path) if name == "$ref" => {
                        found.insert(path.to_owned());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_referred_to_stays() {
        let whole = json!({
            "paths": {
                "/user": {"get": {"schema": {"$ref": "#/components/schemas/a"}, "description": "x"}},
                "/unused": {"get": {}},
            },
            "components": {"schemas": {
                "a": {"properties": {"description": {"$ref": "#/components/schemas/b"}}},
                "b": {"type": "string"},
                "c": {"type": "string"},
            }},
        });
        let slim = reduce(&whole);
        assert_eq!(slim["paths"]["/user"]["get"]["description"], Value::Null);
        let names: Vec<_> = slim["components"]["schemas"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["a", "b", "basic-error"]);
        assert!(slim["components"]["schemas"]["a"]["properties"]["description"].is_object());
        assert_eq!(slim["paths"]["/unused"], Value::Null);
    }
}
