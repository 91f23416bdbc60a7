//! Whether a query and its answer are as GitHub's schema says.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Plan;
use super::parse::{Document, Selection};
use super::schema::{Field, Kind, Schema, Type, fits_enum, fits_scalar};

/// Finds everything that is wrong, with its place.
pub(crate) fn check(schema: &Schema, plan: &Plan, answer: &Value) -> Vec<(String, String)> {
    let Plan { document, variables } = plan;
    let root = if document.mutation { "Mutation" } else { "Query" };
    let mut check = Check { schema, document, variables, findings: Vec::new() };
    // Where there are errors, fields are null that must not be.
    let data = answer.get("errors").is_none().then(|| answer["data"].as_object()).flatten();
    check.selection(root, &document.selection, data, root);
    check.findings
}

struct Check<'a> {
    schema: &'a Schema,
    document: &'a Document,
    variables: &'a BTreeMap<String, Value>,
    findings: Vec<(String, String)>,
}

impl<'a> Check<'a> {
    fn find(&mut self, place: &str, message: impl Into<String>) {
        self.findings.push((place.to_owned(), message.into()));
    }

    fn selection(
        &mut self,
        kind: &str,
        selection: &'a [Selection],
        data: Option<&Map<String, Value>>,
        place: &str,
    ) {
        for part in selection {
            match part {
                Selection::Spread(name) => match self.document.fragments.get(name) {
                    Some((on, inner)) => self.selection(on, inner, data, place),
                    None => self.find(place, format!("there is no fragment {name}")),
                },
                Selection::Inline(on, inner) => {
                    let on = on.as_deref().unwrap_or(kind);
                    if self.schema.get(on).is_none() {
                        self.find(place, format!("there is no type {on}"));
                        continue;
                    }
                    self.selection(on, inner, data, place);
                }
                Selection::Field { name, .. } if name == "__typename" => {}
                Selection::Field { alias, name, arguments, selection } => {
                    let place = format!("{place}.{alias}");
                    let schema = self.schema;
                    let field = match schema.get(kind) {
                        Some(Type::Object(fields)) => fields.get(name),
                        _ => None,
                    };
                    let Some(field) = field else {
                        self.find(&place, format!("{kind} has no field {name}"));
                        continue;
                    };
                    self.arguments(field, arguments, &place);
                    // Fields of fragments for other types are not there.
                    let value = data.and_then(|data| data.get(alias));
                    self.value(&field.kind, selection, value, &place);
                }
            }
        }
    }

    fn arguments(
        &mut self,
        field: &Field,
        arguments: &[(String, super::parse::Argument)],
        place: &str,
    ) {
        for (name, argument) in arguments {
            let Some(param) = field.params.get(name) else {
                self.find(place, format!("takes no argument {name}"));
                continue;
            };
            let value = argument.value(self.variables);
            if value.is_null() && !param.is_required() {
                continue;
            }
            if let Err(message) = self.schema.accepts(&param.kind, &value, name) {
                self.find(place, message);
            }
        }
        let given = |name: &String| arguments.iter().any(|(other, _)| other == name);
        for (name, param) in field.params.iter().filter(|(_, param)| param.is_required()) {
            if !given(name) {
                self.find(place, format!("needs the argument {name} of type {:?}", param.kind));
            }
        }
    }

    fn value(
        &mut self,
        kind: &Kind,
        selection: &'a [Selection],
        value: Option<&Value>,
        place: &str,
    ) {
        match (kind, value) {
            (Kind::List { required, .. } | Kind::Named { required, .. }, Some(Value::Null)) => {
                if *required {
                    self.find(place, "is null and must not be");
                }
                self.value(kind, selection, None, place);
            }
            (Kind::List { item, .. }, None) => self.value(item, selection, None, place),
            (Kind::List { item, .. }, Some(Value::Array(values))) if !values.is_empty() => {
                for value in values {
                    self.value(item, selection, Some(value), place);
                }
            }
            (Kind::List { item, .. }, Some(Value::Array(_))) => {
                self.value(item, selection, None, place);
            }
            (Kind::List { .. }, Some(value)) => self.find(place, format!("{value} is no list")),
            (Kind::Named { name, .. }, value) => self.named(name, selection, value, place),
        }
    }

    fn named(
        &mut self,
        name: &str,
        selection: &'a [Selection],
        value: Option<&Value>,
        place: &str,
    ) {
        let schema = self.schema;
        let is_object = matches!(schema.get(name), Some(Type::Object(_) | Type::Union));
        match (is_object, selection.is_empty()) {
            (true, true) => self.find(place, format!("{name} needs a selection")),
            (false, false) => self.find(place, format!("{name} has no fields")),
            _ => {}
        }
        if is_object {
            return match value {
                None => self.selection(name, selection, None, place),
                Some(Value::Object(data)) => self.selection(name, selection, Some(data), place),
                Some(value) => self.find(place, format!("{value} is no {name}")),
            };
        }
        let fits = match (schema.get(name), value) {
            (_, None) => true,
            (Some(Type::Enum(words)), Some(value)) => fits_enum(words, value),
            (_, Some(value)) => fits_scalar(name, value),
        };
        if !fits {
            self.find(place, format!("{} is no {name}", value.unwrap_or(&Value::Null)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::parse;
    use super::*;

    const SCHEMA: &str = r#"
        directive @possibleTypes(abstractType: String, concreteTypes: [String!]!) on INPUT_OBJECT
        """ About it """
        type Query implements Node & Other @deprecated(reason: "x") {
          user(login: String!, "how many" first: Int = 3): User
          all(by: Order): [User!]!
        }
        union Either @docsCategory(name: "x") = | User | Query
        enum State { OPEN, CLOSED @deprecated }
        input Order { field: State!, after: String }
        scalar Date
        type User { name: String!, state: State, at: Date, either: Either }
        type Mutation { set(input: Order!): User }
    "#;

    fn findings(query: &str, variables: Value, answer: &Value) -> Vec<String> {
        let schema = Schema::read(SCHEMA).unwrap();
        let document = parse::parse(query, None).unwrap();
        let variables = variables.as_object().unwrap().clone().into_iter().collect();
        let found = check(&schema, &Plan { document, variables }, answer);
        found.into_iter().map(|(place, message)| format!("{place} {message}")).collect()
    }

    #[test]
    fn what_is_as_described_passes() {
        let query = "query($n: String!) {
            user(login: $n) { name state either { ... on User { at } __typename } }
            all(by: {field: OPEN}) { ...f }
          }
          fragment f on User { name }";
        let answer = json!({"data": {
            "user": {"name": "x", "state": "OPEN", "either": {"at": "2026"}},
            "all": [{"name": "y"}],
        }});
        assert_eq!(findings(query, json!({"n": "x"}), &answer), [""; 0]);
        let mutation = "mutation($i: Order!) { set(input: $i) { name } }";
        let errors = json!({"data": {"set": null}, "errors": []});
        assert_eq!(findings(mutation, json!({"i": {"field": "OPEN"}}), &errors), [""; 0]);
    }

    #[test]
    fn everything_that_is_wrong_is_found_with_its_place() {
        let query = "query($o: Order) {
            user { name x: nmae state { a } }
            all(by: $o, last: 3)
        }";
        let answer = json!({"data": {"user": {"name": null, "state": "AJAR"}, "all": {}}});
        let mut found = findings(query, json!({"o": {"feild": "OPEN"}}), &answer);
        found.sort();
        assert_eq!(
            found,
            [
                "Query.all by.feild is not described",
                "Query.all takes no argument last",
                "Query.all {} is no list",
                "Query.user needs the argument login of type Named { name: \"String\", required: true }",
                "Query.user.name is null and must not be",
                "Query.user.state \"AJAR\" is no State",
                "Query.user.state State has no fields",
                "Query.user.x User has no field nmae",
            ]
        );
    }
}
