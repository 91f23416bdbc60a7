//! [`Progress`]: what is said on stderr while the lock is waited for.

use std::io::{IsTerminal, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use sprag::clock::{BootClock, Clock, Moment};
use sprag::{Client, LockView, Result, Wait};

use super::bell::Bell;
use super::notify::Notify;
use super::plan::Plan;
use crate::held;
use crate::output::plain::one_line;
use crate::output::{Output, time};

/// When the first word is said.
const FIRST: Duration = Duration::from_millis(100);
/// How often a line is printed where there is no terminal.
const LINE: Duration = Duration::from_secs(30);
/// How often the line on a terminal is drawn, and the lock looked at.
const DRAW: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_secs(1);
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

type Looking = Pin<Box<dyn Future<Output = Result<LockView>>>>;

pub(crate) struct Progress<'a> {
    plan: &'a Plan,
    client: Client,
    notify: &'a Notify,
    /// Our name among the waiters.
    worker: String,
    asking: &'a AtomicUsize,
    quiet: bool,
    terminal: bool,
    started: Moment,
    next: Moment,
    look_at: Moment,
    looking: Option<Looking>,
    view: Option<LockView>,
    frame: usize,
    /// Whether the line on the terminal is to be erased.
    drawn: bool,
    spoke: bool,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        client: &Client,
        worker: &str,
        asking: &'a AtomicUsize,
        output: &Output,
        notify: &'a Notify,
    ) -> Self {
        let started = BootClock.now();
        Self {
            plan,
            client: client.clone(),
            notify,
            worker: worker.to_owned(),
            asking,
            quiet: output.quiet || output.json,
            terminal: std::io::stderr().is_terminal(),
            started,
            next: started.plus(FIRST),
            look_at: started.plus(FIRST),
            looking: None,
            view: None,
            frame: 0,
            drawn: false,
            spoke: false,
        }
    }

    /// When there is something to be said again.
    pub(crate) fn next(&self) -> Moment {
        match self.looking {
            Some(_) => self.next,
            None => self.next.min(self.look_at),
        }
    }

    /// Says what is due. What it has to ask the store rings the bell.
    pub(crate) fn go_on(&mut self, bell: &Bell) {
        let now = BootClock.now();
        if now >= self.look_at && self.looking.is_none() {
            let index = self.asking.load(Ordering::Relaxed);
            let (client, name) = (self.client.clone(), self.plan.nth(index).clone());
            self.looking = Some(Box::pin(async move { client.inspect(&name).await }));
            self.look_at = now.plus(if self.terminal { LOOK } else { LINE });
        }
        if let Some(looking) = &mut self.looking
            && let Poll::Ready(view) = bell.poll(looking.as_mut())
        {
            self.looking = None;
            // A store that does not answer now leaves us with what it said before.
            self.view = view.ok().or(self.view.take());
        }
        let waited = now.since(self.started);
        if now < self.next {
            return;
        }
        if self.looking.is_some() && self.view.is_none() && waited < LOOK {
            self.next = now.plus(DRAW);
            return;
        }
        self.next = now.plus(if self.terminal { DRAW } else { LINE });
        let line = self.line(waited);
        self.notify.status(&line);
        if self.quiet {
            return;
        }
        self.spoke = true;
        if self.terminal {
            self.draw(waited);
        } else {
            say(&format!("sprag: {line}\n"));
        }
    }

    /// Takes the line from the terminal.
    pub(crate) fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            say("\r\x1b[K");
        }
    }

    /// Whether anything was said, and how long it took.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.spoke.then(|| BootClock.now().since(self.started))
    }

    fn line(&self, waited: Duration) -> String {
        match &self.view {
            Some(view) => held::waiting(view, &self.worker, waited, self.plan.wait),
            // The store has not told who holds it.
            None => {
                let name = self.plan.nth(0);
                format!("waiting for {name:?}; waited {}", time::span(waited))
            }
        }
    }

    fn draw(&mut self, waited: Duration) {
        let spinner = SPINNER[self.frame % SPINNER.len()];
        self.frame += 1;
        let mut parts = Vec::new();
        if let Some(view) = &self.view {
            parts.push(view.name.to_string());
            if let Some(holder) = view.holders.first() {
                let who = &holder.holder;
                let since = who.since_unix_ms.map(|since| time::span(time::ago(since)));
                let since = since.map(|since| format!(" for {since}")).unwrap_or_default();
                let reason = who.reason.as_ref().map(|reason| format!(" \"{reason}\""));
                parts.push(format!(
                    "held by {}{since}{}",
                    who.worker_id,
                    reason.unwrap_or_default()
                ));
                parts.extend(held::renewed(holder));
            }
            let place = held::place(view, &self.worker);
            parts.extend(place.map(|place| format!("you are {}", ordinal(place))));
        } else {
            parts.push(self.plan.nth(0).to_string());
        }
        let limit = match self.plan.wait {
            Wait::AtMost(limit) => format!(" / {}", clock(limit)),
            Wait::No | Wait::Forever => String::new(),
        };
        parts.push(format!("{}{limit}", clock(waited)));
        parts.push("^C gives up".into());
        let width = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
        let width = width.map_or(80, |size| usize::from(size.ws_col)).max(20);
        let line = format!("{spinner} {}", parts.join(" · "));
        let line: String = one_line(&line).chars().take(width - 1).collect();
        say(&format!("\r\x1b[K{line}"));
        self.drawn = true;
    }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// `0:38`, `10:00`, `1:02:03`.
fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Writes to stderr; who closed it does not want to hear it.
pub(crate) fn say(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::{clock, ordinal};
    use std::time::Duration;

    #[test]
    fn places_and_clocks_read_well() {
        let places: Vec<_> = [1, 2, 3, 4, 11, 12, 21, 112].map(ordinal).into();
        assert_eq!(places, ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th"]);
        assert_eq!(clock(Duration::from_secs(38)), "0:38");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
