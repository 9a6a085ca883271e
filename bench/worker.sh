#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What medusa-worker costs between clients and a fast engine that computes nothing, against asking that engine directly: times to the
# first event, memory of open streams, events. Recorded in bench/results/worker.md. RECORD=0 only prints.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
make -s --no-print-directory all "$build/bench/worker_engine" "$build/bench/worker_load"
load=$build/bench/worker_load
load_before=$(cut -d' ' -f1-3 /proc/loadavg)
work=$(mktemp -d)
pids=()
cleanup() {
	kill "${pids[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
ulimit -n "$(ulimit -Hn)"

port=$((20000 + $$ % 12000))
cat >"$work/config.yaml" <<Y
startPort: $port
healthCheckTimeout: 30
models:
  bench:
    cmd: $PWD/$build/bench/worker_engine \${PORT}
    concurrencyLimit: 10000
    medusa: {swap: off}
Y
"$build/bin/medusa-worker" --config "$work/config.yaml" --listen 127.0.0.1:0 --state "$work/state" >"$work/out" 2>"$work/err" &
pids+=($!)
worker=$!
for _ in $(seq 100); do grep -q '^listening on' "$work/out" && break; sleep 0.1; done
address=$(sed -n 's/^listening on //p' "$work/out")
address=${address#http://}
engine=127.0.0.1:$port
"$load" events 1 1 0 "$address" >/dev/null # starts the engine

cpu() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hz }' "/proc/$worker/stat"; }
rss() { awk '/^VmRSS/ { print $2 / 1000 }' "/proc/$worker/status"; }
spent() { # command...: its output, then the seconds of processor time that the worker took meanwhile
	local before
	before=$(cpu)
	"$@" | tr '\n' ' '
	awk -v a="$before" -v b="$(cpu)" 'BEGIN { print b - a }'
}

"$load" ttft 200 "${SECONDS_EACH:-5}" "${ROUNDS:-4}" "$engine" "$address" >"$work/ttft"
# The same where nothing else on the machine takes the processors away, if this user may ask for that.
priority() { # arguments of chrt...
	local pid
	for pid in "$worker" $(pgrep -P "$worker"); do chrt "$@" "$pid" 2>/dev/null || return 1; done
}
: >"$work/alone"
if priority -f -a -p 10; then
	chrt -f 10 "$load" ttft 200 "${SECONDS_EACH:-5}" "${ROUNDS:-4}" "$engine" "$address" >"$work/alone"
	priority -o -a -p 0
fi
spent "$load" events 200 1000 4000 "$address" >"$work/paced"
"$load" events 200 1000 4000 "$engine" >"$work/paced_direct"
spent "$load" events 16 40000 0 "$address" >"$work/burst"
"$load" events 16 40000 0 "$engine" >"$work/burst_direct"

before=$(rss)
mkfifo "$work/hold"
exec 3<>"$work/hold"
"$load" streams 2000 "$address" <"$work/hold" >"$work/streams" 2>"$work/streams.err" &
pids+=($!)
for _ in $(seq 600); do grep -q '^open' "$work/streams" && break; sleep 0.1; done
after=$(rss)

table() {
	awk -v before="$before" -v after="$after" -v open="$(awk '{ print $2 }' "$work/streams")" '
	FILENAME ~ /alone$/ { rt_median[$1] = $3; rt_p99[$1] = $4 }
	FILENAME ~ /ttft$/ { median[$1] = $3; p99[$1] = $4; most[$1] = $5; count[$1] = $2 }
	FILENAME ~ /paced$/ { paced = $1 / $2; paced_cpu = $1 / $3 }
	FILENAME ~ /paced_direct$/ { paced_direct = $1 / $2 }
	FILENAME ~ /burst$/ { burst = $1 / $2; burst_cpu = $1 / $3 }
	FILENAME ~ /burst_direct$/ { burst_direct = $1 / $2 }
	function line(what, direct, worker, difference, bar, good) {
		printf "| %s | %s | %s | %s | %s | %s |\n", what, direct, worker, difference, bar, bar == "-" ? "-" : good ? "yes" : "**no**"
	}
	END {
		print "| | direct | worker | difference or ratio | bar | reached |\n|---|---|---|---|---|---|"
		d = median["worker"] - median["direct"]
		line(sprintf("TTFT, median of %d requests, 200 a second", count["worker"]), sprintf("%.3f ms", median["direct"]), sprintf("%.3f ms", median["worker"]), sprintf("+%.3f ms", d), "0.3 ms", d <= 0.3)
		d = p99["worker"] - p99["direct"]
		line("TTFT, 99th percentile", sprintf("%.3f ms", p99["direct"]), sprintf("%.3f ms", p99["worker"]), sprintf("+%.3f ms", d), "1 ms", d <= 1)
		if ("worker" in rt_median) {
			d = rt_median["worker"] - rt_median["direct"]
			line("TTFT, median, all at real-time priority", sprintf("%.3f ms", rt_median["direct"]), sprintf("%.3f ms", rt_median["worker"]), sprintf("+%.3f ms", d), "0.3 ms", d <= 0.3)
			d = rt_p99["worker"] - rt_p99["direct"]
			line("TTFT, 99th percentile, all at real-time priority", sprintf("%.3f ms", rt_p99["direct"]), sprintf("%.3f ms", rt_p99["worker"]), sprintf("+%.3f ms", d), "1 ms", d <= 1)
		}
		line("memory of " open " open streams (worker)", "-", sprintf("%.1f MB", after), sprintf("+%.1f MB", after - before), "200 MB", open == 2000 && after <= 200)
		line("events per second of the worker'"'"'s processor time: 200 streams, an event each 4 ms", "-", sprintf("%.0f", paced_cpu), "-", "50,000", paced_cpu >= 50000)
		line("the same by the clock (50,000 are offered)", sprintf("%.0f /s", paced_direct), sprintf("%.0f /s", paced), sprintf("%.2f", paced / paced_direct), "-", 1)
		line("events per second of the worker'"'"'s processor time: 16 streams, as fast as they go", "-", sprintf("%.0f", burst_cpu), "-", "50,000", burst_cpu >= 50000)
		line("the same by the clock", sprintf("%.0f /s", burst_direct), sprintf("%.0f /s", burst), sprintf("%.2f", burst / burst_direct), "-", 1)
	}' "$work/ttft" "$work/alone" "$work/paced" "$work/paced_direct" "$work/burst" "$work/burst_direct"
}
text="# What the worker costs

Written by \`bench/worker.sh\`: clients, \`medusa-worker\` and a fast engine that computes nothing (\`bench/worker_engine.c\`) on one machine, the engine
asked directly and through the worker in turns.

$(uname -m), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores; load average $load_before at the beginning, $(cut -d' ' -f1-3 /proc/loadavg) at the end; $(date -u +%F); commit $(git rev-parse --short HEAD)

$(table)

On a machine with other work the 99th percentile is that of waiting for a processor; the rows at real-time priority are without it.
TTFT includes the connections: the client's, and the worker's own to the engine, which it makes anew for each request."
printf '%s\n' "$text"
[ "${RECORD:-1}" = 0 ] || printf '%s\n' "$text" >bench/results/worker.md
python3 bench/worker_starts.py
