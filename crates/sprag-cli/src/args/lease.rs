//! [`Lease`]: which lease of which lock, from flags or from the environment.

use clap::Args;
use sprag::LockName;

use super::value;
use crate::code::Code;
use crate::config::environment;
use crate::failure::Failure;
use crate::lease_text::LeaseText;
use crate::run;

/// The lease that a command is about.
#[derive(Args, Debug)]
pub(crate) struct Lease {
    /// The lock [default: SPRAG_LOCK]
    #[arg(value_name = "NAME", value_parser = value::lock_name)]
    name: Option<LockName>,
    /// The lease, as `sprag acquire` printed it [default: SPRAG_LEASE]
    #[arg(long, value_name = "ID", value_parser = value::lease)]
    lease: Option<LeaseText>,
}

impl Lease {
    /// The lock that was named.
    pub(crate) const fn name(&self) -> Option<&LockName> {
        self.name.as_ref()
    }

    /// Whether a lease was named.
    pub(crate) const fn is_given(&self) -> bool {
        self.lease.is_some()
    }

    /// The lock and the lease, from the environment where they were not given.
    pub(crate) fn resolve(&self) -> Result<(LockName, LeaseText), Failure> {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let names = variable("SPRAG_LOCK").unwrap_or_default();
        let name = match &self.name {
            Some(name) => name.clone(),
            None if names.is_empty() => return Err(missing("the lock", "NAME", "SPRAG_LOCK")),
            None if names.contains(',') => {
                let message = format!("SPRAG_LOCK names several locks, {names:?}: say which");
                return Err(Failure::new(Code::Usage, message));
            }
            None => value::lock_name(&names).map_err(|what| bad("SPRAG_LOCK", &what))?,
        };
        if let Some(lease) = &self.lease {
            return Ok((name, lease.clone()));
        }
        // Several locks have a variable each.
        let own = format!("SPRAG_LEASE_{}", run::environment::suffix(&name));
        let found = ["SPRAG_LEASE", &own].into_iter().find_map(|key| Some((key, variable(key)?)));
        let Some((key, lease)) = found else {
            return Err(missing("the lease", "--lease", "SPRAG_LEASE"));
        };
        let lease = value::lease(&lease).map_err(|what| bad(key, &what))?;
        Ok((name, lease))
    }
}

fn missing(what: &str, flag: &str, variable: &str) -> Failure {
    let message = format!("{what} is not named: give {flag} or set {variable}");
    Failure::new(Code::Usage, message)
        .hint("take a lease", "eval \"$(sprag acquire NAME --ttl 30m --export)\"")
}

fn bad(variable: &str, what: &str) -> Failure {
    Failure::new(Code::Usage, format!("{variable}: {what}"))
}
