//! [`Cluster`]: many servers, each with some of the locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_ok;
use sprag_core::{ErrorKind, Result};

use crate::config::{Address, Place, RedisConfig};
use crate::error::{Trouble, error, strange_answer};
use crate::link::Link;
use crate::longest::Longest;
use crate::resp::{FromValue, Refused, Value};
use crate::script::Call;

/// How often a request may be sent on to another server.
const HOPS: usize = 5;

/// The servers of a Cluster, and which of them has which slots.
///
/// A request that was sent on or failed half-way may be sent again: it is recognised by its lease.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: RedisConfig,
    longest: Arc<Longest>,
    /// The server through which the Cluster was found.
    door: Arc<Link>,
    map: Mutex<Map>,
    /// One at a time asks who has what.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Map {
    links: HashMap<Address, Arc<Link>>,
    slots: Vec<Range>,
    /// How often it was drawn.
    drawn: u64,
    /// Whether something has shown that it is wrong.
    wrong: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u64,
    last: u64,
    master: Address,
}

/// Where a server sends us.
enum Sent {
    /// To the new place of the slot.
    Moved(Address),
    /// To the place where the slot is going, for this request only.
    Ask(Address),
    /// To wait.
    Away(Trouble),
}

impl Cluster {
    pub(crate) fn new(config: RedisConfig, longest: Arc<Longest>, door: Arc<Link>) -> Result<Self> {
        let (map, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { config, longest, door, map, turn })
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that has a slot.
    pub(crate) async fn link_for(&self, slot: u16) -> Result<Arc<Link>> {
        self.draw_if_needed().await?;
        let master = {
            let map = self.map();
            let has = |range: &&Range| range.first <= slot.into() && range.last >= slot.into();
            map.slots.iter().find(has).map(|range| range.master.clone())
        };
        match master {
            Some(master) => self.link_to(&master),
            None => {
                self.map().wrong = true;
                let message = format!("no node of the Cluster has slot {slot}: see CLUSTER INFO");
                Err(error(ErrorKind::Busy, message))
            }
        }
    }

    /// The same, and it was met.
    pub(crate) async fn met_link_for(&self, slot: u16) -> Result<Arc<Link>> {
        let link = self.link_for(slot).await?;
        self.or_doubt(link.meet().await)?;
        Ok(link)
    }

    /// A server that cannot be asked may be dead, and another one in its place: the map is drawn anew.
    fn or_doubt<T>(&self, asked: Result<T>) -> Result<T> {
        asked.inspect_err(|_| self.map().wrong = true)
    }

    /// All servers that have slots.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Link>>> {
        self.draw_if_needed().await?;
        let mut masters: Vec<_> =
            self.map().slots.iter().map(|range| range.master.clone()).collect();
        masters.sort_by_key(Address::to_string);
        masters.dedup();
        masters.iter().map(|master| self.link_to(master)).collect()
    }

    /// Asks the server that has a slot, of which `calls` says what; also tells which one has answered.
    /// A request that is sent on is limited by the clock of the server that it is sent to.
    pub(crate) async fn ask_all(
        &self,
        slot: u16,
        calls: impl Fn(&Link) -> Vec<Call> + Send + Sync,
    ) -> Result<(Vec<Value>, Arc<Link>)> {
        let mut link = self.link_for(slot).await?;
        let mut asking = false;
        for _ in 0..HOPS {
            let asked = async {
                link.meet().await?;
                let mut sent = calls(&link);
                if asking {
                    sent.insert(0, Call::plain(&["ASKING"]));
                }
                link.ask_all(sent).await
            };
            let mut answers = self.or_doubt(asked.await)?;
            if asking {
                answers.remove(0);
            }
            asking = false;
            match answers.iter().find_map(sent_away) {
                None => return Ok((answers, link)),
                Some(Sent::Ask(address)) => (link, asking) = (self.link_to(&address)?, true),
                Some(Sent::Moved(address)) => {
                    self.map().wrong = true;
                    link = self.link_to(&address)?;
                }
                Some(Sent::Away(trouble)) => {
                    self.map().wrong = true;
                    return Err(trouble.into());
                }
            }
        }
        let message =
            format!("the Cluster sent the request on {HOPS} times: try again in a moment");
        Err(error(ErrorKind::Busy, message))
    }

    fn link_to(&self, address: &Address) -> Result<Arc<Link>> {
        if let Some(link) = self.map().links.get(address) {
            return Ok(Arc::clone(link));
        }
        let mut config = self.config.clone();
        config.place = Place::Cluster(vec![address.clone()]);
        let link = Arc::new(Link::lazy(config, Arc::clone(&self.longest))?);
        Ok(Arc::clone(self.map().links.entry(address.clone()).or_insert(link)))
    }

    /// Asks who has what, unless it is known.
    async fn draw_if_needed(&self) -> Result<()> {
        let before = {
            let map = self.map();
            if !map.wrong && map.drawn > 0 {
                return Ok(());
            }
            map.drawn
        };
        let turn = self.turn.lock().await;
        if self.map().drawn != before {
            // Somebody else just did.
            return Ok(());
        }
        let mut links: Vec<_> = self.map().links.values().cloned().collect();
        links.push(Arc::clone(&self.door));
        // All at once: whoever has its lock on a good one must not wait for one that hangs.
        let asking = links.into_iter().map(|link| {
            Box::pin(async move {
                let answer = link.ask::<Value>(Call::plain(&["CLUSTER", "SLOTS"])).await?;
                ranges(answer, link.host())
                    .ok_or_else(|| strange_answer("CLUSTER SLOTS is answered in another form"))
            })
        });
        let (slots, _) = select_ok(asking).await?;
        let mut map = self.map();
        map.links.retain(|address, _| slots.iter().any(|it| it.master == *address));
        (map.slots, map.wrong) = (slots, false);
        map.drawn += 1;
        drop((map, turn));
        Ok(())
    }
}

/// Where the answer sends us, if it does.
fn sent_away(answer: &Value) -> Option<Sent> {
    let Value::No(refused) = answer else { return None };
    let Refused { code, said } = refused;
    let address = || {
        // The slot, a space, host:port.
        let (host, port) = said.split(' ').nth(1)?.rsplit_once(':')?;
        Some(Address::Tcp(host.to_owned(), port.parse().ok()?)).filter(|_| !host.is_empty())
    };
    let away = || Sent::Away(Trouble::refused("the Cluster", refused));
    match code.as_str() {
        "MOVED" => Some(address().map_or_else(away, Sent::Moved)),
        "ASK" => Some(address().map_or_else(away, Sent::Ask)),
        "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "READONLY" => Some(away()),
        _ => None,
    }
}

/// Reads `CLUSTER SLOTS`. A node that does not know its own address is where it was asked.
fn ranges(answer: Value, asked: &str) -> Option<Vec<Range>> {
    let rows: Vec<Vec<Value>> = Vec::from_value(answer)?;
    let read = |row: Vec<Value>| {
        let mut parts = row.into_iter();
        let (first, last) = (u64::from_value(parts.next()?)?, u64::from_value(parts.next()?)?);
        let mut master = Vec::<Value>::from_value(parts.next()?)?.into_iter();
        let host = Option::<String>::from_value(master.next()?)?;
        let host = host.filter(|host| !host.is_empty() && host != "?");
        let port = u16::try_from(u64::from_value(master.next()?)?).ok()?;
        let master = Address::Tcp(host.unwrap_or_else(|| asked.to_owned()), port);
        Some(Range { first, last, master })
    };
    rows.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(code: &str, said: &str) -> Value {
        Value::No(Refused { code: code.into(), said: said.into() })
    }

    #[test]
    fn a_redirection_names_the_next_server() {
        let to = |answer| match sent_away(&answer) {
            Some(Sent::Moved(address)) => format!("moved {address}"),
            Some(Sent::Ask(address)) => format!("ask {address}"),
            Some(Sent::Away(_)) => "wait".to_owned(),
            None => "done".to_owned(),
        };
        assert_eq!(to(no("MOVED", "3999 127.0.0.1:6381")), "moved 127.0.0.1:6381");
        assert_eq!(to(no("ASK", "3999 ::1:6381")), "ask [::1]:6381");
        assert_eq!(to(no("MOVED", "3999 :6381")), "wait");
        assert_eq!(to(no("TRYAGAIN", "Multiple keys request during rehashing")), "wait");
        assert_eq!(to(no("SPRAGCORRUPT", "x")), "done");
        assert_eq!(to(Value::Int(1)), "done");
    }

    #[test]
    fn a_map_is_read_and_a_node_without_an_address_is_where_it_was_asked() {
        let text = |text: &str| Value::Text(text.into());
        let row = |first, last, host, port| {
            let master = vec![host, Value::Int(port), text("id")];
            Value::List(vec![Value::Int(first), Value::Int(last), Value::List(master)])
        };
        let answer = Value::List(vec![row(0, 99, text("a"), 1), row(100, 16383, Value::Nil, 2)]);
        let (a, b) = (Address::Tcp("a".into(), 1), Address::Tcp("asked".into(), 2));
        let expected = vec![
            Range { first: 0, last: 99, master: a },
            Range { first: 100, last: 16383, master: b },
        ];
        assert_eq!(ranges(answer, "asked"), Some(expected));
        assert_eq!(ranges(Value::Int(1), "asked"), None);
    }
}
