//! The REST routes, and what each of them does.

mod assignees;
mod comments;
mod commits;
mod context;
mod issues;
mod labels;
mod meta;
mod page;
mod refs;
pub(crate) mod render;
mod repos;
mod search;
mod timeline;

pub(crate) use context::{Caller, Context};
pub(crate) use refs::{is_fit as is_ref_name, words as refusal_words};

use crate::http::Answer;

/// An answer, or an error on the way to it.
pub(crate) type Reply = Result<Answer, Answer>;

/// One route, as GitHub's own description names it.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) template: &'static str,
    pub(crate) run: fn(&mut Context<'_>) -> Reply,
    pub(crate) notifies: Notifies,
}

/// Whether people get a message about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notifies {
    No,
    /// Not as far as GitHub says.
    Edit,
    Yes,
}

/// The values of `{owner}` and the like.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(&'static str, String)>);

impl Params {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }
}

impl Route {
    /// What it is counted as.
    pub(crate) fn kind(&self) -> String {
        format!("{} {}", self.method, self.template)
    }

    fn fit(&self, method: &str, path: &[String]) -> Option<Params> {
        if self.method != method {
            return None;
        }
        let mut params = Vec::new();
        let mut parts = path.iter();
        for wanted in self.template.split('/').skip(1).filter(|part| !part.is_empty()) {
            let part = parts.next()?;
            match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                // The rest of the path: names of references have slashes.
                Some("ref") => {
                    let rest = parts.by_ref().fold(part.clone(), |all, part| all + "/" + part);
                    params.push(("ref", rest));
                }
                Some(name) => params.push((name, part.clone())),
                None if wanted == part => {}
                None => return None,
            }
        }
        parts.next().is_none().then_some(Params(params))
    }
}

/// The route for a request.
pub(crate) fn find(method: &str, path: &[String]) -> Option<(&'static Route, Params)> {
    ROUTES.iter().find_map(|route| Some((route, route.fit(method, path)?)))
}

const fn read(template: &'static str, run: fn(&mut Context<'_>) -> Reply) -> Route {
    Route { method: "GET", template, run, notifies: Notifies::No }
}

const fn write(
    method: &'static str,
    template: &'static str,
    run: fn(&mut Context<'_>) -> Reply,
) -> Route {
    Route { method, template, run, notifies: Notifies::No }
}

const fn notify(
    method: &'static str,
    template: &'static str,
    run: fn(&mut Context<'_>) -> Reply,
    notifies: Notifies,
) -> Route {
    Route { method, template, run, notifies }
}

/// Where one path could fit two templates, the first one counts.
#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    read("/rate_limit", meta::rate_limit),
    read("/user", meta::me),
    read("/users/{username}", meta::user),
    read("/search/issues", search::issues),
    read("/repos/{owner}/{repo}", repos::get),
    read("/repos/{owner}/{repo}/assignees/{assignee}", assignees::check),
    read("/repos/{owner}/{repo}/collaborators/{username}/permission", repos::permission),
    read("/repos/{owner}/{repo}/commits", commits::list),
    read("/repos/{owner}/{repo}/issues", issues::list),
    notify("POST", "/repos/{owner}/{repo}/issues", issues::create, Notifies::Yes),
    read("/repos/{owner}/{repo}/issues/comments/{comment_id}", comments::get),
    notify("PATCH", "/repos/{owner}/{repo}/issues/comments/{comment_id}", comments::edit, Notifies::Edit),
    write("DELETE", "/repos/{owner}/{repo}/issues/comments/{comment_id}", comments::delete),
    read("/repos/{owner}/{repo}/issues/{issue_number}", issues::get),
    notify("PATCH", "/repos/{owner}/{repo}/issues/{issue_number}", issues::edit, Notifies::Edit),
    write("POST", "/repos/{owner}/{repo}/issues/{issue_number}/assignees", assignees::add),
    write("DELETE", "/repos/{owner}/{repo}/issues/{issue_number}/assignees", assignees::remove),
    read("/repos/{owner}/{repo}/issues/{issue_number}/comments", comments::list),
    notify("POST", "/repos/{owner}/{repo}/issues/{issue_number}/comments", comments::create, Notifies::Yes),
    read("/repos/{owner}/{repo}/issues/{issue_number}/labels", labels::list),
    write("POST", "/repos/{owner}/{repo}/issues/{issue_number}/labels", labels::add),
    write("PUT", "/repos/{owner}/{repo}/issues/{issue_number}/labels", labels::set),
    write("DELETE", "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}", labels::remove),
    write("PUT", "/repos/{owner}/{repo}/issues/{issue_number}/lock", issues::lock),
    write("DELETE", "/repos/{owner}/{repo}/issues/{issue_number}/lock", issues::unlock),
    read("/repos/{owner}/{repo}/issues/{issue_number}/timeline", timeline::list),
    write("POST", "/repos/{owner}/{repo}/git/commits", commits::create),
    read("/repos/{owner}/{repo}/git/commits/{commit_sha}", commits::get),
    read("/repos/{owner}/{repo}/git/matching-refs/{ref}", refs::matching),
    read("/repos/{owner}/{repo}/git/ref/{ref}", refs::get),
    write("POST", "/repos/{owner}/{repo}/git/refs", refs::create),
    write("PATCH", "/repos/{owner}/{repo}/git/refs/{ref}", refs::update),
    write("DELETE", "/repos/{owner}/{repo}/git/refs/{ref}", refs::delete),
    write("POST", "/repos/{owner}/{repo}/git/trees", commits::create_tree),
];
