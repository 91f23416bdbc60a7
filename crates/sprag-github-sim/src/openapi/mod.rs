//! [`Checker`]: whether requests and answers are as GitHub's own description says.

mod schema;
mod slim;

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::api;
use crate::graphql::{self, Plan, Schema};
use crate::http::{Answer, Body, Request};
use crate::peers::peer;
use schema::Schemas;

/// Where GitHub's description is, once it is installed.
const PATH: &str = "github/node_modules/@octokit/openapi/generated/api.github.com.json";
const INSTALL: &str = "npm install --prefix target/peers/github @octokit/openapi@23.0.2";

/// Where the schema of its GraphQL is.
const SCHEMA_PATH: &str = "github/node_modules/@octokit/graphql-schema/schema.graphql";
const SCHEMA_INSTALL: &str =
    "npm install --prefix target/peers/github @octokit/graphql-schema@15.26.1";

/// What every endpoint may answer, whether or not its description says so.
const COMMON: [u16; 11] = [301, 304, 307, 400, 401, 403, 404, 409, 410, 422, 429];

/// GitHub's descriptions: of its REST API in the form of OpenAPI, and the schema of its GraphQL.
#[derive(Debug)]
pub struct Checker {
    description: Value,
    /// Read when it is needed first.
    schema: OnceLock<Option<Schema>>,
}

/// Something that is not as GitHub's description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The endpoint, such as `POST /repos/{owner}/{repo}/issues`.
    pub endpoint: String,
    /// Where, such as `answer 201 .user.login`.
    pub place: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.endpoint, self.place, self.message)
    }
}

impl Checker {
    /// The description that is installed; `None` with `SPRAG_SKIP=github-openapi`.
    ///
    /// # Panics
    ///
    /// If it is missing, with what to type.
    pub fn installed() -> Option<Arc<Self>> {
        static LOADED: OnceLock<Option<Arc<Checker>>> = OnceLock::new();
        let load = || {
            let path = peer(PATH, INSTALL, "github-openapi")?;
            let description = slim::load(&path);
            Some(Arc::new(Self { description, schema: OnceLock::new() }))
        };
        LOADED.get_or_init(load).clone()
    }

    /// What is wrong with a request of ours, or with the answer to it.
    ///
    /// # Panics
    ///
    /// If it is about GraphQL, and its schema is missing.
    pub fn check(&self, request: &Request, answer: &Answer) -> Vec<Violation> {
        if request.path.last().is_some_and(|part| part == "graphql") {
            return self.check_graphql(request, answer);
        }
        let Some((route, _)) = api::find(&request.method, &request.path) else {
            return Vec::new();
        };
        let endpoint = route.kind();
        let method = route.method.to_ascii_lowercase();
        let operation = &self.description["paths"][route.template][&method];
        if operation.is_null() {
            let message = "GitHub has no such endpoint".to_owned();
            return vec![Violation { endpoint, place: "path".into(), message }];
        }
        let mut findings = Vec::new();
        self.check_query(operation, request, &mut findings);
        self.check_body(operation, request, &mut findings);
        self.check_answer(operation, answer, &mut findings);
        let violation = |(place, message)| Violation { endpoint: endpoint.clone(), place, message };
        findings.into_iter().map(violation).collect()
    }

    fn check_graphql(&self, request: &Request, answer: &Answer) -> Vec<Violation> {
        let load = || {
            let path = peer(SCHEMA_PATH, SCHEMA_INSTALL, "github-openapi")?;
            let text = std::fs::read_to_string(path).expect("the schema can be read");
            Some(Schema::read(&text).expect("the schema is one"))
        };
        let (Some(schema), Ok(plan)) = (self.schema.get_or_init(load), Plan::read(request)) else {
            return Vec::new();
        };
        let found = graphql::check(schema, &plan, &answer.body);
        let violation = |(place, message)| Violation { endpoint: "graphql".into(), place, message };
        found.into_iter().map(violation).collect()
    }

    fn check_query(&self, operation: &Value, request: &Request, findings: &mut Findings) {
        let schemas = Schemas::new(&self.description);
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let parameters: Vec<_> = parameters.map(|it| schemas.resolve(it)).collect();
        let in_query = || parameters.iter().filter(|it| it["in"] == "query");
        for (name, text) in &request.query {
            let place = format!("query {name}");
            let Some(known) = in_query().find(|it| it["name"] == **name) else {
                findings.push((place, "is not a parameter of this endpoint".into()));
                continue;
            };
            let number = text.parse().ok().map(|number: i64| number.into());
            let value = number.filter(|_| known["schema"]["type"] == "integer");
            let value = value.unwrap_or_else(|| text.as_str().into());
            schemas.check(&known["schema"], &value, &place, findings);
        }
        for wanted in in_query().filter(|it| it["required"] == true) {
            let name = wanted["name"].as_str().unwrap_or_default();
            if request.query(name).is_none() {
                findings.push((format!("query {name}"), "is missing".into()));
            }
        }
    }

    fn check_body(&self, operation: &Value, request: &Request, findings: &mut Findings) {
        let described = Schemas::new(&self.description).resolve(&operation["requestBody"]);
        let schema = &described["content"]["application/json"]["schema"];
        match &request.body {
            Body::Broken => findings.push(("body".into(), "is no JSON".into())),
            Body::None if described["required"] == true => {
                findings.push(("body".into(), "is missing".into()));
            }
            Body::None => {}
            Body::Json(_) if schema.is_null() => {
                findings.push(("body".into(), "is not wanted here".into()));
            }
            Body::Json(value) => {
                let type_header = request.header("content-type").unwrap_or_default();
                if !type_header.starts_with("application/json") {
                    findings.push(("header content-type".into(), "is not that of JSON".into()));
                }
                Schemas::new(&self.description).check(schema, value, "body", findings);
            }
        }
    }

    fn check_answer(&self, operation: &Value, answer: &Answer, findings: &mut Findings) {
        let status = answer.status;
        let mut schemas = Schemas::new(&self.description);
        // Errors have more to say than is described.
        schemas.loose = status >= 300;
        let place = format!("answer {status}");
        let described = schemas.resolve(&operation["responses"][status.to_string()]);
        let mut schema = &described["content"]["application/json"]["schema"];
        if described.is_null() {
            if status < 500 && !COMMON.contains(&status) {
                findings.push((place, "is no status of this endpoint".into()));
                return;
            }
            schema = &self.description["components"]["schemas"]["basic-error"];
        }
        match (schema.is_null(), answer.body.is_null()) {
            (true, true) => {}
            // Some errors are described without the words they have.
            (true, false) if status >= 400 => {}
            (true, false) => findings.push((place, "has a body where there is none".into())),
            (false, true) if status == 304 => {}
            (false, true) => findings.push((place, "has no body".into())),
            (false, false) => schemas.check(schema, &answer.body, &place, findings),
        }
    }
}

/// Where and what.
type Findings = Vec<(String, String)>;
