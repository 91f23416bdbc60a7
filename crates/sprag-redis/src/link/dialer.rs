//! [`Dialer`]: finds the server and logs in.

use std::fmt;
use std::time::Duration;

use sprag_core::ErrorKind;
use sprag_core::clock::{BootClock, Clock, Moment};

use super::line::Line;
use crate::config::{Address, Login, Place, RedisConfig, Tls};
use crate::error::Trouble;
use crate::resp::{FromValue, Value};

/// How to get a connection.
#[derive(Clone)]
pub(crate) struct Dialer {
    place: Place,
    login: Login,
    tls: Option<Tls>,
    pub(crate) timeout: Duration,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialer").field(&self.place).finish()
    }
}

impl Dialer {
    pub(crate) fn new(config: &RedisConfig) -> Self {
        let (place, login, tls) = (config.place.clone(), config.login.clone(), config.tls.clone());
        Self { place, login, tls, timeout: config.timeout }
    }

    /// How to get a connection to each sentinel, and what it calls the master.
    pub(crate) fn sentinels(&self) -> Vec<(String, Self)> {
        let Place::Sentinel { master, sentinels, login } = &self.place else { return Vec::new() };
        let login = Login { password: login.0.clone(), ..Login::default() };
        let to = |address: &Address| Self {
            place: Place::Server(address.clone()),
            login: login.clone(),
            ..self.clone()
        };
        sentinels.iter().map(|address| (master.clone(), to(address))).collect()
    }

    /// What errors call the server.
    pub(crate) fn name(&self) -> String {
        self.place.to_string()
    }

    /// Connects and logs in.
    pub(crate) fn dial(&self) -> Result<Line, Trouble> {
        let until = BootClock.now().plus(self.timeout);
        match &self.place {
            Place::Server(address) => self.log_in(address, until),
            Place::Sentinel { master, sentinels, login } => {
                let mut reasons = Vec::new();
                for sentinel in sentinels {
                    let known = self.ask_sentinel(sentinel, master, login.0.as_deref());
                    match known.and_then(|address| self.log_in(&address, self.until())) {
                        Ok(line) => return Ok(line),
                        Err(trouble) => reasons.push(trouble),
                    }
                }
                Err(all_failed(master, &reasons))
            }
            Place::Cluster(nodes) => {
                let mut failed = None;
                for node in nodes {
                    match self.log_in(node, self.until()) {
                        Ok(line) => return Ok(line),
                        Err(trouble) => failed = Some(trouble),
                    }
                }
                Err(failed.unwrap_or_else(|| Trouble::no_answer(&self.name(), "has no node")))
            }
        }
    }

    fn until(&self) -> Moment {
        BootClock.now().plus(self.timeout)
    }

    fn log_in(&self, address: &Address, until: Moment) -> Result<Line, Trouble> {
        let Login { username, password, database } = &self.login;
        let mut line = self.connect(address, until)?;
        let database = database.to_string();
        let mut words = Vec::new();
        if let Some(password) = password {
            words.push(auth(username.as_deref(), password));
        }
        if database != "0" {
            words.push(vec!["SELECT", &database]);
        }
        ask(&mut line, address, &words, until)?;
        Ok(line)
    }

    fn connect(&self, address: &Address, until: Moment) -> Result<Line, Trouble> {
        Line::connect(address, self.tls.as_ref(), until)
            .map_err(|e| Trouble::io(&address.to_string(), &e))
    }

    /// Where a sentinel believes the master to be.
    fn ask_sentinel(
        &self,
        sentinel: &Address,
        master: &str,
        password: Option<&str>,
    ) -> Result<Address, Trouble> {
        let until = self.until();
        let mut line = self.connect(sentinel, until)?;
        let mut words: Vec<_> = password.map(|password| auth(None, password)).into_iter().collect();
        words.push(vec!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master]);
        let answer = ask(&mut line, sentinel, &words, until)?.pop();
        match answer.and_then(Option::<(String, u64)>::from_value) {
            Some(Some((host, port))) => {
                let port = u16::try_from(port).map_err(|_| strange(sentinel))?;
                Ok(Address::Tcp(host, port))
            }
            Some(None) => {
                let message = format!(
                    "{sentinel} watches no master {master:?}: type redis-cli -p PORT SENTINEL \
                     MASTERS to see the names, and correct the URL"
                );
                Err(Trouble::new(ErrorKind::Refused, message))
            }
            None => Err(strange(sentinel)),
        }
    }
}

fn auth<'a>(username: Option<&'a str>, password: &'a str) -> Vec<&'a str> {
    ["AUTH"].into_iter().chain(username).chain([password]).collect()
}

/// Asks a server while nobody else does; every answer must be a yes.
pub(crate) fn ask(
    line: &mut Line,
    address: &impl ToString,
    requests: &[Vec<&str>],
    until: Moment,
) -> Result<Vec<Value>, Trouble> {
    let address = address.to_string();
    let answers = line.exchange(requests, until).map_err(|e| Trouble::io(&address, &e))?;
    match answers.iter().find_map(|answer| if let Value::No(no) = answer { Some(no) } else { None })
    {
        Some(refused) => Err(Trouble::refused(&address, refused)),
        None => Ok(answers),
    }
}

fn strange(address: &Address) -> Trouble {
    let message = format!("{address} is no sentinel: name sentinels, usually on port 26379");
    Trouble::new(ErrorKind::Refused, message)
}

/// Why no sentinel was of help. A reason that somebody has to act on goes first.
fn all_failed(master: &str, reasons: &[Trouble]) -> Trouble {
    match reasons.iter().find(|reason| !reason.is_passing()).or(reasons.last()) {
        Some(reason) => reason.clone(),
        None => Trouble::no_answer(&format!("the master {master:?}"), "has no sentinel"),
    }
}
