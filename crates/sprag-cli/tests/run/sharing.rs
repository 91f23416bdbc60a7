//! Several users with one store.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Ended, Place};

/// What the scripts begin with: two members of a group, whose files would be for themselves alone if the
/// store did not see to it, and somebody who is not in the group.
const USERS: &str = r#"
    set -eu
    umask 077
    unset XDG_STATE_HOME XDG_RUNTIME_DIR
    gid=$(id -g nobody) group=$(id -gn nobody) TMPDIR=${PWD%/work}/tmp
    export TMPDIR
    as_one() { exec setpriv --reuid nobody --regid "$gid" --clear-groups "$@"; }
    as_two() { exec setpriv --reuid daemon --regid daemon --groups "$gid" "$@"; }
    as_stranger() { exec setpriv --reuid bin --regid bin --clear-groups "$@"; }
    root() { "$SPRAG" -S "$store" "$@"; }
    one() (as_one "$SPRAG" -S "$store" "$@")
    two() (as_two "$SPRAG" -S "$store" "$@")
    stranger() (as_stranger "$SPRAG" -S "$store" "$@")
    said() { if "$@" 2>&1; then echo "exit 0"; else echo "exit $?"; fi; }

    # The first holds a lock and is killed; the second waits for it.
    dies() {
        ("as_$1" "$SPRAG" -S "$store" run --ttl 3m x -- sleep 100) & holder=$!
        until root show x | grep -q 'holder '; do sleep 0.01; done
        said "$2" run -n x -- true | head -n 1
        ("as_$2" "$SPRAG" -S "$store" run -w 1m x -- echo "$2 enters after $1") & waiter=$!
        until root show x | grep -q 'queue '; do sleep 0.01; done
        find "$folder" -name '*.sock' | grep -q . || echo "nobody can be woken"
        # All that is there belongs to the group, also what this one has made.
        find "$folder" -mindepth 1 ! -group "$group" -o -mindepth 1 ! -perm -060 | sed 's/^/private: /'
        kill -9 "$holder"
        wait "$waiter"
        wait "$holder" 2>/dev/null || true
    }
"#;

/// Runs a script as root with the users above. `None` if the tester said so.
fn scene(place: &Place, through: &[&str], script: &str) -> Option<Ended> {
    let skipped = std::env::var("SPRAG_SKIP").unwrap_or_default();
    let becomes = [through, &["setpriv", "--reuid", "daemon", "--clear-groups", "true"]].concat();
    if !Command::new(becomes[0]).args(&becomes[1..]).status().is_ok_and(|s| s.success()) {
        assert!(
            skipped.split([',', ' ']).any(|word| word == "users"),
            "this machine does not let us become other users (setpriv) and mount (unshare): run as root, \
             or set SPRAG_SKIP=users to go without this test"
        );
        return None;
    }
    // Where everybody may read it.
    let program = place.path("../sprag");
    std::fs::copy(env!("CARGO_BIN_EXE_sprag"), &program).unwrap();
    std::fs::create_dir(place.path("../tmp")).unwrap();
    for (path, mode) in [("..", 0o755), ("../sprag", 0o755), ("../tmp", 0o1777), (".", 0o755)] {
        std::fs::set_permissions(place.path(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    let script = format!("{USERS}\n{script}");
    let words = [through, &["bash", "-c", &script]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    place.set_up(&mut command);
    command.env("SPRAG", &program);
    let ended = place.run(command).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let group = Command::new("id").args(["-gn", "nobody"]).output().unwrap().stdout;
    let temporary = place.path("tmp").display().to_string().replace("/work/", "/");
    let out = ended.out.replace(String::from_utf8(group).unwrap().trim(), "GROUP");
    Some(Ended { out: out.replace(&temporary, "TMP"), ..ended })
}

/// A mount namespace, so that the real folders of this machine stay as they are.
const APART: &[&str] = &["unshare", "--mount", "--"];

#[test]
fn all_users_of_a_group_share_the_store_of_the_machine_and_see_each_other_die() {
    let script = r#"
        mount -t tmpfs -o mode=755 tmpfs /var/lib
        store=system: folder=/var/lib/sprag
        said one ls
        said one stores --make-system --group "$group"
        root stores --make-system --group "$group" | head -n 1
        root stores --make-system --group "$group" --json
        said stranger ls
        dies one two
        dies two one
        # Whoever comes next makes what is missing.
        rm -r "$folder"/sprag.db?*
        dies two one
        # The flag names the same store.
        ("as_one" "$SPRAG" --system run x -- "$SPRAG" -S system: run -n x -- true) 2>&1 | grep -c 'already held'
        rm "$folder/sprag.db.trail"; ln -s /etc/passwd "$folder/sprag.db.trail"
        said two ls
        rm -r "$folder"; mkdir -m 2770 "$folder"; chown "nobody:$group" "$folder"
        said two ls
    "#;
    let Some(ended) = scene(&Place::new(), APART, script) else { return };
    assert_eq!(
        ended.out,
        "\
error[SP031]: cannot open on sqlite: there is no store of the whole machine yet, which is in \
/var/lib/sprag: type sudo sprag stores --make-system
  store    system: (from --store)
exit 77
error[SP031]: cannot open on sqlite: only root makes /var/lib/sprag: type sudo sprag stores --make-system
exit 77
made /var/lib/sprag/sprag.db for the group GROUP
{\"changed\":false,\"group\":\"GROUP\",\"path\":\"/var/lib/sprag/sprag.db\",\"schema\":1}
error[SP031]: cannot open on sqlite: the user bin is not in the group GROUP, which shares \
/var/lib/sprag: type sudo usermod -aG GROUP bin and log in again
  store    system: (from --store)
exit 77
error[SP001]: lock \"x\" is held
two enters after one
error[SP001]: lock \"x\" is held
one enters after two
error[SP001]: lock \"x\" is held
one enters after two
1
error[SP031]: cannot open on sqlite: /var/lib/sprag/sprag.db.trail is a link and not a file of this \
store: remove it
  store    system: (from --store)
exit 77
error[SP031]: cannot open on sqlite: /var/lib/sprag is not a folder of root, but of the user nobody, \
or a link: remove it, and type sudo sprag stores --make-system
  store    system: (from --store)
exit 77
",
        "{}",
        ended.err
    );
}

#[test]
fn a_group_shares_a_file_and_nobody_else_may_put_it_there() {
    let script = r#"
        folder=$TMPDIR/shared store="sqlite:$folder/locks.db?group=$group"
        dies one two
        # Naming the file alone does not take it away from the others.
        store="sqlite:$folder/locks.db"
        dies two one
        store="sqlite:$TMPDIR/locks.db?group=$group"
        said one ls
        (as_stranger mkdir "$TMPDIR/strange"); chmod 2770 "$TMPDIR/strange"
        chown "bin:$group" "$TMPDIR/strange"; chmod 2770 "$TMPDIR/strange"
        store="sqlite:$TMPDIR/strange/locks.db?group=$group"
        said one ls
        ln -s "$folder/locks.db" "$folder/link.db"
        store="sqlite:$folder/link.db?group=$group"
        said one ls
        store="sqlite:$folder/locks.db?group=no-such-group"
        said one ls
    "#;
    let Some(ended) = scene(&Place::new(), &["env"], script) else { return };
    assert_eq!(
        ended.out,
        "\
error[SP001]: lock \"x\" is held
two enters after one
error[SP001]: lock \"x\" is held
one enters after two
error[SP031]: cannot open on sqlite: TMP is not for the group GROUP alone: name a folder that is not \
there yet, or give one to the group: sudo chgrp GROUP DIR && sudo chmod 2770 DIR
  store    sqlite:TMP/locks.db... (from --store)
exit 77
error[SP031]: cannot open on sqlite: TMP/strange belongs to the user bin, who is not in the group \
GROUP: let root or a member of the group make it
  store    sqlite:TMP/strange/locks.db... (from --store)
exit 77
error[SP031]: cannot open on sqlite: TMP/shared/link.db is a link and not a file of this store: \
remove it
  store    sqlite:TMP/shared/link.db... (from --store)
exit 77
error[SP031]: cannot open on sqlite: there is no group \"no-such-group\" here: type sudo groupadd \
--system no-such-group
  store    sqlite:TMP/shared/locks.db... (from --store)
exit 77
",
        "{}",
        ended.err
    );
}
