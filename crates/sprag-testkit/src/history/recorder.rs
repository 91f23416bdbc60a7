//! [`Recorder`]: where events are kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sprag_core::clock::{BootClock, Clock};

use super::Event;

/// Keeps events in memory, or appends them to a file that several processes share.
///
/// # Examples
///
/// ```no_run
/// use sprag_testkit::history::{Recorder, Rules, check};
///
/// let recorder = Recorder::append_to("history.jsonl")?; // In each process.
/// let sent = Recorder::now_ns(); // Before each request.
/// // After the last process has ended:
/// let violations = check(&Recorder::read("history.jsonl")?, &Rules::default());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
enum Kept {
    Memory(Vec<Event>),
    File(File),
}

impl Recorder {
    /// Keeps the events of this process in memory.
    pub fn in_memory() -> Self {
        Self { kept: Mutex::new(Kept::Memory(Vec::new())) }
    }

    /// Appends to a file, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn append_to(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { kept: Mutex::new(Kept::File(file)) })
    }

    /// The time to put into events.
    pub fn now_ns() -> u64 {
        u64::try_from(BootClock.now().since_start().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Keeps an event.
    ///
    /// # Errors
    ///
    /// When the file cannot be written. A history with holes proves nothing, so stop then.
    pub fn record(&self, event: Event) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Kept::Memory(events) => events.push(event),
            Kept::File(file) => {
                let mut line = serde_json::to_vec(&event)?;
                line.push(b'\n');
                // One write per line: with O_APPEND the lines of several processes do not mix,
                // and a killed process leaves whole lines.
                file.write_all(&line)?;
            }
        }
        Ok(())
    }

    /// The events in memory; none if they go to a file.
    pub fn events(&self) -> Vec<Event> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Kept::Memory(events) => events.clone(),
            Kept::File(_) => Vec::new(),
        }
    }

    /// Reads a file of events.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or names the first line that is not an event.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<Event>> {
        let text = std::fs::read_to_string(path)?;
        let event = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", index + 1))
            })
        };
        text.lines().enumerate().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Recorder;
    use crate::history::tests::samples::event;
    use crate::history::{Event, Op, Outcome};
    use std::sync::Arc;

    fn full() -> Event {
        let event = event(Op::Granted, 7, 10).fence(sprag_core::Fence::MAX).valid_until(99);
        let event = event.outcome(Outcome::Unknown).priority(-3).value(4);
        event.seen(vec![sprag_core::LeaseId::from_u128(1)], Vec::new())
    }

    #[test]
    fn an_event_survives_its_line() {
        for event in [full(), event(Op::Request, 1, 0)] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }

    #[test]
    fn many_threads_and_two_openers_share_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let recorders: Vec<_> =
            (0..2).map(|_| Arc::new(Recorder::append_to(&path).unwrap())).collect();
        let threads = (0..8_usize).map(|number| {
            let recorder = Arc::clone(&recorders[number % 2]);
            std::thread::spawn(move || {
                for _ in 0..250 {
                    recorder.record(full()).unwrap();
                }
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
        let events = Recorder::read(&path).unwrap();
        assert_eq!(events.len(), 2000);
        assert!(events.iter().all(|event| *event == full()));
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        Recorder::append_to(&path).unwrap().record(full()).unwrap();
        let broken = std::fs::read_to_string(&path).unwrap() + "{\"proc\":\n";
        std::fs::write(&path, broken).unwrap();
        assert!(Recorder::read(&path).unwrap_err().to_string().starts_with("line 2: "));
    }

    #[test]
    fn the_clock_runs() {
        assert!(Recorder::now_ns() > 0);
    }
}
