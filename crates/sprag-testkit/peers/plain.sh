# SET NX PX and a script that compares and deletes, as a process that tests drive: try, hold or
# rounds. What any program can do with redis-cli.
mode=$1 host=$2 port=$3 key=$4 folder=$5
token=$$-$(date +%s%N)

ask() { redis-cli -h "$host" -p "$port" "$@"; }
lock() { [ "$(ask SET "$key" "$token" NX PX 10000)" = OK ]; }
unlock() {
  ask EVAL 'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end' \
    1 "$key" "$token" >/dev/null
}

# Adds one to the counter, and leaves a mark if somebody else is doing the same.
section() {
  mkdir "$folder/inside" 2>/dev/null || : >"$folder/overlap"
  count=$(cat "$folder/counter")
  echo $((count + 1)) >"$folder/counter"
  rmdir "$folder/inside" 2>/dev/null || : >"$folder/overlap"
}

case $mode in
  try) if lock; then echo granted; unlock; else echo held; fi ;;
  hold)
    until lock; do :; done
    echo granted
    cat >/dev/null
    unlock
    echo released
    ;;
  *)
    rounds=0
    until [ -e "$folder/enough" ]; do
      until lock; do :; done
      section
      unlock
      rounds=$((rounds + 1))
      [ "$rounds" -gt 1 ] || echo ready
      # Others get their turn.
      sleep 0.025
    done
    echo "done $rounds"
    ;;
esac
