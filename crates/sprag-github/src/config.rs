//! [`GitHubConfig`]: which repository, as whom, and how patient we are.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock};
use sprag_core::home::state_folder;
use sprag_core::{ErrorKind, Result};
use sprag_ledger::Abandoned;

use crate::error::error;
use crate::mirror::Manner;
use crate::token::Token;

/// How to open a [`GitHubStore`](crate::GitHubStore).
///
/// # Examples
///
/// ```
/// use sprag_github::{GitHubConfig, Token};
///
/// let config = GitHubConfig::new("acme", "app")?.token(Token::new("ghp_secret")?);
/// assert!(!format!("{config:?}").contains("ghp_secret"));
/// # Ok::<(), sprag_core::Error>(())
/// ```
#[derive(Clone)]
pub struct GitHubConfig {
    pub(crate) host: String,
    pub(crate) owner: String,
    pub(crate) repo: String,
    pub(crate) api: String,
    pub(crate) token: Option<Token>,
    pub(crate) decides: Decides,
    pub(crate) human_override: bool,
    pub(crate) show_node: bool,
    pub(crate) mirror: bool,
    pub(crate) show_later: bool,
    pub(crate) queue: bool,
    pub(crate) notes: bool,
    pub(crate) limits: bool,
    pub(crate) abandoned: Abandoned,
    pub(crate) poll: RangeInclusive<Duration>,
    pub(crate) manner: Manner,
    pub(crate) lag: Duration,
    pub(crate) settle: Duration,
    pub(crate) timeout: Duration,
    pub(crate) state: Option<PathBuf>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What decides who has a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Decides {
    /// A ref that is compared and swapped: [L3](sprag_core::Level::Fenced).
    #[default]
    Refs,
    /// The oldest comment on the issue, for tokens that may not write contents. Only
    /// [L1](sprag_core::Level::Efficiency): GitHub's lists may be seconds old, so that two may
    /// believe that they have it.
    Assignment,
}

impl GitHubConfig {
    /// The repository `owner/repo` on github.com.
    ///
    /// # Errors
    ///
    /// If these cannot be the names of an owner and a repository.
    pub fn new(owner: &str, repo: &str) -> Result<Self> {
        Self::on_host("github.com", owner, repo)
    }

    /// The repository `owner/repo` on a server of your own, such as `ghe.corp`.
    ///
    /// # Errors
    ///
    /// If these cannot be the names of a host, an owner and a repository.
    pub fn on_host(host: &str, owner: &str, repo: &str) -> Result<Self> {
        let host = host.to_ascii_lowercase();
        let plain = |text: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !text.is_empty() && text.len() <= 100 && text.bytes().all(known) && text != ".."
        };
        if !plain(owner) || !plain(repo) || !plain(host.split(':').next().unwrap_or_default()) {
            let message = "a repository on GitHub is OWNER/REPO, of letters, digits, -, _ and .";
            return Err(error(ErrorKind::BadInput, message));
        }
        let api = match host.as_str() {
            "github.com" | "www.github.com" => "https://api.github.com".to_owned(),
            host if host.ends_with(".ghe.com") => format!("https://api.{host}"),
            host => format!("https://{host}/api/v3"),
        };
        Ok(Self {
            host,
            owner: owner.to_owned(),
            repo: repo.strip_suffix(".git").unwrap_or(repo).to_owned(),
            api,
            token: None,
            decides: Decides::Refs,
            human_override: false,
            show_node: false,
            mirror: true,
            show_later: false,
            queue: false,
            notes: false,
            limits: true,
            abandoned: Abandoned::Stays,
            poll: Duration::from_secs(1)..=Duration::from_secs(16),
            manner: Manner::default(),
            lag: Duration::from_secs(10),
            settle: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            state: state_folder(|name| std::env::var_os(name)),
            clock: Arc::new(BootClock),
        })
    }

    /// Reads `owner/repo` or `host/owner/repo`.
    ///
    /// # Errors
    ///
    /// If it is neither.
    pub fn parse(repository: &str) -> Result<Self> {
        match repository.split('/').collect::<Vec<_>>()[..] {
            [owner, repo] => Self::new(owner, repo),
            [host, owner, repo] => Self::on_host(host, owner, repo),
            _ => {
                let message = "a repository is OWNER/REPO, or HOST/OWNER/REPO on a server of \
                               your own";
                Err(error(ErrorKind::BadInput, message))
            }
        }
    }

    /// Another address of the API. Plain http is for this machine only, because the token goes
    /// along; the token is the one for the host of this address.
    ///
    /// # Errors
    ///
    /// If it is not https, nor http on a loopback address.
    pub fn api(mut self, url: &str) -> Result<Self> {
        let url = url.trim_end_matches('/');
        if !url.starts_with("https://") && !is_loopback(url) {
            let message = "the address of the API must be https://HOST or, on this machine, \
                           http://127.0.0.1:PORT: the token would be sent in the clear";
            return Err(error(ErrorKind::BadInput, message));
        }
        if url.contains(['@', '?', '#', ' ']) {
            let message =
                "the address of the API has a user, parameters or a blank: leave them out";
            return Err(error(ErrorKind::BadInput, message));
        }
        self.api = url.to_owned();
        Ok(self)
    }

    /// The token; by default it is looked for, see [`Token::find`].
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// What decides; [`Decides::Refs`] by default.
    #[must_use]
    pub const fn decides(mut self, decides: Decides) -> Self {
        self.decides = decides;
        self
    }

    /// Whether somebody who takes the assignee off an issue means to release its lock. By default
    /// the assignee is put back.
    #[must_use]
    pub const fn human_override(mut self, means_release: bool) -> Self {
        self.human_override = means_release;
        self
    }

    /// Whether comments name the machine of the holder. By default they do not: everybody who can
    /// read the issue could.
    #[must_use]
    pub const fn show_node(mut self, show: bool) -> Self {
        self.show_node = show;
        self
    }

    /// Whether issues show who holds their locks, by assignee and comment. On by default.
    #[must_use]
    pub const fn mirror(mut self, mirror: bool) -> Self {
        self.mirror = mirror;
        self
    }

    /// Whether an issue shows its lock only from [`GitHubStore::present`] on, for those who may give
    /// it back at once. Off by default.
    ///
    /// [`GitHubStore::present`]: crate::GitHubStore::present
    #[must_use]
    pub const fn show_later(mut self, later: bool) -> Self {
        self.show_later = later;
        self
    }

    /// Whether those who wait stand in a queue, in which they are served in turn and by priority.
    /// By default they only look, which costs nothing of the budget; a place in the queue costs
    /// about four requests, and signs of life as if one held the lock. Shared locks and semaphores
    /// need it, because without it writers could wait for ever.
    #[must_use]
    pub const fn queue(mut self, queue: bool) -> Self {
        self.queue = queue;
        self
    }

    /// Whether what only the client knows is in the audit trail: who was refused, who renewed late.
    /// Off by default, because each costs two requests.
    #[must_use]
    pub const fn notes(mut self, notes: bool) -> Self {
        self.notes = notes;
        self
    }

    /// Whether the limits that GitHub documents are kept ahead of time. On by default; a server of
    /// your own may have none, and then only what it says counts.
    #[must_use]
    pub const fn limits(mut self, limits: bool) -> Self {
        self.limits = limits;
        self
    }

    /// What becomes of a lock whose holder gives no sign of life any more. By default it stays,
    /// for everybody to see, until somebody takes it over as stale.
    #[must_use]
    pub const fn abandoned(mut self, abandoned: Abandoned) -> Self {
        self.abandoned = abandoned;
        self
    }

    /// How often a lock is looked at while somebody waits: from 1 s to 16 s by default, the longer
    /// the more seldom.
    #[must_use]
    pub const fn poll(mut self, poll: RangeInclusive<Duration>) -> Self {
        self.poll = poll;
        self
    }

    /// How late GitHub's answers may be; 10 s by default. Within this time after a change of ours,
    /// an older state that is read is not believed.
    #[must_use]
    pub const fn lag(mut self, lag: Duration) -> Self {
        self.lag = lag;
        self
    }

    /// How often the comment on an issue is refreshed: every 5 minutes by default while there is
    /// plenty of requests, every 28 while there is not.
    #[must_use]
    pub const fn refresh(mut self, ample: Duration, scarce: Duration) -> Self {
        self.manner.refresh = [ample, scarce];
        self
    }

    /// From when on a missing assignee counts as taken away by somebody; 1 min by default.
    #[must_use]
    pub const fn settled(mut self, settled: Duration) -> Self {
        self.manner.settled = settled;
        self
    }

    /// How long claims are left to settle before they are counted, with [`Decides::Assignment`].
    /// 5 s by default, and not less, but on this machine.
    #[must_use]
    pub fn settle(mut self, settle: Duration) -> Self {
        let least = if is_loopback(&self.api) { Duration::ZERO } else { Duration::from_secs(5) };
        self.settle = settle.max(least);
        self
    }

    /// How long one request may take; 10 s by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Where the processes of this machine keep what they share: the budget of requests and when
    /// which session was seen. By default `$XDG_STATE_HOME/sprag`; `None` keeps it in memory.
    #[must_use]
    pub fn state(mut self, folder: Option<PathBuf>) -> Self {
        self.state = folder;
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The host that the token is sent to, and has to be for.
    pub(crate) fn token_host(&self) -> &str {
        let host = host_of(&self.api);
        match host.strip_prefix("api.") {
            Some(public) if public == "github.com" || public.ends_with(".ghe.com") => public,
            _ => host,
        }
    }

    /// Whether the API is on this machine: a test, for which leases may be short.
    pub(crate) fn is_local(&self) -> bool {
        is_loopback(&self.api)
    }

    /// Where is kept what was seen of others.
    pub(crate) fn observations(&self) -> Option<PathBuf> {
        let path = self.remembered("seen")?;
        std::fs::create_dir_all(path.parent()?).ok()?;
        Some(path.with_extension("json"))
    }

    /// Where the processes of this machine remember something about this repository; `None` if they
    /// share nothing.
    pub fn remembered(&self, what: &str) -> Option<PathBuf> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = format!("{}-{}", self.api, self.shown()).chars().map(plain).collect();
        Some(self.state.as_ref()?.join("github").join(format!("{what}-{name}")))
    }

    /// How late GitHub's answers may be.
    pub const fn latest(&self) -> Duration {
        self.lag
    }

    /// The repository as people write it.
    pub fn shown(&self) -> String {
        match self.host.as_str() {
            "github.com" => format!("{}/{}", self.owner, self.repo),
            host => format!("{host}/{}/{}", self.owner, self.repo),
        }
    }
}

impl fmt::Debug for GitHubConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHubConfig")
            .field("repository", &self.shown())
            .field("api", &self.api)
            .field("decides", &self.decides)
            .field("human_override", &self.human_override)
            .finish_non_exhaustive()
    }
}

/// The host of a URL, without its port.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    split_port(rest.split(['/', '?', '#']).next().unwrap_or_default()).0
}

fn split_port(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "80"),
    }
}

fn is_loopback(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let (host, port) = split_port(rest.split('/').next().unwrap_or_default());
    let named = matches!(host, "localhost" | "[::1]");
    let numbered = host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
    (named || numbered) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{GitHubConfig, is_loopback};

    #[test]
    fn a_repository_is_read_from_its_name() {
        let shown = |text| GitHubConfig::parse(text).map(|config| format!("{config:?}")).unwrap();
        assert!(shown("acme/app").contains(r#""acme/app", api: "https://api.github.com""#));
        assert!(shown("GHE.corp/acme/app").contains(r#"api: "https://ghe.corp/api/v3""#));
        for bad in ["", "app", "a/b/c/d", "a/", "/b", "a b/c", "a/b?x", "a/..", "../b"] {
            assert!(GitHubConfig::parse(bad).unwrap_err().is_bad_input(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_for_the_host_that_it_is_sent_to() {
        let of = |repository: &str, api: Option<&str>| {
            let config = GitHubConfig::parse(repository).unwrap();
            let config = api.map_or_else(|| Ok(config.clone()), |api| config.clone().api(api));
            config.unwrap().token_host().to_owned()
        };
        assert_eq!(of("acme/app", None), "github.com");
        assert_eq!(of("www.github.com/acme/app", None), "github.com");
        assert_eq!(of("octo.ghe.com/acme/app", None), "octo.ghe.com");
        assert_eq!(of("ghe.corp/acme/app", None), "ghe.corp");
        assert_eq!(of("acme/app", Some("https://evil.example:443/api.github.com")), "evil.example");
        assert_eq!(
            of("acme/app", Some("https://api.github.com.evil.example")),
            "api.github.com.evil.example"
        );
        assert_eq!(of("acme/app", Some("http://127.0.0.1:9")), "127.0.0.1");
        assert_eq!(of("acme/app", Some("http://[::1]:9/x")), "[::1]");
    }

    #[test]
    fn the_token_is_sent_in_the_clear_on_this_machine_only() {
        for good in ["http://127.0.0.1:14001", "http://localhost:80/api", "http://[::1]:9"] {
            assert!(is_loopback(good), "{good}");
        }
        let config = || GitHubConfig::new("acme", "app").unwrap();
        for bad in [
            "http://api.github.com",
            "http://127.0.0.1.evil.com",
            "http://localhost.evil.com:80",
            "http://127.0.0.1@evil.com",
            "ftp://127.0.0.1",
            "127.0.0.1:80",
            "https://me@host",
        ] {
            assert!(config().api(bad).unwrap_err().is_bad_input(), "{bad}");
        }
        assert!(config().api("https://host/api/v3/").unwrap().api.ends_with("/v3"));
    }
}
