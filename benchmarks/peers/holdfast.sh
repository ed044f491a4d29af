#!/usr/bin/env bash
# Holdfast as a peer in comparisons with other brokers: holdfast.sh start|stop|kill9|restart9|pid|wipe DATADIR PORT
#
#   start     returns when a client can connect, and prints the process ids
#   stop      the graceful end; returns when all its processes are gone
#   kill9     SIGKILL to every process that `holdfast status` lists, Ray's and the launcher included
#   restart9  kill9, then start
#   pid       process ids with commas between, for a meter of CPU; HOLDFAST_PIDS=data leaves out Ray's own and the launcher
#   wipe      removes the data directory and the log of a broker that does not run
#
# HOLDFAST_SET: settings for `holdfast up`, words with blanks between ("durable_storage.messages.n_shards=2 ray.dashboard=false").
# The log is DATADIR.log, beside the directory, so that `wipe` decides when it goes. Listens on the loopback interface only.

set -u -o pipefail

usage() { echo "usage: $0 start|stop|kill9|restart9|pid|wipe DATADIR PORT" >&2; exit 2; }
[ $# -eq 3 ] && [ -n "$1" ] && [ -n "$2" ] && [ -n "$3" ] || usage
word=$1 data=$2 port=$3
bin=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.venv/bin" && pwd) || { echo "no .venv beside this script; \`make env\` makes it" >&2; exit 1; }

# Prints the pids of the broker in $data, one a line; with an argument only those of the roles that carry messages.
# The list is fresh at every call, so a pid that was given away since can not be among them.
pids() {
    "$bin/holdfast" status --json --data-dir "$data" | "$bin/python" -c '
import json, sys
wanted = {"gateway", "session", "shard", "controller"} if sys.argv[1:] == ["data"] else None
for process in json.load(sys.stdin)["processes"]:
    if wanted is None or process["role"] in wanted:
        print(process["pid"])' "$@"
}

alive() {
    local state
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) && [ -n "$state" ] && [ "$state" != Z ]
}

start() {
    local -a settings=()
    local setting
    for setting in ${HOLDFAST_SET:-}; do settings+=(--set "$setting"); done
    mkdir -p "$data"
    # Many clients at a time need many descriptors in the broker; it takes what the shell allows.
    ulimit -n "$(ulimit -Hn)" 2>/dev/null
    "$bin/holdfast" up --detach --data-dir "$data" --port "$port" ${settings[@]+"${settings[@]}"} </dev/null >>"$data.log" 2>&1 ||
        { echo "holdfast did not start; the end of $data.log:" >&2; tail -n 5 "$data.log" >&2; return 1; }
    print_pids
}

print_pids() {
    if [ "${HOLDFAST_PIDS:-all}" = data ]; then pids data; else pids; fi | paste -sd,
}

kill9() {
    local list pid round
    list=$(pids) || return 1
    [ -n "$list" ] || return 0
    # All at once: one that is missed for a moment is not to be started again by the others.
    kill -KILL $list 2>/dev/null
    for round in $(seq 150); do
        local left=
        for pid in $list; do alive "$pid" && left=$pid; done
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    echo "process $left did not end" >&2
    return 1
}

stop() { "$bin/holdfast" down --data-dir "$data" </dev/null >>"$data.log" 2>&1; }

wipe() {
    local list
    if [ -d "$data" ]; then
        list=$(pids) || return 1
        [ -z "$list" ] || { echo "a broker runs in $data; stop it first" >&2; return 1; }
    fi
    rm -rf -- "$data" "$data.log"
}

case $word in
    start) start ;;
    stop) stop ;;
    kill9) kill9 ;;
    restart9) kill9 && start ;;
    pid) print_pids ;;
    wipe) wipe ;;
    *) usage ;;
esac
