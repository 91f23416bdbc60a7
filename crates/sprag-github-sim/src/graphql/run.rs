//! Carries out a query: walks through what is selected.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::node::Node;
use super::parse::{Document, Selection};
use super::{Scene, mutate};
use crate::api::Caller;
use crate::stamp::Stamp;
use crate::world::World;

/// What a field is.
pub(super) enum Out<'a> {
    Leaf(Value),
    Node(Node<'a>),
    List(Vec<Node<'a>>),
}

impl Out<'_> {
    pub(super) const NULL: Self = Self::Leaf(Value::Null);
}

/// Why a field has no value.
pub(super) struct Trouble {
    kind: &'static str,
    message: String,
}

impl Trouble {
    pub(super) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    fn describe(&self, path: &[String]) -> Value {
        json!({"type": self.kind, "path": path, "message": self.message})
    }
}

/// The arguments of a field.
pub(super) struct Arguments(pub(super) Map<String, Value>);

impl Arguments {
    pub(super) fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).as_str()
    }

    pub(super) fn count(&self, name: &str) -> Option<usize> {
        self.get(name).as_u64().and_then(|count| usize::try_from(count).ok())
    }
}

/// What is needed to look into objects.
pub(super) struct Reader<'a> {
    pub(super) world: &'a World,
    pub(super) caller: &'a Caller,
    pub(super) seen: Stamp,
    pub(super) rates: &'a Value,
    pub(super) document: &'a Document,
    pub(super) variables: &'a BTreeMap<String, Value>,
}

/// Gives the data and the errors.
pub(super) fn run(
    document: &Document,
    variables: &BTreeMap<String, Value>,
    scene: Scene<'_>,
) -> (Value, Vec<Value>) {
    let Scene { world, caller, now, seen, rates, reserved } = scene;
    let mut errors = Vec::new();
    if !document.mutation {
        let reader = Reader { world, caller, seen, rates: &rates, document, variables };
        let data = reader.object(&Node::Query, &document.selection, &mut Vec::new(), &mut errors);
        return (data, errors);
    }
    let mut data = Map::new();
    for field in &document.selection {
        let Selection::Field { alias, name, arguments, selection } = field else { continue };
        let values = values(arguments, variables);
        let mut path = vec![alias.clone()];
        let outcome = mutate::mutate(world, caller, now, reserved, name, &values);
        let value = match outcome {
            Ok(subject) => {
                // Whoever has written reads what was written.
                let seen = crate::world::git::FOREVER;
                let reader = Reader { world, caller, seen, rates: &rates, document, variables };
                let mutation = values.get("input")["clientMutationId"].clone();
                let subject = reader.subject(&subject).map(Box::new);
                let node = Node::Payload { mutation, subject };
                reader.object(&node, selection, &mut path, &mut errors)
            }
            Err(trouble) => {
                errors.push(trouble.describe(&path));
                Value::Null
            }
        };
        data.insert(alias.clone(), value);
    }
    (data.into(), errors)
}

fn values(
    arguments: &[(String, super::parse::Argument)],
    variables: &BTreeMap<String, Value>,
) -> Arguments {
    let values = arguments.iter();
    Arguments(values.map(|(name, value)| (name.clone(), value.value(variables))).collect())
}

impl<'a> Reader<'a> {
    fn object(
        &self,
        node: &Node<'a>,
        selection: &[Selection],
        path: &mut Vec<String>,
        errors: &mut Vec<Value>,
    ) -> Value {
        let mut object = Map::new();
        self.select(node, selection, path, errors, &mut object);
        object.into()
    }

    fn select(
        &self,
        node: &Node<'a>,
        selection: &[Selection],
        path: &mut Vec<String>,
        errors: &mut Vec<Value>,
        object: &mut Map<String, Value>,
    ) {
        for part in selection {
            match part {
                Selection::Spread(name) => {
                    if let Some((kind, selection)) = self.document.fragments.get(name)
                        && node.is(kind)
                    {
                        self.select(node, selection, path, errors, object);
                    }
                }
                Selection::Inline(kind, selection) => {
                    if kind.as_deref().is_none_or(|kind| node.is(kind)) {
                        self.select(node, selection, path, errors, object);
                    }
                }
                Selection::Field { alias, name, arguments, selection } => {
                    let values = values(arguments, self.variables);
                    path.push(alias.clone());
                    let value = match self.field(node, name, &values) {
                        Ok(Out::Leaf(value)) => value,
                        Ok(Out::Node(node)) => self.object(&node, selection, path, errors),
                        Ok(Out::List(nodes)) => {
                            let mut one = |node| self.object(&node, selection, path, errors);
                            nodes.into_iter().map(&mut one).collect()
                        }
                        Err(trouble) => {
                            errors.push(trouble.describe(path));
                            Value::Null
                        }
                    };
                    path.pop();
                    merge(object, alias, value);
                }
            }
        }
    }
}

/// The same field may be selected twice, in fragments: then both selections count.
fn merge(object: &mut Map<String, Value>, alias: &str, value: Value) {
    match (object.get_mut(alias), value) {
        (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
        (_, value) => {
            object.insert(alias.to_owned(), value);
        }
    }
}
