//! [`TakerConfig`]: how a [`Taker`] is started.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::sync::mpsc;

use super::churn::Churn;
use super::protocol::Reply;
use super::taker::Taker;

/// How to start a [`Taker`].
#[derive(Clone, Debug)]
pub struct TakerConfig {
    program: PathBuf,
    url: String,
    name: String,
    history: Option<PathBuf>,
    wrapper: Vec<OsString>,
    churn: Option<Churn>,
    arguments: Vec<OsString>,
}

impl TakerConfig {
    /// A process that runs `program`, the `sprag-taker`, on the store at `url`.
    pub fn new(program: impl AsRef<Path>, url: &str) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            url: url.to_owned(),
            name: "taker".to_owned(),
            history: None,
            wrapper: Vec::new(),
            churn: None,
            arguments: Vec::new(),
        }
    }

    /// What it is called in a history.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Records what it does.
    #[must_use]
    pub fn history(mut self, path: impl AsRef<Path>) -> Self {
        self.history = Some(path.as_ref().to_owned());
        self
    }

    /// Starts it through another program, such as `unshare --pid --fork`.
    #[must_use]
    pub fn through(mut self, program: &[&str]) -> Self {
        self.wrapper = program.iter().map(OsString::from).collect();
        self
    }

    /// Arguments that come before its own, for another program that behaves like it.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(OsString::from).collect();
        self
    }

    /// Lets it churn instead of obeying commands.
    #[must_use]
    pub fn churn(mut self, plan: Churn) -> Self {
        self.churn = Some(plan);
        self
    }

    /// Starts it and waits until it has opened the store.
    ///
    /// # Panics
    ///
    /// If it cannot be started or does not say that it is ready.
    pub async fn spawn(&self) -> Taker {
        let mut taker = self.launch();
        taker.ready().await;
        taker
    }

    /// Starts it and does not wait.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn launch(&self) -> Taker {
        let mut words = self.wrapper.clone();
        words.push(self.program.clone().into());
        words.extend(self.arguments.clone());
        words.extend([OsString::from(&self.url), "--name".into(), OsString::from(&self.name)]);
        if let Some(history) = &self.history {
            words.extend(["--history".into(), history.into()]);
        }
        if let Some(plan) = &self.churn {
            words.extend(["--loop".into(), plan.locks.to_string().into()]);
            words.extend(["--folder".into(), plan.folder.clone().into()]);
            words.extend(["--ttl-ms".into(), plan.ttl.as_millis().to_string().into()]);
            words.extend(["--seed".into(), plan.seed.to_string().into()]);
            words.extend((!plan.checked).then(|| OsString::from("--unchecked")));
        }
        let mut program = Command::new(&words[0]);
        program.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap_or_else(|e| panic!("cannot start {words:?}: {e}"));
        let input = child.stdin.take();
        let output = child.stdout.take().expect("the output is piped");
        let (send, replies) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let reply = serde_json::from_str::<Reply>(&line)
                    .unwrap_or_else(|e| panic!("{line:?} is not a reply: {e}"));
                if send.send(reply).is_err() {
                    return;
                }
            }
        });
        let name = self.name.clone();
        Taker::new(name, child, input, replies)
    }
}
