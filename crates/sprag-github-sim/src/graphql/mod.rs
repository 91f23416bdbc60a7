//! The part of GitHub's GraphQL that we and `gh` use.

mod check;
mod fields;
mod issue_fields;
mod mutate;
mod node;
mod parse;
mod run;
mod schema;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::Caller;
use crate::http::{Answer, Request};
use crate::stamp::Stamp;
use crate::world::World;
use parse::Document;

pub(crate) use check::check;
pub(crate) use schema::Schema;

/// What a query is, before it is carried out.
#[derive(Debug)]
pub(crate) struct Plan {
    document: Document,
    variables: BTreeMap<String, Value>,
}

/// Everything a query needs.
pub(crate) struct Scene<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) caller: &'a Caller,
    pub(crate) now: Stamp,
    /// What the replica has seen that answers queries.
    pub(crate) seen: Stamp,
    pub(crate) rates: Value,
    pub(crate) reserved: Option<u64>,
}

impl Plan {
    /// Reads the query of a request; the error is the answer.
    pub(crate) fn read(request: &Request) -> Result<Self, Answer> {
        let Some(query) = request.text("query") else {
            return Err(errors("A query attribute must be specified and must be a string."));
        };
        let document = parse::parse(query, request.text("operationName"))
            .map_err(|error| errors(&format!("Parse error on {error}")))?;
        let given = request.field("variables").and_then(Value::as_object);
        let mut variables = document.defaults.clone();
        variables.extend(given.into_iter().flatten().map(|(name, it)| (name.clone(), it.clone())));
        Ok(Self { document, variables })
    }

    /// The names of the mutations in it.
    pub(crate) fn mutations(&self) -> Vec<&str> {
        if !self.document.mutation {
            return Vec::new();
        }
        self.document.selection.iter().filter_map(parse::Selection::name).collect()
    }

    pub(crate) fn run(&self, scene: Scene<'_>) -> Answer {
        let (data, errors) = run::run(&self.document, &self.variables, scene);
        let mut body = json!({"data": data});
        if !errors.is_empty() {
            body["errors"] = errors.into();
        }
        Answer::ok(body)
    }
}

/// An answer without data. GraphQL says 200 to nearly everything.
pub(crate) fn errors(message: &str) -> Answer {
    Answer::ok(json!({"errors": [{"message": message}]}))
}
