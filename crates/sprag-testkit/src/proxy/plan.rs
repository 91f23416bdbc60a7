//! [`Plan`]: what waits for which request, and what has gone through.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Captured;
use super::flow::Fault;

/// How many requests are remembered.
const REMEMBERED: usize = 100_000;

/// Faults for requests to come, and the requests that came.
#[derive(Debug, Default)]
pub(super) struct Plan {
    rules: Mutex<Vec<Rule>>,
    captured: Mutex<Vec<Captured>>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    left: usize,
    fault: Fault,
}

impl Plan {
    pub(super) fn add(&self, text: &str, times: usize, fault: Fault) {
        self.rules().push(Rule { text: text.to_owned(), left: times, fault });
    }

    pub(super) fn clear(&self) {
        self.rules().clear();
    }

    pub(super) fn captured(&self) -> Vec<Captured> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers a request, and says what is to be done to its connection.
    pub(super) fn saw(&self, request: Captured) -> Option<Fault> {
        let mut rules = self.rules();
        let found = rules.iter().position(|rule| request.contains(&rule.text));
        let fault = found.map(|index| {
            rules[index].left -= 1;
            let fault = rules[index].fault;
            if rules[index].left == 0 {
                rules.remove(index);
            }
            fault
        });
        let mut captured = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        if captured.len() < REMEMBERED {
            captured.push(request);
        }
        fault
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
