//! Reads the language of GraphQL.

use std::collections::BTreeMap;

use serde_json::Value;

/// The operation that was asked for, and the fragments it may use.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) mutation: bool,
    pub(super) selection: Vec<Selection>,
    /// The type each is for, and what it selects.
    pub(super) fragments: BTreeMap<String, (String, Vec<Selection>)>,
    /// Variables that have a value if none is given.
    pub(super) defaults: BTreeMap<String, Value>,
}

/// One thing that is wanted of an object.
#[derive(Clone, Debug)]
pub(super) enum Selection {
    /// `alias: name(arguments) { selection }`
    Field { alias: String, name: String, arguments: Vec<(String, Argument)>, selection: Vec<Self> },
    /// `...name`
    Spread(String),
    /// `... on Type { selection }`
    Inline(Option<String>, Vec<Self>),
}

/// A value in the query, which may have variables in it.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Plain(Value),
    Variable(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Selection {
    /// The field's name.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Field { name, .. } => Some(name),
            Self::Spread(_) | Self::Inline(..) => None,
        }
    }
}

impl Argument {
    /// Its value; a variable that was not given is null.
    pub(super) fn value(&self, variables: &BTreeMap<String, Value>) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Variable(name) => variables.get(name).cloned().unwrap_or(Value::Null),
            Self::List(items) => items.iter().map(|item| item.value(variables)).collect(),
            Self::Object(fields) => {
                let fields = fields.iter();
                fields.map(|(name, value)| (name.clone(), value.value(variables))).collect()
            }
        }
    }
}

/// Reads a document and picks one of its operations: that of the name, or the only one.
pub(super) fn parse(text: &str, name: Option<&str>) -> Result<Document, String> {
    let mut parser = Parser::new(tokens(text)?);
    let mut document = Document::default();
    let mut operations = 0;
    while parser.at < parser.tokens.len() {
        match parser.peek() {
            Some(Token::Name(word)) if word == "fragment" => {
                parser.at += 1;
                let name = parser.name()?;
                parser.keyword("on")?;
                let kind = parser.name()?;
                let selection = parser.selection(0)?;
                document.fragments.insert(name, (kind, selection));
            }
            _ => {
                let (mutation, called, defaults, selection) = parser.operation()?;
                if name.is_none() || called.as_deref() == name {
                    operations += 1;
                    (document.mutation, document.selection) = (mutation, selection);
                    document.defaults = defaults;
                }
            }
        }
    }
    match operations {
        1 => Ok(document),
        _ => Err(format!("{operations} operations where one is wanted")),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Mark(char),
    Spread,
    Text(String),
    Number(String),
}

/// Deeper queries are refused.
const DEPTH: usize = 30;

/// Walks through the tokens.
pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

type Operation = (bool, Option<String>, BTreeMap<String, Value>, Vec<Selection>);

impl Parser {
    pub(super) const fn new(tokens: Vec<Token>) -> Self {
        Self { tokens, at: 0 }
    }

    pub(super) const fn skip(&mut self) {
        self.at += 1;
    }

    pub(super) fn is_name(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(name)) if name == word)
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn is_mark(&self, mark: char) -> bool {
        self.peek() == Some(&Token::Mark(mark))
    }

    pub(super) fn take(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        self.at += usize::from(found);
        found
    }

    pub(super) fn mark(&mut self, mark: char) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(self.wanted(&format!("{mark:?}"))) }
    }

    fn wanted(&self, what: &str) -> String {
        format!("{:?} where {what} is wanted", self.peek())
    }

    pub(super) fn name(&mut self) -> Result<String, String> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.wanted("a name")),
        }
    }

    pub(super) fn keyword(&mut self, word: &str) -> Result<(), String> {
        if self.name()? == word { Ok(()) } else { Err(self.wanted(word)) }
    }

    fn operation(&mut self) -> Result<Operation, String> {
        if self.is_mark('{') {
            return Ok((false, None, BTreeMap::new(), self.selection(0)?));
        }
        let mutation = match self.name()?.as_str() {
            "query" => false,
            "mutation" => true,
            other => return Err(format!("{other:?} where an operation is wanted")),
        };
        let name = match self.peek() {
            Some(Token::Name(_)) => Some(self.name()?),
            _ => None,
        };
        let mut defaults = BTreeMap::new();
        if self.take('(') {
            while !self.take(')') {
                self.mark('$')?;
                let name = self.name()?;
                self.mark(':')?;
                self.kind()?;
                if self.take('=') {
                    defaults.insert(name, self.argument(0)?.value(&BTreeMap::new()));
                }
            }
        }
        Ok((mutation, name, defaults, self.selection(0)?))
    }

    /// A type, such as `[String!]!`; not looked at any further.
    fn kind(&mut self) -> Result<(), String> {
        if self.take('[') {
            self.kind()?;
            self.mark(']')?;
        } else {
            self.name()?;
        }
        self.take('!');
        Ok(())
    }

    fn selection(&mut self, depth: usize) -> Result<Vec<Selection>, String> {
        if depth > DEPTH {
            return Err("a query that is too deep".into());
        }
        self.mark('{')?;
        let mut all = Vec::new();
        while !self.take('}') {
            all.push(self.one(depth)?);
        }
        Ok(all)
    }

    fn one(&mut self, depth: usize) -> Result<Selection, String> {
        if self.peek() == Some(&Token::Spread) {
            self.at += 1;
            return match self.peek() {
                Some(Token::Name(word)) if word == "on" => {
                    self.at += 1;
                    let kind = self.name()?;
                    Ok(Selection::Inline(Some(kind), self.selection(depth + 1)?))
                }
                Some(Token::Name(_)) => Ok(Selection::Spread(self.name()?)),
                _ => Ok(Selection::Inline(None, self.selection(depth + 1)?)),
            };
        }
        let first = self.name()?;
        let (alias, name) =
            if self.take(':') { (first, self.name()?) } else { (first.clone(), first) };
        let mut arguments = Vec::new();
        if self.take('(') {
            while !self.take(')') {
                let name = self.name()?;
                self.mark(':')?;
                arguments.push((name, self.argument(depth)?));
            }
        }
        let selection = if self.is_mark('{') { self.selection(depth + 1)? } else { Vec::new() };
        Ok(Selection::Field { alias, name, arguments, selection })
    }

    pub(super) fn argument(&mut self, depth: usize) -> Result<Argument, String> {
        if depth > DEPTH {
            return Err("a value that is too deep".into());
        }
        if self.take('$') {
            return Ok(Argument::Variable(self.name()?));
        }
        if self.take('[') {
            let mut items = Vec::new();
            while !self.take(']') {
                items.push(self.argument(depth + 1)?);
            }
            return Ok(Argument::List(items));
        }
        if self.take('{') {
            let mut fields = Vec::new();
            while !self.take('}') {
                let name = self.name()?;
                self.mark(':')?;
                fields.push((name, self.argument(depth + 1)?));
            }
            return Ok(Argument::Object(fields));
        }
        let value = match self.peek() {
            Some(Token::Text(text)) => Value::String(text.clone()),
            Some(Token::Number(number)) => {
                serde_json::from_str(number).map_err(|_| format!("{number:?} is no number"))?
            }
            Some(Token::Name(word)) => match word.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" => Value::Null,
                // One of an enumeration.
                word => Value::String(word.to_owned()),
            },
            _ => return Err(self.wanted("a value")),
        };
        self.at += 1;
        Ok(Argument::Plain(value))
    }
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let used = match first {
            _ if first.is_whitespace() || first == ',' || first == '\u{feff}' => first.len_utf8(),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '.' if rest.starts_with("...") => {
                tokens.push(Token::Spread);
                3
            }
            '"' => {
                let (text, used) = string(rest)?;
                tokens.push(Token::Text(text));
                used
            }
            '-' | '0'..='9' => {
                let end = |c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c));
                let used = rest.find(end).unwrap_or(rest.len());
                tokens.push(Token::Number(rest[..used].to_owned()));
                used
            }
            _ if is_word(first) => {
                let used = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                tokens.push(Token::Name(rest[..used].to_owned()));
                used
            }
            '{' | '}' | '(' | ')' | '[' | ']' | ':' | '$' | '!' | '=' | '@' | '&' | '|' => {
                tokens.push(Token::Mark(first));
                1
            }
            other => return Err(format!("{other:?}")),
        };
        rest = &rest[used..];
    }
    Ok(tokens)
}

/// A text in quotes; its escapes are those of JSON.
fn string(rest: &str) -> Result<(String, usize), String> {
    if let Some(block) = rest.strip_prefix("\"\"\"") {
        let end = block.find("\"\"\"").ok_or("a text without an end")?;
        return Ok((block[..end].trim().to_owned(), end + 6));
    }
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => {
                let text = serde_json::from_str(&rest[..=at]).map_err(|e| e.to_string())?;
                return Ok((text, at + 1));
            }
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err("a text without an end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_with_everything_is_read() {
        let text = r#"
            # a comment
            fragment f on Issue { number, title }
            query Q($n: [Int!]! = 7, $s: String) {
              a: repository(owner: "o\"x", name: $s, list: [1, {k: OPEN}]) {
                ...f
                ... on Node { id }
              }
            }"#;
        let document = parse(text, None).unwrap();
        assert!(!document.mutation);
        assert_eq!(document.defaults["n"], 7);
        assert_eq!(document.fragments["f"].1.len(), 2);
        let Selection::Field { alias, name, arguments, selection } = &document.selection[0] else {
            panic!("{document:?}");
        };
        assert_eq!((alias.as_str(), name.as_str(), selection.len()), ("a", "repository", 2));
        let variables = BTreeMap::from([("s".to_owned(), Value::from("r"))]);
        let values: Vec<_> = arguments.iter().map(|(_, it)| it.value(&variables)).collect();
        let wanted = serde_json::json!(["o\"x", "r", [1, {"k": "OPEN"}]]);
        assert_eq!(Value::from(values), wanted);
    }

    #[test]
    fn nonsense_is_refused() {
        let deep = "{a".repeat(100);
        for text in ["", "{", "{a(}", "query {a} query {b}", "{a(x: \"y)}", "{a %}", &deep] {
            assert!(parse(text, None).is_err(), "{text:?}");
        }
        assert!(parse("query A {a} query B {b}", Some("B")).is_ok());
    }
}
