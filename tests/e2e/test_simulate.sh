#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-simulate as a user calls it: inputs that are good and bad, exit codes, the same results for the same seed.
. "$(dirname "$0")/lib.sh"

node=simulator/nodes/torpor-v100.yaml functions=simulator/functions/torpor-models.yaml
simulate() { # name of the run, trace, more options...
	local name=$1 trace=$2
	shift 2
	run "$name" medusa-simulate --node $node --functions $functions --trace "$trace" --count 64 --duration 1min "$@"
}

section "two policies side by side"
simulate plain torpor --policy torpor,fifo-lru --json "$work/plain.json" --html "$work/plain.html"
assert_exit plain 0
assert_contains "$work/plain.out" "Simulated: no GPU was used"
assert_contains "$work/plain.out" "fifo-lru"
assert_contains "$work/plain.html" "</html>"
assert_equal "words on stderr" "" "$(cat "$work/plain.err")"

section "the same again, and another seed"
timeless() { # name, options...
	simulate "$@" --no-real --json "$work/$1.json" --html "$work/$1.html"
	assert_exit "$1" 0
}
timeless first torpor --policy torpor,fifo-lru
export TZ=Asia/Tokyo LC_ALL=C.UTF-8 HOME=$work # another machine's
sleep 1.1                                      # another second
timeless again torpor --policy torpor,fifo-lru
unset TZ LC_ALL
for form in out json html; do assert_same_file "$work/first.$form" "$work/again.$form"; done
timeless other torpor --policy torpor,fifo-lru --seed 2
checks=$((checks + 1))
cmp -s "$work/first.json" "$work/other.json" && fail "other results for another seed" "the same"
simulate quiet torpor --policy native --quiet
assert_equal "output of --quiet" "" "$(cat "$work/quiet.out" "$work/quiet.err")"

section "each policy's results are the same in any company"
timeless turned torpor --policy fifo-lru,medusa,torpor
python3 - "$work/first.json" "$work/turned.json" >"$work/company.out" 2>&1 <<'END'
import json, sys
first, turned = ({p["name"]: p for p in json.load(open(path))["policies"]} for path in sys.argv[1:])
print([name for name in first if first[name] == turned[name]])
END
assert_equal "policies with the same results" "['torpor', 'fifo-lru']" "$(cat "$work/company.out")"

section "traces and their mapping"
printf 'seconds,function,context,generated\n0.5,Bert-qa-0,10,1\n1.5,,10,1\n' >"$work/trace.csv"
simulate file "$work/trace.csv" --policy native --mapping zipf:1.1
assert_exit file 0
assert_contains "$work/file.out" "2 requests"
assert_contains "$work/file.out" "Zipf law of exponent 1.1"

section "a trace may begin at any time"
mkdir "$work/zero" "$work/unix"
printf 'seconds,function,context,generated\n0,Bert-qa-0,10,1\n1.5,Bert-qa-1,10,1\n' >"$work/zero/trace.csv"
sed '2,$s/^/170000000/' "$work/zero/trace.csv" >"$work/unix/trace.csv"
for beginning in zero unix; do
	simulate $beginning "$work/$beginning/trace.csv" --policy torpor --no-real
	assert_exit $beginning 0
done
assert_contains "$work/unix.out" "2 requests in 60.0 s"
assert_same_file "$work/zero.out" "$work/unix.out"

section "laws, loads, and nodes of other sizes"
simulate law mmpp --policy native --load 0.7 --gpus 2
assert_exit law 0
assert_contains "$work/law.out" "2 GPUs"
assert_contains "$work/law.out" "seed 1; offered"
run bursty medusa-simulate --node simulator/nodes/h200-images.yaml --functions simulator/functions/lora-images.yaml \
	--trace bursty:requests=500 --load 0.6 --gpus 1 --policy medusa
assert_exit bursty 0
assert_contains "$work/bursty.out" "load 0.600 GPU seconds of computing a GPU second"

section "which policy for my requests: the manual page, step by step"
page=docs/man/medusa-simulate.1
for file in requests.csv functions.yaml; do fenced $page file $file >"$work/$file"; done
cp simulator/nodes/h200-x2.yaml "$work"
(cd "$work" && run newcomer medusa-simulate --node h200-x2.yaml --functions functions.yaml --trace requests.csv --html report.html
echo $code >newcomer.code)
assert_equal "exit code" 0 "$(cat "$work/newcomer.code")"
assert_contains "$work/newcomer.out" "3 requests"
assert_contains "$work/newcomer.out" "Most requests in time: "
assert_contains "$work/newcomer.out" " (2 of 2)."
assert_contains "$work/report.html" "By function"

section "models and adapters from a log: the manual page, step by step"
for file in log.csv convert.sh; do fenced $page file $file >"$work/$file"; done
(cd "$work" && run convert bash convert.sh
echo $code >convert.code)
assert_equal "exit code" 0 "$(cat "$work/convert.code")"
assert_contains "$work/trace.csv" "1700000001.5,sdxl-lora,anime,,25"
assert_contains "$work/convert.out" "3 requests in 2.0 s"
assert_contains "$work/convert.out" "3 requests"
assert_contains "$work/convert.out" "3 of 5 models"
printf 'seconds,model,adapter,context,generated\n0,sdxl-lora,a,,\n1,sdxl-lora,b,,\n' >"$work/pairs.csv"
run pairs medusa-simulate --node h200-images --functions lora-images --trace "$work/pairs.csv" --count 5 --json "$work/pairs.json"
assert_exit pairs 0
assert_contains "$work/pairs.err" "--count has no effect: $work/pairs.csv says which functions there are"
assert_equal "functions" "sdxl-lora/a sdxl-lora/b" "$(python3 -c 'import json, sys
print(*(f["name"] for f in json.load(open(sys.argv[1]))["policies"][0]["per_function"]))' "$work/pairs.json")"

section "shipped nodes and functions by name"
(cd "$work" && run named medusa-simulate --node h200-x2 --functions azure-32 --trace poisson --duration 1min
echo $code >named.code)
assert_equal "exit code" 0 "$(cat "$work/named.code")"
run misnamed medusa-simulate --node h200-x3 --functions azure-32 --trace poisson
assert_exit misnamed 3
assert_contains "$work/misnamed.err" "h200-x3: neither a file nor one of the nodes by name: h100-swapserve, h200-images, "
run misnamed medusa-simulate --node h200-x2 --functions azure --trace poisson
assert_exit misnamed 3
assert_contains "$work/misnamed.err" "azure: neither a file nor one of the functions by name: all-fit, azure-32, "

section "policies that are changed, and options of the scheduler"
for stay in 1 40; do
	run stay$stay medusa-simulate --node h200-images --functions lora-images --trace bursty:requests=2000 --load 0.9 --gpus 1 \
		--policy medusa --residency $stay --no-real --quiet --json "$work/stay$stay.json"
	assert_exit stay$stay 0
done
checks=$((checks + 1))
cmp -s "$work/stay1.json" "$work/stay40.json" && fail "a longer stay changes something" "the same"
simulate stay mmpp --policy fifo-lru --residency 2
assert_exit stay 2
assert_contains "$work/stay.err" "--residency has no effect on fifo-lru, whose eviction is lru"
simulate changed mmpp --policy fifo-lru,torpor --queueing fifo --eviction lru --max-wait 5s --max-queue 3 --retries 1
assert_exit changed 0
assert_contains "$work/changed.out" "torpor*: With queueing fifo."
simulate bundle mmpp --policy torpor-fifo --no-real --json "$work/bundle.json"
simulate same mmpp --policy torpor --queueing fifo --no-real --json "$work/same.json"
assert_exit same 0
python3 - "$work/bundle.json" "$work/same.json" >"$work/same.out" 2>&1 <<'END'
import json, sys
bundle, same = (json.load(open(path))["policies"][0] for path in sys.argv[1:])
print(bundle["per_function"] == same["per_function"], bundle["name"], same["name"])
END
assert_equal "a bundle, and the same by kinds" "True torpor-fifo torpor*" "$(cat "$work/same.out")"

section "faults"
printf 'seconds,fault,gpu,value\n10,gpu-lost,0,\n30,gpu-back,0,\n40,gpu-drain,1,\n' >"$work/faults.csv"
simulate faults mmpp --policy torpor --faults "$work/faults.csv" --no-real
assert_exit faults 0
simulate sound mmpp --policy torpor --no-real
checks=$((checks + 1))
cmp -s "$work/faults.out" "$work/sound.out" && fail "other results with a lost GPU" "the same"

section "what has no effect is said"
printf 'seconds,function,context,generated\n2,Bert-qa-0,10,1\n1,Bert-qa-0,10,1\n' >"$work/unsorted.csv"
simulate unsorted "$work/unsorted.csv" --policy torpor --mapping zipf
assert_exit unsorted 0
assert_contains "$work/unsorted.err" "$work/unsorted.csv: not sorted by time; its requests were sorted"
assert_contains "$work/unsorted.err" "mapping has no effect: $work/unsorted.csv says whose each request is"

section "policies"
run list medusa-simulate --list
assert_exit list 0
assert_contains "$work/list.out" "torpor-lru"
assert_contains "$work/list.out" "ATC'25"
assert_contains "$work/list.out" "--node by name: h100-swapserve, "
assert_contains "$work/list.out" "--functions by name: all-fit, azure-32, "

section "wrong usage"
wrong() { # message, options...
	local message=$1
	shift
	simulate wrong torpor "$@"
	assert_exit wrong 2
	assert_contains "$work/wrong.err" "$message"
}
wrong "there is no 'best'" --policy best
wrong "torpor is given twice" --policy torpor,torpor
wrong "--seed x: a whole number" --seed x
wrong "--seed -1: a whole number" --seed -1
wrong "--count 0" --count 0
wrong "--speed 0: more than 0" --speed 0
wrong "--duration 10: a time with a unit" --duration 10
wrong "--load 0: more than 0" --load 0
wrong "--load and --speed: one of them" --load 1 --speed 2
wrong "--gpus 0: there is nothing to simulate" --gpus 0
wrong "--queueing: there is no 'best'" --queueing best
wrong "--max-wait 5: a time with a unit" --max-wait 5
wrong "--max-queue 0: more than 0" --max-queue 0
wrong "--retries -1: a whole number" --retries -1
wrong "--preload-period has no effect on torpor" --policy torpor --preload-period 2s
wrong "--fixed-batch has no effect on torpor" --policy torpor --fixed-batch 2
wrong "--batching fixed: --fixed-batch is needed for torpor" --policy torpor --batching fixed
wrong "--policy native: options of the scheduler and faults have no effect on it" --policy native --retries 2
wrong "--mapping random: round-robin or zipf" --mapping random
wrong "files are named by" more.yaml
run half medusa-simulate --node $node
assert_exit half 2

section "bad files are named, with line and field"
bad() { # message, options...
	local message=$1
	shift
	simulate bad torpor "$@"
	assert_exit bad 3
	assert_contains "$work/bad.err" "$message"
}
sed 's/host_speed: .*/host_speed: fast/' $node >"$work/node.yaml"
bad "node 4 x V100-32GB (Torpor): 5 GPUs of 4: its GPUs differ" --gpus 5
printf 'seconds,fault,gpu,value\n10,gpu-lost,7,\n' >"$work/faults.csv"
bad "$work/faults.csv:2: gpu: '7': a GPU of the node is expected" --faults "$work/faults.csv"
bad "bursty:cow=2: cow=2: the law has no such value" --trace bursty:cow=2
line=$(grep -n host_speed "$work/node.yaml" | cut -d: -f1)
bad "$work/node.yaml:$line: host_speed: 'fast': a speed with a unit is expected" --node "$work/node.yaml"
bad "$work/none.yaml: No such file" --functions "$work/none.yaml"
printf 'seconds,function,context,generated\n1,nobody,1,1\n' >"$work/trace.csv"
bad "$work/trace.csv:2: function: there is no function 'nobody'" --trace "$work/trace.csv"

section "outputs that cannot be written, and what must not be replaced"
mkfifo "$work/pipe"
ln -s "$work/plain.json" "$work/link"
for option in json html; do
	for path in "$work/none/out" "$work" "$work/pipe" "$work/link"; do
		simulate unwritten torpor --policy native --$option "$path" --quiet
		assert_exit unwritten 4
		assert_contains "$work/unwritten.err" "$path: "
	done
done
checks=$((checks + 1))
[ -p "$work/pipe" ] && [ -L "$work/link" ] || fail "pipe and link to be what they were" "$(ls -l "$work/pipe" "$work/link")"
finish
