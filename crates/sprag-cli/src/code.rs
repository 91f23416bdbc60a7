//! [`Code`]: what went wrong, by a stable number that `sprag explain` knows.

use crate::exit::Exit;

/// One row of the catalogue.
struct Row {
    id: &'static str,
    name: &'static str,
    exit: Exit,
    /// Cause, risk and fix, for `sprag explain`.
    text: &'static str,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident, $id:literal, $name:literal, $exit:ident, $text:literal;)*) => {
        /// What went wrong. The numbers and names are stable: scripts match on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($(#[$doc])* $code,)* }

        impl Code {
            /// Every code, by number.
            pub(crate) const ALL: &[Self] = &[$(Self::$code,)*];

            const fn row(self) -> Row {
                match self {
                    $(Self::$code => Row { id: $id, name: $name, exit: Exit::$exit, text: $text },)*
                }
            }
        }
    };
}

impl Code {
    /// The number: `SP001`.
    pub(crate) const fn id(self) -> &'static str {
        self.row().id
    }

    /// The word in JSON: `held`.
    pub(crate) const fn name(self) -> &'static str {
        self.row().name
    }

    /// The status that the process ends with.
    pub(crate) const fn exit(self) -> Exit {
        self.row().exit
    }

    /// Cause, risk and fix.
    pub(crate) const fn text(self) -> &'static str {
        self.row().text
    }
}

codes! {
    /// Somebody else holds the lock.
    Held, "SP001", "held", HELD, "\
Somebody else holds the lock, and you did not want to wait (any longer).
Nothing was changed: the command was not started and the lock is as it was.
The message says who holds it, why, since when, and who waits. Wait for it with
`--wait`, see what holds it up with `sprag why NAME`, or, if the holder is
wrong, break its lease with `sprag break NAME --token N -m WHY`.";
    /// The holder gives no sign of life.
    Stale, "SP002", "stale", HELD, "\
The holder has given no sign of life for longer than its lease allows, and the
store does not end leases by itself. It may be dead, or cut off and working.
`sprag run --takeover` takes the lock over once it is overdue; the old holder's
token is smaller than yours, so a resource that compares tokens is safe.";
    /// The queue is full.
    QueueFull, "SP003", "queue_full", HELD, "\
So many wait for this lock already that the store takes no more waiters.
Nothing was changed. Try again later, or see with `sprag show NAME` who waits.";
    /// The lock was lost.
    Lost, "SP010", "lost", LOST, "\
The lock was held and is not any more: its lease was not renewed in time, or
somebody broke it or took it over. The command was stopped before anybody else
could get the lock, unless `--on-lost continue` said otherwise. What it did
before that was protected. Look at `sprag log` for what happened, give it a
longer `--ttl` if the store is slow, and pass SPRAG_TOKEN to what you write to.";
    /// The lease is not the holder's.
    NotHolder, "SP011", "not_holder", DENIED, "\
The lease that you named does not hold the lock (any more). Nothing was
changed. If it expired while you worked, what you did since then was not
protected: check it, and next time renew earlier or take a longer `--ttl`.";
    /// Nobody holds the lock with that token.
    NotBroken, "SP012", "not_broken", DENIED, "\
Nobody holds the lock with the token that you named, so nothing was broken. The
token is compared so that an old decision cannot hit a new holder. Look again
with `sprag show NAME`, and decide again.";
    /// The lease is alive.
    Alive, "SP013", "alive", DENIED, "\
The holder's lease is alive: it is still being renewed, or has time left.
Breaking it takes the lock from somebody who works under it. If that is what
you want, say `--force`; the holder is told, and the log keeps your reason.";
    /// Nobody confirmed.
    NotConfirmed, "SP014", "not_confirmed", USAGE, "\
Breaking a lock has to be confirmed: type its name when asked on a terminal, or
give `--yes` where nobody can answer. Nothing was changed.";
    /// The lease is from another store.
    OtherStore, "SP015", "other_store", CONFIG, "\
The lease was taken on another store than the one that was asked, which does not
know it. Nothing was changed: the lock is held as before. The message names the
store that the lease is from, if a configuration file or a default does, and the
command to type. `sprag acquire --export` sets SPRAG_STORE, too.";
    /// Waiting would never end.
    Deadlock, "SP020", "deadlock", DEADLOCK, "\
You hold something that the holder waits for, directly or through others, so
waiting would never end. You were taken out of the queue; nobody else was
touched. Take all locks at once, `sprag run a,b -- ...`, or always in one order.";
    /// This process tree holds the lock.
    Nested, "SP021", "nested", USAGE, "\
The lock is held by this process tree already: you run inside a `sprag run` of
the same name, and would wait for yourself. Leave the inner one away, or say
`--reentrant` to run the command under the lock that is held. That goes as far
as the outer run has it: under a shared lock nobody is alone.";
    /// The store does not answer.
    Unavailable, "SP030", "unavailable", UNAVAILABLE, "\
The store cannot be reached or did not answer in time. What was asked for may or
may not have happened; a lease that nobody renews ends by itself.
`sprag doctor` says what it sees of the store.";
    /// The place may not be used.
    Refused, "SP031", "refused", DENIED, "\
The place where the locks live may not be used: permissions, a file system that
cannot lock, or a setting. The message names it. Nothing was changed.";
    /// No more requests for now.
    RateLimited, "SP032", "rate_limited", UNAVAILABLE, "\
The store allows no more requests for now: an hourly limit is used up, or it
asked to slow down. The message says until when. Nothing was sent. Locks that
are held are renewed before anything else is asked. `sprag doctor` says what is
left, and what a number of locks would cost.";
    /// No room.
    StoreFull, "SP033", "store_full", UNAVAILABLE, "\
The store has no room for another record: a full disk or a limit. Locks that are
held stay held. Make room and try again.";
    /// Not ours, or newer.
    Corrupt, "SP034", "corrupt", CONFIG, "\
What is stored there cannot be understood: it is something else, it is damaged,
or a newer sprag wrote it. It was left as it is. Use the newer sprag, or another
place.";
    /// No such store.
    UnknownStore, "SP040", "unknown_store", CONFIG, "\
The store's URL begins with a scheme that this build does not know, or its name
is in no configuration file. `sprag stores` lists the schemes, `sprag config`
the names.";
    /// The URL cannot be used.
    BadUrl, "SP041", "bad_url", CONFIG, "\
The store's URL cannot be used; the message says why. `sprag stores` shows the
forms. User names, passwords and parameters are never repeated in messages.";
    /// A configuration file or variable cannot be used.
    Config, "SP042", "config", CONFIG, "\
A configuration file or an environment variable cannot be used; the message
names the place. `sprag config --show-origin` shows where each setting comes
from.";
    /// The store cannot do that.
    Unsupported, "SP043", "unsupported", CONFIG, "\
This store cannot do what was asked for, and sprag gives no weaker lock instead.
`sprag stores` shows what each store can do.";
    /// A project's file asks for more than it may.
    Untrusted, "SP044", "untrusted", CONFIG, "\
A sprag.toml that was found in a project, which may come from anybody, says
something that could send a secret elsewhere, read a file or run a program, or
it belongs to another user. Nothing was contacted. Read the file; if you trust
it, say `sprag config trust`, which holds for this content of it, or name it
with `--config`. `sprag explain config` says what needs that.";
    /// Bad arguments.
    Usage, "SP050", "usage", USAGE, "\
The arguments cannot be understood, or a value is out of range. Nothing was
done. `sprag help COMMAND` shows what can be written.";
    /// No such lock or topic.
    Unknown, "SP051", "unknown", USAGE, "\
There is no such lock, code or topic; the message names the nearest one.";
    /// The command is not there.
    NotFound, "SP060", "command_not_found", NOT_FOUND, "\
The command that should run under the lock does not exist. The lock was released
before this was said.";
    /// The command cannot be executed.
    NotExecutable, "SP061", "command_not_executable", NOT_EXECUTABLE, "\
The command that should run under the lock is there but cannot be executed:
permissions, a directory, or a broken format. The lock was released before this
was said.";
    /// Not in a repository that work can be done in.
    Repository, "SP090", "repository", CONFIG, "\
Work items live on the main branch of a git remote, and this is no clone of one
that can be used: there is no repository here, it has no remote, the remote has
no commit, or git is missing or too old. Nothing was changed.";
    /// There is no such item, or none that can be claimed.
    NoItem, "SP091", "no_item", HELD, "\
There is no item of that name, or none that could be claimed now: all are done,
pending or claimed by others. `sprag work board` shows them all, and who has
what; `sprag work recover` frees those of dead workers.";
    /// The item is not claimed here.
    NotClaimed, "SP092", "not_claimed", DENIED, "\
What you want to finish or release was not claimed from this clone, or a command
works on it right now. Claims are known to the clone in which they were made.
Nothing was changed.";
    /// The work does not fit.
    Conflict, "SP093", "conflict", NO, "\
What was done conflicts with what others brought to main meanwhile, or somebody
moved the item by hand. Nothing came to main, and nothing is lost: the message
says where the work is. Bring the two together there and try again.";
    /// The machine refuses.
    System, "SP094", "system", UNAVAILABLE, "\
The operating system refuses what sprag needs: a full disk, permissions, or no
process to be had. What was done so far is kept, and the message says where.";
    /// A bug.
    Bug, "SP070", "bug", BUG, "\
An error inside sprag. Please report it with the message and what you did.";
    /// A claim does not hold.
    Claim, "SP080", "claim_failed", NO, "\
`sprag demo` or `sprag doctor` found that something sprag promises does not hold
here. The lines above it say what was seen. Do not rely on this store.";
}

#[cfg(test)]
mod tests {
    use super::Code;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_names_are_unique_and_every_text_fits_a_terminal() {
        let ids: BTreeSet<_> = Code::ALL.iter().map(|code| code.id()).collect();
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!((ids.len(), names.len()), (Code::ALL.len(), Code::ALL.len()));
        for code in Code::ALL {
            assert!(code.text().lines().all(|line| line.len() <= 80), "{}", code.id());
        }
    }
}
