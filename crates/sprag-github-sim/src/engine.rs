//! [`Engine`]: what happens between a request and its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{self, Caller, Context, Notifies, Params, Reply};
use crate::clock::SimClock;
use crate::counters::{Call, Counters};
use crate::faults::{Fault, FaultPlan, Target};
use crate::graphql::{self, Plan, Scene};
use crate::hash::hash;
use crate::http::{Answer, Body, Delivery, Request};
use crate::limits::{Denial, Limits, Manner, Price, Resource, Usage};
use crate::openapi::{Checker, Violation};
use crate::stamp::Stamp;
use crate::world::World;

/// The simulator without its sockets.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) clock: Arc<SimClock>,
    base: String,
    checker: Option<Arc<Checker>>,
    inner: Mutex<Inner>,
}

/// Everything that changes.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) world: World,
    pub(crate) limits: Limits,
    pub(crate) lag: Duration,
    pub(crate) plan: FaultPlan,
    /// What happens to the next requests, and only to those.
    pub(crate) next: Vec<(Target, Fault)>,
    pub(crate) outage: Option<u16>,
    pub(crate) counters: Counters,
    pub(crate) violations: Vec<Violation>,
    usages: HashMap<String, Usage>,
    random: fastrand::Rng,
    requests: u64,
}

/// What is known about a request before it is carried out.
struct Ticket {
    caller: Option<Caller>,
    kind: String,
    mutation: bool,
    price: Price,
    fault: Option<Fault>,
    reserved: Option<u64>,
    work: Work,
}

/// Who carries it out.
enum Work {
    Rest(&'static api::Route, Params),
    Graphql(Plan),
}

impl Engine {
    pub(crate) fn new(
        seed: u64,
        clock: Arc<SimClock>,
        base: String,
        checker: Option<Arc<Checker>>,
    ) -> Self {
        let inner = Inner {
            world: World::default(),
            limits: Limits::GITHUB,
            lag: Duration::ZERO,
            plan: FaultPlan::new(),
            next: Vec::new(),
            outage: None,
            counters: Counters::default(),
            violations: Vec::new(),
            usages: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
            requests: 0,
        };
        Self { clock, base, checker, inner: Mutex::new(inner) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request and says what its sender gets.
    pub(crate) fn serve(&self, mut request: Request) -> Delivery {
        let ticket = match self.admit(&mut request) {
            Ok(ticket) => ticket,
            Err(answer) => return Delivery::Answer(answer),
        };
        if let Some(Fault::LateWrite(delay)) = ticket.fault {
            self.clock.wait(delay);
        }
        let answer = match ticket.fault {
            Some(Fault::ErrorBefore(status)) => Some(trouble(status)),
            Some(Fault::Flake) => Some(Answer::error(422, "Reference update failed")),
            Some(Fault::CloseBefore) => None,
            fault => {
                let answer = self.carry_out(&request, &ticket);
                match fault {
                    Some(Fault::ErrorAfter(status)) => Some(trouble(status)),
                    Some(Fault::CloseAfter) => None,
                    _ => Some(answer),
                }
            }
        };
        let answer = self.settle(&request, &ticket, answer);
        if let (Some(checker), Some(answer)) = (&self.checker, &answer) {
            let found = checker.check(&request, answer);
            self.lock().violations.extend(found);
        }
        if let Some(Fault::SlowAnswer(delay)) = ticket.fault {
            self.clock.wait(delay);
        }
        answer.map_or(Delivery::Close, Delivery::Answer)
    }

    /// Who asks what, what it costs, and what will go wrong.
    fn admit(&self, request: &mut Request) -> Result<Ticket, Answer> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let now = self.clock.stamp();
        inner.requests += 1;
        let denied =
            |status, message: &str, number| finish(Answer::error(status, message), number, now);
        if request.header("user-agent").is_none() {
            let message = "Request forbidden by administrative rules. Please make sure your \
                           request has a User-Agent header";
            return Err(denied(403, message, inner.requests));
        }
        let caller = inner.caller(request).map_err(|answer| finish(answer, inner.requests, now))?;
        inner.normalize(&mut request.path);
        let ticket = inner.ticket(request, caller);
        let mut ticket = ticket.map_err(|answer| finish(answer, inner.requests, now))?;
        let price = ticket.price;
        let login = ticket.login();
        let limits = inner.limits.clone();
        let usage = inner.usages.entry(login.clone()).or_default();
        if let Err(denial) = usage.pay(now, price, &limits) {
            let answer = inner.refuse(denial, now, &ticket);
            inner.count(&ticket, now, Some(&answer), false);
            let answer = inner.rates(answer, &login, price.resource, now);
            return Err(finish(answer, inner.requests, now));
        }
        usage.in_flight += 1;
        ticket.fault = inner.fault(&ticket);
        if let Some(Fault::LateWrite(_)) = ticket.fault {
            // Ids are given out first and written later, so their order is not that of writing.
            ticket.reserved = Some(inner.world.new_id());
        }
        Ok(ticket)
    }

    fn carry_out(&self, request: &Request, ticket: &Ticket) -> Answer {
        if request.body == Body::Broken {
            return Answer::error(400, "Problems parsing JSON");
        }
        let mut inner = self.lock();
        let inner = &mut *inner;
        let now = self.clock.stamp();
        let lag = inner.lag.mul_f64(inner.random.f64());
        let rates = inner.all_rates(&ticket.login(), now);
        let (route, params) = match (&ticket.work, &ticket.caller) {
            (Work::Rest(route, params), _) => (route, params),
            (Work::Graphql(plan), Some(caller)) => {
                let (world, reserved) = (&mut inner.world, ticket.reserved);
                let seen = now.minus(lag);
                return plan.run(Scene { world, caller, now, seen, rates, reserved });
            }
            (Work::Graphql(_), None) => {
                return Answer::error(401, "This endpoint requires you to be authenticated.");
            }
        };
        let mut context = Context {
            world: &mut inner.world,
            caller: ticket.caller.as_ref(),
            request,
            params,
            now,
            seen: now.minus(lag),
            base: &self.base,
            limits: &inner.limits,
            reserved: ticket.reserved,
            rates,
        };
        let reply: Reply = (route.run)(&mut context);
        reply.unwrap_or_else(|error| error)
    }

    /// Conditional requests, headers and counters.
    fn settle(&self, request: &Request, ticket: &Ticket, answer: Option<Answer>) -> Option<Answer> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let now = self.clock.stamp();
        let login = ticket.login();
        let mut free = false;
        let answer = answer.map(|answer| {
            if ticket.mutation || answer.status != 200 {
                return answer;
            }
            if ticket.price.resource == Resource::Graphql {
                return answer;
            }
            // It depends on the token, too, as GitHub's does.
            let token = request.header("authorization").unwrap_or_default();
            let hash = hash(&format!("{token}\0{}", answer.text()));
            let tag = format!("W/\"{hash}\"");
            let known = request.header("if-none-match").unwrap_or_default();
            if known.split(", ").any(|known| known == tag) {
                free = true;
                return Answer::new(304, Value::Null).with("etag", tag);
            }
            answer.with("etag", tag)
        });
        inner.count(ticket, now, answer.as_ref(), !free);
        if let Some(usage) = inner.usages.get_mut(&login) {
            usage.in_flight = usage.in_flight.saturating_sub(1);
            if free {
                usage.refund(ticket.price);
            }
        }
        let answer = inner.rates(answer?, &login, ticket.price.resource, now);
        Some(finish(answer, inner.requests, now))
    }
}

impl Ticket {
    /// The account; nothing without a token.
    fn login(&self) -> String {
        self.caller.as_ref().map(|caller| caller.login.clone()).unwrap_or_default()
    }
}

impl Inner {
    fn caller(&self, request: &Request) -> Result<Option<Caller>, Answer> {
        let Some(header) = request.header("authorization") else { return Ok(None) };
        let token = header.split_once(' ').map(|(_, token)| token.trim());
        let known = token.and_then(|token| self.world.tokens.get(token));
        let token = known.ok_or_else(|| Answer::error(401, "Bad credentials"))?;
        Ok(Some(Caller { login: token.login.clone(), access: token.access }))
    }

    /// The path of an Enterprise server, and that of a repository by its number, as the usual one.
    fn normalize(&self, path: &mut Vec<String>) {
        if path.len() > 1 && path[0] == "api" && path[1] == "v3" {
            path.drain(..2);
        }
        if path.first().is_some_and(|part| part == "repositories")
            && let Some(id) = path.get(1).and_then(|id| id.parse().ok())
            && let Some(repo) = self.world.repos.get(&id)
        {
            let named = ["repos".to_owned(), repo.owner.clone(), repo.name.clone()];
            path.splice(..2, named);
        }
    }

    /// What is asked for, and what it costs.
    fn ticket(&self, request: &Request, caller: Option<Caller>) -> Result<Ticket, Answer> {
        let path: Vec<_> = request.path.iter().map(String::as_str).collect();
        if request.method == "POST" && matches!(path[..], ["graphql"] | ["api", "graphql"]) {
            return graphql_ticket(request, caller);
        }
        let (route, params) =
            api::find(&request.method, &request.path).ok_or_else(Answer::not_found)?;
        let mutation = request.method != "GET";
        let resource = match (route.template, &caller) {
            ("/search/issues", _) => Resource::Search,
            (_, None) => Resource::Anonymous,
            _ => Resource::Core,
        };
        let price = Price {
            resource,
            primary: u64::from(route.template != "/rate_limit"),
            points: if mutation { 5 } else { 1 },
            content: match route.notifies {
                Notifies::Yes => true,
                Notifies::Edit => self.limits.edits_notify,
                Notifies::No => false,
            },
        };
        let (kind, work) = (route.kind(), Work::Rest(route, params));
        Ok(Ticket { caller, kind, mutation, price, fault: None, reserved: None, work })
    }

    fn fault(&mut self, ticket: &Ticket) -> Option<Fault> {
        if let Some(status) = self.outage {
            return Some(Fault::ErrorBefore(status));
        }
        let fits = |(target, _): &(Target, Fault)| target.fits(&ticket.kind, ticket.mutation);
        if let Some(at) = self.next.iter().position(fits) {
            return Some(self.next.remove(at).1);
        }
        self.plan.draw(&ticket.kind, ticket.mutation, &mut self.random)
    }

    fn refuse(&mut self, denial: Denial, now: Stamp, ticket: &Ticket) -> Answer {
        match denial {
            Denial::Primary => {
                let id = self.world.user(&ticket.login()).map_or(0, |user| user.id);
                let message = format!("API rate limit exceeded for user ID {id}.");
                if ticket.price.resource != Resource::Graphql {
                    return Answer::error(403, &message);
                }
                let mut answer = graphql::errors(&message);
                answer.body["errors"][0]["type"] = "RATE_LIMITED".into();
                answer
            }
            Denial::Secondary(until) => {
                let message = "You have exceeded a secondary rate limit. Please wait a few \
                               minutes before you try again.";
                let manners = [Manner::Forbidden, Manner::TooMany, Manner::Silent];
                let manner = match self.limits.manner {
                    Manner::Mixed => manners[self.random.usize(..3)],
                    manner => manner,
                };
                let status = if manner == Manner::TooMany { 429 } else { 403 };
                let answer = Answer::error(status, message);
                let left = until.since(now).as_secs_f64().ceil();
                if manner == Manner::Silent { answer } else { answer.with("retry-after", left) }
            }
        }
    }

    fn count(&mut self, ticket: &Ticket, at: Stamp, answer: Option<&Answer>, paid: bool) {
        let denied = answer.is_some_and(|answer| answer.header("retry-after").is_some());
        let cost = if paid && !denied { ticket.price.primary } else { 0 };
        let graphql = ticket.price.resource == Resource::Graphql;
        self.counters.add(Call {
            at,
            login: ticket.login(),
            kind: ticket.kind.clone(),
            status: answer.map_or(0, |answer| answer.status),
            primary: if graphql { 0 } else { cost },
            graphql: if graphql { cost } else { 0 },
            mutation: ticket.mutation,
            content: ticket.price.content,
        });
    }

    fn rates(&mut self, answer: Answer, login: &str, resource: Resource, now: Stamp) -> Answer {
        let limit = resource.limit(&self.limits);
        let usage = self.usages.entry(login.to_owned()).or_default();
        let (used, reset) = usage.report(now, resource);
        answer
            .with("x-ratelimit-limit", limit)
            .with("x-ratelimit-remaining", limit.saturating_sub(used))
            .with("x-ratelimit-used", used)
            .with("x-ratelimit-reset", reset.seconds())
            .with("x-ratelimit-resource", resource.word())
    }

    fn all_rates(&mut self, login: &str, now: Stamp) -> Value {
        let core = if login.is_empty() { Resource::Anonymous } else { Resource::Core };
        let limits = self.limits.clone();
        let usage = self.usages.entry(login.to_owned()).or_default();
        let mut rate = |resource: Resource| {
            let (used, reset) = usage.report(now, resource);
            let limit = resource.limit(&limits);
            json!({
                "limit": limit, "used": used, "remaining": limit.saturating_sub(used),
                "reset": reset.seconds(),
            })
        };
        let core = rate(core);
        let resources = json!({
            "core": core, "graphql": rate(Resource::Graphql), "search": rate(Resource::Search),
        });
        json!({"resources": resources, "rate": core})
    }
}

fn graphql_ticket(request: &Request, caller: Option<Caller>) -> Result<Ticket, Answer> {
    let plan = Plan::read(request)?;
    let mutations = plan.mutations();
    let mutation = !mutations.is_empty();
    let price = Price {
        resource: Resource::Graphql,
        primary: 1,
        points: if mutation { 5 } else { 1 },
        content: mutations.contains(&"addComment"),
    };
    let kind = format!("graphql {}", mutations.first().unwrap_or(&"query"));
    let work = Work::Graphql(plan);
    Ok(Ticket { caller, kind, mutation, price, fault: None, reserved: None, work })
}

/// A server's error, as a proxy in front of it would write it.
fn trouble(status: u16) -> Answer {
    Answer::error(status, "Server Error")
}

/// The headers that every answer has.
fn finish(answer: Answer, number: u64, now: Stamp) -> Answer {
    answer
        .with("date", now.http())
        .with("server", "github.com")
        .with("x-github-request-id", format!("SIM:{number:08X}"))
}
