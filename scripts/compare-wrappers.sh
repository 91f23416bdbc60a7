#!/usr/bin/env bash
# Tries the same things with every command that holds a lock while another command runs, and writes
# what it saw to docs/compare.md. What is not installed is left out.
#
#   cargo build --release && scripts/compare-wrappers.sh
#
# etcdctl is tried on an etcd that is started here, on ports of its own.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
page=${1:-$root/docs/compare.md}
PATH=${CARGO_TARGET_DIR:-$root/target}/release:$PATH
dir=$(mktemp -d)
export SPRAG_STORE=sqlite:$dir/sprag.db ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://127.0.0.1:32379
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null; fi; rm -rf "$dir"' EXIT

tools=(sprag flock)
if command -v etcd >/dev/null && command -v etcdctl >/dev/null; then
    etcd --data-dir "$dir/etcd" --listen-client-urls "$ETCDCTL_ENDPOINTS" \
        --advertise-client-urls "$ETCDCTL_ENDPOINTS" --listen-peer-urls http://127.0.0.1:32380 \
        >"$dir/etcd.log" 2>&1 &
    server=$!
    until etcdctl get ready >/dev/null 2>&1; do
        kill -0 "$server" || { cat "$dir/etcd.log"; exit 1; }
        sleep 0.1
    done
    tools+=(etcdctl)
fi

# with TOOL LOCK COMMAND...: runs the command under the lock.
with() {
    local tool=$1 lock=$2
    shift 2
    case $tool in
        sprag) exec sprag run --ttl 3s --kill-after 1s "$lock" -- "$@" ;;
        flock) exec flock "$dir/$lock.lock" "$@" ;;
        etcdctl) exec etcdctl lock --ttl 3 "$lock" -- "$@" ;;
    esac
}

# until_true SECONDS COMMAND...: waits for it to be true.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        if [ $SECONDS -ge $end ]; then return 1; fi
        sleep 0.05
    done
}

alive() { case $(ps -o stat= -p "$1" 2>/dev/null) in '' | Z*) false ;; esac; }
dead() { ! alive "$1"; }

exit_code() {
    (with "$1" code sh -c 'exit 42') >/dev/null 2>&1
    echo $?
}

not_found() {
    (with "$1" none no-such-command) >/dev/null 2>&1
    echo $?
}

stdin_passes() {
    local seen
    seen=$(echo hello | (with "$1" stdin cat) 2>/dev/null | grep -c hello)
    if [ "$seen" = 1 ]; then echo yes; else echo no; fi
}

flags_of_the_child() {
    local said
    case $1 in
        sprag) said=$(sprag run flags sh -c 'echo ran' 2>/dev/null) ;;
        flock) said=$(flock "$dir/flags.lock" sh -c 'echo ran' 2>/dev/null) ;;
        etcdctl) said=$(etcdctl lock flags sh -c 'echo ran' 2>/dev/null) ;;
    esac
    if [ "$said" = ran ]; then echo "left alone"; else echo "taken for its own"; fi
}

says_who() {
    (with "$1" who sleep 4) >/dev/null 2>&1 &
    local holder=$! said
    sleep 0.5
    said=$( (timeout 2 bash -c "$(declare -f with); dir=$dir; with $1 who true") 2>&1)
    wait $holder
    case $said in *"held by"*) echo yes ;; *) echo no ;; esac
}

term_reaches() {
    local got=$dir/$1.term wrapper
    (with "$1" term bash -c "trap 'echo yes >$got; exit' TERM; echo \$\$ >$got.up; while :; do sleep 0.1; done") \
        >/dev/null 2>&1 &
    wrapper=$!
    until_true 5 test -s "$got.up"
    kill -TERM $wrapper
    if until_true 2 test -s "$got"; then echo yes; else echo "no, it runs on"; fi
    kill -KILL $wrapper "$(cat "$got.up")" 2>/dev/null
    wait $wrapper 2>/dev/null
}

# The wrapper is killed; a second one waits. Is the first command dead when the second enters?
killed_wrapper() {
    local pid=$dir/$1.pid entered=$dir/$1.entered wrapper second answer
    (with "$1" kill sh -c "echo \$\$ >$pid; exec sleep 8") >/dev/null 2>&1 &
    wrapper=$!
    until_true 5 test -s "$pid"
    (with "$1" kill sh -c "ps -o stat= -p $(cat "$pid") >$entered || echo gone >$entered") \
        >/dev/null 2>&1 &
    second=$!
    sleep 0.5
    kill -KILL $wrapper
    if ! until_true 10 test -s "$entered"; then
        answer="nobody enters before it ends"
    else
        case $(cat "$entered") in
            gone | Z*) answer="the command is dead first" ;;
            *) answer="BOTH RUN" ;;
        esac
    fi
    kill -KILL "$(cat "$pid")" $second 2>/dev/null
    wait $wrapper $second 2>/dev/null
    echo "$answer"
}

# The lock is taken away while the command runs.
lost() {
    local pid=$dir/$1.lost wrapper code
    if [ "$1" = flock ]; then
        echo "cannot happen"
        return
    fi
    (with "$1" lost sh -c "echo \$\$ >$pid; exec sleep 8") >/dev/null 2>&1 &
    wrapper=$!
    until_true 5 test -s "$pid"
    case $1 in
        sprag)
            local token
            token=$(sprag show lost --json | sed 's/.*"token":\([0-9]*\).*/\1/')
            sprag break lost --token "$token" -m compare --force --yes >/dev/null
            ;;
        etcdctl)
            local lease
            lease=$(etcdctl lease list | tail -1)
            etcdctl lease revoke "$lease" >/dev/null
            ;;
    esac
    if until_true 5 dead "$(cat "$pid")"; then
        wait $wrapper
        echo "the command is stopped, exit $?"
    else
        wait $wrapper
        code=$?
        echo "the command RUNS ON, exit $code"
    fi
}

token_in_child() {
    local seen
    seen=$( (with "$1" token env) 2>/dev/null | grep -cE '^(SPRAG_TOKEN|ETCD_LOCK_REV)=[0-9]+$')
    if [ "$seen" = 1 ]; then echo yes; else echo no; fi
}

held_code() {
    (with "$1" held sleep 3) >/dev/null 2>&1 &
    local holder=$! code
    sleep 0.5
    case $1 in
        sprag) sprag run -n held -- true >/dev/null 2>&1; code=$? ;;
        flock) flock -n "$dir/held.lock" true >/dev/null 2>&1; code=$? ;;
        etcdctl) code="cannot be asked for" ;;
    esac
    wait $holder
    echo "$code"
}

rows=(
    "the command exits with 42: exit code|exit_code"
    "no such command: exit code|not_found"
    "held, and not to wait: exit code|held_code"
    "says who holds it while it waits|says_who"
    "the command's own flags|flags_of_the_child"
    "stdin reaches the command|stdin_passes"
    "TERM reaches the command|term_reaches"
    "kill -9 of the wrapper: when the next one enters|killed_wrapper"
    "the lock is lost or broken meanwhile|lost"
    "a fencing token for the command|token_in_child"
)

version() {
    case $1 in
        sprag) sprag --version | cut -d' ' -f2 ;;
        flock) flock --version | grep -oE '[0-9.]+$' ;;
        etcdctl) etcdctl version | sed -n 's/etcdctl version: //p' ;;
    esac
}

{
    echo "# Compared"
    echo
    echo "<!-- Written by scripts/compare-wrappers.sh; to change it, run it again. -->"
    echo
    echo "What commands that hold a lock while another command runs do when they are tried."
    echo "Repeat it with:"
    echo
    echo '```sh'
    echo "cargo build --release && scripts/compare-wrappers.sh"
    echo '```'
    echo
    printf '| |'
    for tool in "${tools[@]}"; do printf ' %s %s |' "$tool" "$(version "$tool")"; done
    printf '\n|---|'
    for tool in "${tools[@]}"; do printf -- '---|'; done
    echo
    for row in "${rows[@]}"; do
        printf '| %s |' "${row%|*}"
        for tool in "${tools[@]}"; do printf ' %s |' "$("${row#*|}" "$tool")"; done
        echo
    done
} >"$dir/page"
mv "$dir/page" "$page"
cat "$page"
