//! What is done with answers, and with records that cannot be read.

use sprag_core::record::Command;
use sprag_core::record::wire::Answer;
use sprag_core::store::{Evicted, Eviction};
use sprag_core::{Error, Operation, Result};
use tokio_postgres::Row;

use super::statements::{self, LOOK, REPAIR};
use super::store::{PostgresStore, written};
use crate::error::{Misfit, strange_answer};
use crate::link::Call;

impl PostgresStore {
    /// Breaks a lock whose record cannot be read; nothing if it can be.
    pub(crate) async fn repair(&self, eviction: &Eviction) -> Result<Option<Evicted>> {
        let name = &eviction.name;
        let named = |error: Error| error.during(Operation::Evict).on(name);
        let call = Call::new(LOOK).text(&self.namespace).text(name.as_str());
        let rows = self.ask(Operation::Evict, call).await.map_err(named)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let text = row.try_get(1).map_err(|e| named(self.misfit(&e.into())))?;
        if statements::fence_of_damaged(text) != Some(eviction.fence) {
            return Ok(None);
        }
        let command = written(&Command::evict(eviction), self.capability.max_waiters);
        let call = Call::new(REPAIR).durable().text(&self.namespace).text(name.as_str());
        let rows = self.ask(Operation::Evict, call.text(command)).await.map_err(named)?;
        let row = self.only(&rows).map_err(named)?;
        let text: Option<&str> = row.try_get(0).map_err(|e| named(self.misfit(&e.into())))?;
        let Some(text) = text else { return Ok(Some(Evicted::NotHeld)) };
        let answer = Answer::read(text).map_err(|e| named(strange_answer(e)))?;
        Ok(Some(answer.outcome.into_evicted()))
    }

    /// The one text that is the answer.
    pub(crate) fn text<'a>(&self, rows: &'a [Row]) -> Result<&'a str> {
        self.only(rows)?.try_get(0).map_err(|e| self.misfit(&e.into()))
    }

    /// The one row that is the answer.
    pub(crate) fn only<'a>(&self, rows: &'a [Row]) -> Result<&'a Row> {
        rows.first().ok_or_else(|| self.misfit(&"there is no row".into()))
    }

    /// An answer does not fit.
    pub(crate) fn misfit(&self, why: &Misfit) -> Error {
        self.link.misfit(why)
    }
}
