//! `sprag run`: the command, its lock and its guardian.
//!
//! ```text
//!   waiting --granted--> held --no signal so far--> running --command ended--> releasing
//!      `------------------ a signal: give everything back, exit 128+n
//! ```
//!
//! One thread and no runtime: it waits in poll(2) for the store's answers, signals, the guardian
//! and the clock. The client's own thread renews the lease.

mod alarm;
mod bell;
pub(crate) mod environment;
pub(crate) mod forced;
mod give_back;
pub(crate) mod guardian;
mod hold;
mod holding;
pub(crate) mod leader;
mod nested;
mod notify;
pub(crate) mod outer;
pub(crate) mod overlap;
pub(crate) mod plan;
mod progress;
mod report;
pub(crate) mod signals;
pub(crate) mod socket;
mod taken;
mod tree;
pub(crate) mod under;
mod wait;
mod ward;
mod wire;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde_json::json;
use sprag::clock::{BootClock, Clock};
use sprag::{Fence, LeaseId, LockName, Loss};

use self::forced::Forced;
use self::hold::{End, Hold};
use self::holding::Holding;
use self::notify::Notify;
use self::plan::Plan;
use self::progress::{Progress, say};
use self::report::Report;
use self::signals::{FORWARDED, Received, Signals};
use self::socket::Desk;
use self::taken::{Taken, Taking};
use self::wait::Waited;
use self::ward::Ward;
use crate::args::Run;
use crate::code::Code;
use crate::commands::Outcome;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain::one_line;
use crate::output::{time, with_schema};
use crate::store::Opened;
use crate::{done, held, identity};

/// How long the client's thread is waited for at the end.
const LETTING_GO: Duration = Duration::from_secs(1);

/// Runs the command under the lock.
pub(crate) fn main(args: &Run, context: &Context) -> Outcome {
    let mut plan = Plan::new(args, context)?;
    if nested::enter(&mut plan)? {
        let error = nested::exec(&plan);
        return Err(not_started(&plan, error.raw_os_error().unwrap_or(0)));
    }
    let report = Report::new(plan.status_fd)?;
    let (outcome, ended) = match Session::start(&plan, context).and_then(Session::run) {
        Ok((outcome, exit)) => (outcome, Ok(exit)),
        Err(failure) => (failure.code().name(), Err(failure)),
    };
    let exit = ended.as_ref().map_or_else(Failure::exit, |exit| *exit);
    report.write(outcome, exit);
    ended
}

fn not_started(plan: &Plan, errno: i32) -> Failure {
    let error = std::io::Error::from_raw_os_error(errno);
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => Code::NotFound,
        _ => Code::NotExecutable,
    };
    let program = plan.command.first().map(|program| program.to_string_lossy().into_owned());
    Failure::new(code, format!("cannot run {:?}: {error}", program.unwrap_or_default()))
}

fn bug(error: std::io::Error) -> Failure {
    Failure::new(Code::Bug, format!("the operating system refuses what sprag needs: {error}"))
}

/// Everything that one run has open.
struct Session<'a> {
    plan: &'a Plan,
    context: &'a Context,
    signals: Signals,
    ward: Ward,
    opened: Opened,
    notify: Notify,
}

impl<'a> Session<'a> {
    fn start(plan: &'a Plan, context: &'a Context) -> Result<Self, Failure> {
        // Before there are threads: they inherit what is blocked.
        let signals = Signals::block(&FORWARDED).map_err(bug)?;
        Desk::check_folder()?;
        // Before the store is opened, so that it comes up meanwhile.
        let names: Vec<_> = plan.named.iter().map(|name| name.as_str()).collect();
        let ward = Ward::start(&names.join(",")).map_err(bug)?;
        let force = plan.strategy == sprag::Strategy::ForceAcquire;
        let give_up = BootClock.now().plus(plan.store_patience());
        let patient = |error: &sprag::Error| {
            error.is_busy() && BootClock.now() < give_up && !signals.is_any_pending()
        };
        let opened =
            Opened::open_patiently(&context.settings, |locks| locks.allow_force(force), patient);
        let opened = opened.map_err(|failure| match signals.next() {
            Some(signal) if signal.ends() => failure.exiting(Exit::signal(signal.number)),
            _ => failure,
        })?;
        if !plan.accept_overlap {
            overlap::refuse(&opened)?;
        }
        let notify = Notify::new(plan.sd_notify);
        Ok(Self { plan, context, signals, ward, opened, notify })
    }

    /// The outcome as a word, and the exit code.
    fn run(mut self) -> Result<(&'static str, Exit), Failure> {
        let holder = identity::holder(&self.context.settings).worker_id;
        let asking = AtomicUsize::new(0);
        let (plan, output) = (self.plan, &self.context.output);
        let client = self.opened.client().clone();
        let forced = Forced::look(plan, &client)?;
        let mut progress = Progress::new(plan, &client, &holder, &asking, output, &self.notify);
        let waited = wait::wait(plan, &client, &asking, &mut progress, &self.signals);
        let spoke = progress.waited();
        drop(progress);
        let result = match waited.map_err(bug)? {
            Waited::Stopped(signal) => {
                let exit = Exit::signal(signal.number);
                if !wait::leave(&client, &self.signals).map_err(bug)? {
                    // The kernel ends the session with the process; nothing is waited for.
                    std::mem::forget((client, self));
                    return Ok(("interrupted", exit));
                }
                Ok(("interrupted", exit))
            }
            Waited::Answered(Ok(Taking::Taken(taken))) => {
                if let (Some(waited), false) = (spoke, output.quiet || output.json) {
                    let tokens: Vec<_> =
                        taken.guards().iter().map(|guard| guard.fence().to_string()).collect();
                    say(&format!(
                        "sprag: acquired {} after {} (token {})\n",
                        quoted(plan),
                        time::span(waited),
                        tokens.join(", ")
                    ));
                }
                match forced.outlast(&client, &*taken, &self.signals, output).map_err(bug)? {
                    None => self.hold(*taken, &holder),
                    Some(signal) => self.leave(*taken, signal),
                }
            }
            Waited::Answered(Ok(Taking::Done(view))) => {
                self.skip(&done_text(plan, &view));
                Ok(("done", Exit::OK))
            }
            Waited::Answered(Err(error)) => self.not_taken(error),
        };
        drop(client);
        self.close();
        result
    }

    /// The locks were not to be had.
    fn not_taken(&self, error: sprag::Error) -> Result<(&'static str, Exit), Failure> {
        let held = error.is_held() || error.is_timeout();
        if held && self.plan.skip_if_held {
            let failure = sprag::block_on(held::explain(error, &self.opened));
            self.skip(failure.message());
            return Ok(("skipped", Exit::OK));
        }
        let failure = sprag::block_on(held::explain(error, &self.opened));
        Err(if held { failure.exiting(self.plan.if_held_exit) } else { failure })
    }

    /// Says that the command is not run, and why.
    fn skip(&self, why: &str) {
        let output = &self.context.output;
        if output.json && !output.quiet {
            output.error_line(&with_schema(json!({"skipped": why})).to_string());
        } else {
            output.note(&format!("skipped: {why}"));
        }
    }

    /// Runs the command.
    fn hold(&mut self, taken: Taken, holder: &str) -> Result<(&'static str, Exit), Failure> {
        let plan = self.plan;
        // Who holds nothing but a mark has nothing to tell; the run around it has.
        let desk = if plan.names.is_empty() { None } else { Desk::open()? };
        let mut order = plan.order(&taken, holder, desk.as_ref().map(Desk::path));
        let (told, shared_group) = (order.valid_until, order.group != 0);
        // The last moment at which nothing has been started.
        if let Some(signal) = self.signals.next_that_ends() {
            return self.leave(taken, signal);
        }
        let lifeline = self.opened.client().lifeline();
        // Where the lock does not end with the session, somebody has to give it back.
        if lifeline.is_none() && self.opened.capability().detached {
            order.store.clone_from(&plan.store);
            order.leases = taken.leases();
        }
        self.ward.command(order, lifeline).map_err(bug)?;
        self.notify.ready(&format!("holding {}", quoted(plan)));
        let mut hold = Hold {
            plan,
            output: &self.context.output,
            signals: &self.signals,
            taken: &taken,
            ward: &mut self.ward,
            desk: desk.as_ref(),
            shared_group,
            since: BootClock.now(),
            told,
            process: 0,
            lost: false,
            stopped: None,
        };
        let end = hold.stay().unwrap_or(End::Orphaned);
        let lost = hold.lost;
        self.notify.stopping();
        self.release(taken, end, lost)
    }

    /// Gives everything back, as a signal said before anything was started.
    fn leave(&mut self, taken: Taken, signal: Received) -> Result<(&'static str, Exit), Failure> {
        drop(taken);
        wait::leave(self.opened.client(), &self.signals).map_err(bug)?;
        Ok(("interrupted", Exit::signal(signal.number)))
    }

    /// Tells whoever took the locks away that nothing runs under them any more.
    fn confirm(&self, taken: &[(LockName, LeaseId, Fence)]) {
        for (name, lease, fence) in taken {
            self.opened.client().note_stopped(name, *lease, *fence);
        }
    }

    fn release(
        &mut self,
        taken: Taken,
        end: End,
        lost: bool,
    ) -> Result<(&'static str, Exit), Failure> {
        let success = !lost && end == End::Status(0);
        if end == End::Orphaned {
            self.ward.end_all();
        }
        let valid = taken.guards().iter().all(sprag::LockGuard::is_valid);
        let known: Vec<_> = taken.guards().iter().map(forced::known).collect();
        if lost && taken.guards().iter().any(forced::is_taken_away) {
            self.confirm(&known);
        }
        let released = if lost {
            // What is left of it is given back by the client's thread, or ends with the session:
            // the store may be why it was lost, and is not waited for.
            drop(taken);
            Ok(None)
        } else {
            sprag::block_on(taken.release(success, self.plan, self.opened.client()))
        };
        let taken_away = match &released {
            Ok(Some((name, loss @ (Loss::Broken { .. } | Loss::Stolen { .. })))) if !lost => {
                let message = format!("lost lock {name:?} while the command ran");
                let failure = Failure::new(Code::Lost, message).fact("cause", loss.to_string());
                failure.print(&self.context.output);
                self.confirm(&known);
                true
            }
            _ => false,
        };
        if let (Err(error), false) = (&released, lost) {
            self.skip(&format!("{error}; its lease ends by itself"));
        }
        match end {
            _ if lost || taken_away => Ok(("lost", Exit::LOST)),
            End::NotStarted(errno) => Err(not_started(self.plan, errno)),
            End::Orphaned => {
                let code = if valid { Code::Bug } else { Code::Lost };
                let message = "the guardian was killed, and the command was stopped with it";
                Err(Failure::new(code, message))
            }
            End::Status(status) => exit_of(status),
        }
    }

    /// Ends the session in the store before the process ends, so that nothing of it is left.
    fn close(self) {
        let Self { opened, mut ward, .. } = self;
        let store = Arc::clone(opened.store());
        drop(opened);
        // The client's thread lets go of the store when it has seen that its last handle is gone.
        let limit = BootClock.now().plus(LETTING_GO);
        while Arc::strong_count(&store) > 1 && BootClock.now() < limit {
            std::thread::park_timeout(Duration::from_micros(50));
        }
        drop(store);
        ward.end();
    }
}

fn exit_of(status: i32) -> Result<(&'static str, Exit), Failure> {
    let status = ExitStatus::from_raw(status);
    if let Some(signal) = status.signal().and_then(|signal| u8::try_from(signal).ok()) {
        return Ok(("child_signal", Exit::signal(signal)));
    }
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(("child_exit", Exit::status(code))),
        None => {
            let message = "the kernel does not tell how the command ended: SIGCHLD was ignored \
                           when sprag was started";
            Err(Failure::new(Code::Bug, message))
        }
    }
}

fn quoted(plan: &Plan) -> String {
    let names = if plan.names.is_empty() { &plan.named } else { &plan.names };
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn done_text(plan: &Plan, view: &sprag::LockView) -> String {
    let name = quoted(plan);
    match view.holders.first() {
        Some(mark) => {
            let period = plan.once_per.unwrap_or_default();
            let rest = done::rest_of_period(time::now(), period);
            let again = time::span(mark.remaining.unwrap_or(rest));
            let who = one_line(&mark.holder.worker_id);
            format!("{name} is done for this period by {who}; again in {again}")
        }
        None => format!("{name} is done for this period"),
    }
}
