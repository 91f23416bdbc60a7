//! [`Schema`]: GitHub's own description of its GraphQL.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::parse::{Parser, Token, tokens};

/// All types, by name.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    types: BTreeMap<String, Type>,
}

#[derive(Debug)]
pub(super) enum Type {
    /// Also interfaces: what counts are the fields.
    Object(BTreeMap<String, Field>),
    Input(BTreeMap<String, Param>),
    Enum(BTreeSet<String>),
    /// One of several objects; only its fragments have fields.
    Union,
    Scalar,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) kind: Kind,
    pub(super) params: BTreeMap<String, Param>,
}

/// An argument, or a field of an input.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) kind: Kind,
    has_default: bool,
}

impl Param {
    /// Whether it has to be given.
    pub(super) const fn is_required(&self) -> bool {
        let (Kind::Named { required, .. } | Kind::List { required, .. }) = &self.kind;
        *required && !self.has_default
    }
}

/// A type where it is used: `[String!]!`.
#[derive(Debug)]
pub(super) enum Kind {
    Named { name: String, required: bool },
    List { item: Box<Self>, required: bool },
}

impl Schema {
    /// Reads the description.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut parser = Parser::new(tokens(text)?);
        let mut schema = Self::default();
        while parser.peek().is_some() {
            parser.text();
            let word = parser.name()?;
            match word.as_str() {
                "directive" => parser.directive()?,
                "schema" => parser.skip_block()?,
                _ => {
                    let name = parser.name()?;
                    let kind = parser.definition(&word)?;
                    schema.types.insert(name, kind);
                }
            }
        }
        Ok(schema)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Type> {
        self.types.get(name)
    }

    /// Whether a value can be given where `kind` is wanted; the error says where not.
    pub(super) fn accepts(&self, kind: &Kind, value: &Value, place: &str) -> Result<(), String> {
        match (kind, value) {
            (Kind::Named { required, .. } | Kind::List { required, .. }, Value::Null) => {
                if *required {
                    Err(format!("{place} is missing"))
                } else {
                    Ok(())
                }
            }
            (Kind::List { item, .. }, Value::Array(values)) => {
                values.iter().try_for_each(|value| self.accepts(item, value, place))
            }
            // One is taken for a list of one.
            (Kind::List { item, .. }, value) => self.accepts(item, value, place),
            (Kind::Named { name, .. }, value) => match (self.get(name), value) {
                (Some(Type::Input(params)), Value::Object(fields)) => {
                    let unknown = fields.keys().find(|field| !params.contains_key(*field));
                    if let Some(field) = unknown {
                        return Err(format!("{place}.{field} is not described"));
                    }
                    params.iter().try_for_each(|(field, param)| {
                        let value = fields.get(field).unwrap_or(&Value::Null);
                        let place = format!("{place}.{field}");
                        match value {
                            Value::Null if !param.is_required() => Ok(()),
                            value => self.accepts(&param.kind, value, &place),
                        }
                    })
                }
                (Some(Type::Enum(words)), value) if fits_enum(words, value) => Ok(()),
                (Some(Type::Scalar) | None, value) if fits_scalar(name, value) => Ok(()),
                _ => Err(format!("{place} is {value}, where {name} is wanted")),
            },
        }
    }
}

pub(super) fn fits_enum(words: &BTreeSet<String>, value: &Value) -> bool {
    value.as_str().is_some_and(|word| words.contains(word))
}

/// The built-in scalars and GitHub's own, which are all texts.
pub(super) fn fits_scalar(name: &str, value: &Value) -> bool {
    match name {
        "Int" => value.is_i64() || value.is_u64(),
        "Float" => value.is_number(),
        "Boolean" => value.is_boolean(),
        "ID" => value.is_string() || value.is_u64(),
        "GitObjectID" => value.as_str().is_some_and(|it| matches!(it.len(), 40 | 64)),
        _ => value.is_string(),
    }
}

impl Parser {
    /// A description, which is not looked at.
    fn text(&mut self) {
        if matches!(self.peek(), Some(Token::Text(_))) {
            self.skip();
        }
    }

    fn definition(&mut self, word: &str) -> Result<Type, String> {
        if self.is_name("implements") {
            self.skip();
            while !self.is_mark('{') && !self.is_mark('@') {
                self.skip();
            }
        }
        self.annotations()?;
        match word {
            "scalar" => Ok(Type::Scalar),
            "union" => {
                self.mark('=')?;
                self.take('|');
                self.name()?;
                while self.take('|') {
                    self.name()?;
                }
                Ok(Type::Union)
            }
            "enum" => {
                self.mark('{')?;
                let mut words = BTreeSet::new();
                while !self.take('}') {
                    self.text();
                    words.insert(self.name()?);
                    self.annotations()?;
                }
                Ok(Type::Enum(words))
            }
            "input" => {
                self.mark('{')?;
                Ok(Type::Input(self.params('}')?))
            }
            "type" | "interface" => {
                self.mark('{')?;
                let mut fields = BTreeMap::new();
                while !self.take('}') {
                    self.text();
                    let name = self.name()?;
                    let params = if self.take('(') { self.params(')')? } else { BTreeMap::new() };
                    self.mark(':')?;
                    let kind = self.kind_of()?;
                    self.annotations()?;
                    fields.insert(name, Field { kind, params });
                }
                Ok(Type::Object(fields))
            }
            other => Err(format!("{other:?} where a definition is wanted")),
        }
    }

    fn params(&mut self, end: char) -> Result<BTreeMap<String, Param>, String> {
        let mut params = BTreeMap::new();
        while !self.take(end) {
            self.text();
            let name = self.name()?;
            self.mark(':')?;
            let kind = self.kind_of()?;
            let has_default = self.take('=');
            if has_default {
                self.argument(0)?;
            }
            self.annotations()?;
            params.insert(name, Param { kind, has_default });
        }
        Ok(params)
    }

    fn kind_of(&mut self) -> Result<Kind, String> {
        if self.take('[') {
            let item = Box::new(self.kind_of()?);
            self.mark(']')?;
            return Ok(Kind::List { item, required: self.take('!') });
        }
        let name = self.name()?;
        Ok(Kind::Named { name, required: self.take('!') })
    }

    /// `@deprecated(reason: "...")`, which is not looked at.
    fn annotations(&mut self) -> Result<(), String> {
        while self.take('@') {
            self.name()?;
            if self.take('(') {
                while !self.take(')') {
                    self.name()?;
                    self.mark(':')?;
                    self.argument(0)?;
                }
            }
        }
        Ok(())
    }

    fn directive(&mut self) -> Result<(), String> {
        self.mark('@')?;
        self.name()?;
        if self.take('(') {
            self.params(')')?;
        }
        if self.is_name("repeatable") {
            self.skip();
        }
        self.keyword("on")?;
        self.take('|');
        self.name()?;
        while self.take('|') {
            self.name()?;
        }
        Ok(())
    }

    fn skip_block(&mut self) -> Result<(), String> {
        self.mark('{')?;
        while !self.take('}') {
            if self.peek().is_none() {
                return Err("a block without an end".into());
            }
            self.skip();
        }
        Ok(())
    }
}
