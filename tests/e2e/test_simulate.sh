#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-simulate as a user calls it: inputs that are good and bad, exit codes, the same results for the same seed.
. "$(dirname "$0")/lib.sh"

node=simulator/nodes/torpor-v100.yaml functions=simulator/functions/torpor-models.yaml
simulate() { # name of the run, trace, more options, which replace those that are given here...
	local name=$1 option given
	given=(--node $node --functions $functions --trace "$2" --count 64 --duration 1min)
	shift 2
	for ((option = 0; option < ${#given[@]}; option += 2)); do
		[[ " $* " == *" ${given[option]} "* ]] || set -- "${given[@]:option:2}" "$@"
	done
	run "$name" medusa-simulate "$@"
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

section "a time far from the others is named, and takes no time to pass"
printf 'seconds,function\n1700000000,a-0\n0,a-0\n1700000001,a-0\n' >"$work/far.csv"
printf 'source: made up\nmodels: [{name: a, weights: 10GB, in_host: true, execution: 100ms, slo: 500ms}]\n' >"$work/far.yaml"
run far timeout 60 medusa-simulate --node h200 --functions "$work/far.yaml" --trace "$work/far.csv"
assert_exit far 0
assert_contains "$work/far.err" "$work/far.csv:3: 19676 days without a request lie between this one and that of line 2; is its time right?"

section "policies"
run list medusa-simulate --list
assert_exit list 0
assert_contains "$work/list.out" "torpor-lru"
assert_contains "$work/list.out" "ATC'25"
assert_contains "$work/list.out" "--node by name: h100-swapserve, "
assert_contains "$work/list.out" "--functions by name: all-fit, azure-32, "
assert_contains "$work/list.out" "--queueing: medusa, fifo, "

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
wrong "--gpus 0: at least one GPU is needed" --gpus 0
wrong "--queueing: there is no 'best'; there are medusa, fifo, " --queueing best
wrong "--max-wait 5: a time with a unit" --max-wait 5
wrong "--max-queue 0: more than 0" --max-queue 0
wrong "--retries -1: a whole number" --retries -1
wrong "--preload-period has no effect on torpor" --policy torpor --preload-period 2s
wrong "--fixed-batch has no effect on torpor" --policy torpor --fixed-batch 2
wrong "--batching fixed: --fixed-batch is needed for torpor" --policy torpor --batching fixed
wrong "--policy native: options of the scheduler and faults have no effect on it" --policy native --retries 2
wrong "--mapping random: round-robin or zipf" --mapping random
wrong "--seed is given twice" --seed 1 --seed 2
wrong "--quiet is given twice" --quiet --quiet
wrong "--speed 1e9: a number without an exponent is expected" --speed 1e9
wrong "--goal has no effect without --gpus FROM-TO" --goal 90%
wrong "--gpus 3-2: the first number is the greater one" --gpus 3-2
wrong "--gpus x: a whole number" --gpus 1-x
wrong "--gpus 0-2: at least one GPU is needed" --gpus 0-2
wrong "--gpus 1-2 with --load: the requests would grow" --gpus 1-2 --load 0.5
wrong "--gpus 1-2 with the law cyclic: the requests would grow" --gpus 1-2 --trace cyclic:set=2
wrong "--gpus 1-2 with --html: reports are of one number of GPUs" --gpus 1-2 --html "$work/sizes.html"
wrong "--goal 101%: a part of the requests" --gpus 1-2 --goal 101%
wrong "--goal 101%: a part of the requests" --goal 101%
wrong "--policy '': a name is empty; --list prints" --policy ''
wrong "--policy 'torpor,': a name is empty" --policy torpor,
wrong "--json '': a file is expected" --json ''
for option in node functions trace; do
	declare -A input=([node]=h200 [functions]=all-fit [trace]=poisson [$option]=)
	run wrong medusa-simulate --node "${input[node]}" --functions "${input[functions]}" --trace "${input[trace]}"
	assert_exit wrong 2
	assert_contains "$work/wrong.err" "--$option '': a file or a name is expected"
done
wrong "files are named by" more.yaml
printf 'source: s\nmodels:\n- {name: many, weights: 1GB, execution: 10ms, rate: 5/min, percentile: 100%%, in_host: true, min_replicas: 9}\n' >"$work/replicas.yaml"
run replicas medusa-simulate --node h200-x2 --functions "$work/replicas.yaml" --trace poisson --duration 10s --policy medusa
assert_exit replicas 0
assert_contains "$work/replicas.err" "function many-0: min_replicas is 9, and the node has 2 GPUs: all of them hold it"
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

section "how many GPUs: the manual page, step by step"
fenced $page file sizes.sh >"$work/sizes.sh"
(cd "$work" && run sizes bash sizes.sh
echo $code >sizes.code)
assert_equal "exit code" 0 "$(cat "$work/sizes.code")"
assert_contains "$work/sizes.out" "by the number of GPUs:"
assert_contains "$work/sizes.out" "Fewest GPUs with 70 % of the requests in time: torpor "
answer=$(sed -n 's/^Fewest.*medusa \([0-9]*\)\..*/\1/p' "$work/sizes.out")
for gpus in "$answer" $((answer - 1)); do
	run size$gpus medusa-simulate --node h200-images --functions lora-images --trace bursty:requests=3000 --speed 2 \
		--policy medusa --gpus "$gpus" --json "$work/size.json" --quiet
	assert_equal "whether $gpus GPUs are enough" $([ "$gpus" = "$answer" ] && echo True || echo False) "$(python3 -c 'import json, sys
requests = json.load(open(sys.argv[1]))["policies"][0]["requests"]
print(requests["met"] >= 0.7 * requests["all"])' "$work/size.json")"
done
simulate nosize torpor --policy native --gpus 1-2 --goal 100% --count 300 --quiet
assert_exit nosize 1
assert_equal "the answer alone" "Fewest GPUs with 100 % of the requests in time: native none of 1 to 2." "$(cat "$work/nosize.out")"
simulate toomany torpor --gpus 1-9
assert_exit toomany 3
assert_contains "$work/toomany.err" "9 GPUs of 4: its GPUs differ"
printf 'source: made up\nmodels: [{name: a, weights: 1GB, execution: 5ms, rate: 6/min}]\n' >"$work/aimless.yaml"
simulate aimless poisson --node h200-x2 --functions "$work/aimless.yaml" --gpus 1-2
assert_exit aimless 3
assert_contains "$work/aimless.err" "--gpus 1-2: no function has an objective (slo), so no request can be in time"

section "inputs are never written over"
kept() { # message, options...
	local message=$1
	shift
	before=$(cat "$work/kept.csv" "$work/kept.yaml" | cksum)
	run kept medusa-simulate --node "$work/kept.yaml" --functions "$work/functions.yaml" --trace "$work/kept.csv" --policy torpor "$@"
	assert_exit kept 2
	assert_contains "$work/kept.err" "$message"
	assert_equal "sum of the inputs" "$before" "$(cat "$work/kept.csv" "$work/kept.yaml" | cksum)"
}
cp "$work/requests.csv" "$work/kept.csv"
cp "$work/h200-x2.yaml" "$work/kept.yaml"
printf 'seconds,fault,gpu,value\n10,gpu-drain,0,\n' >"$work/kept-faults.csv"
ln "$work/kept.csv" "$work/kept-too.csv"
kept "--html $work/kept.csv: that is the file of --trace" --html "$work/kept.csv"
kept "--html $work/kept-too.csv: that is the file of --trace" --html "$work/kept-too.csv"
kept "that is the file of --node" --json "$work/../${work##*/}/kept.yaml"
kept "that is the file of --functions" --json "$work/functions.yaml"
kept "that is the file of --faults" --json "$work/kept-faults.csv" --faults "$work/kept-faults.csv"
kept "--json and --html: $work/both for both" --json "$work/both" --html "$work/both"
kept "--json and --html: $work/both for both" --json "$work/both" --html "$work/../${work##*/}/both"
kept "--json and --html: - for both" --json - --html -

cp tests/fuzz/corpus/artifact/ok-all "$work/model.medusa"
printf 'source: made up\nmodels: [{name: a, artifact: model.medusa, weights: 1GB, execution: 5ms}]\n' >"$work/of-artifact.yaml"
run artifact medusa-simulate --node h200-x2 --functions "$work/of-artifact.yaml" --trace "$work/zero/trace.csv" --html "$work/model.medusa"
assert_exit artifact 3 # its functions have other names
printf 'seconds\n1\n' >"$work/one.csv"
run artifact medusa-simulate --node h200-x2 --functions "$work/of-artifact.yaml" --trace "$work/one.csv" --html "$work/model.medusa"
assert_exit artifact 2
assert_contains "$work/artifact.err" "--html $work/model.medusa: that is an artifact of $work/of-artifact.yaml"
assert_same_file tests/fuzz/corpus/artifact/ok-all "$work/model.medusa"

section "a hyphen is stdout"
simulate hyphen torpor --policy torpor --no-real --json -
assert_exit hyphen 0
simulate named torpor --policy torpor --no-real --quiet --json "$work/hyphen.json"
assert_same_file "$work/hyphen.out" "$work/hyphen.json"
simulate page torpor --policy torpor --no-real --html - --json "$work/hyphen.json"
assert_equal "the first line of the page" "<!DOCTYPE html>" "$(head -n 1 "$work/page.out")"
[ ! -e - ] || fail "no file that is called -" "one"

section "policies that are the same here"
cat >"$work/plain.yaml" <<'END'
source: made up
models: [{name: a, weights: 1GB, execution: 5ms, slo: 1s, rate: 6/min, in_host: true}]
END
run alike medusa-simulate --node h200-x2 --functions "$work/plain.yaml" --trace poisson --policy torpor-capture,torpor-block,xlora-nbs
assert_exit alike 0
assert_contains "$work/alike.err" "torpor-capture: no function has a capture_time"
assert_contains "$work/alike.err" "torpor-block: the node has no allocation_time"
assert_contains "$work/alike.err" "xlora-nbs: no function has a backbone"

section "the help lists the exit codes of this command"
run help medusa-simulate --help
assert_contains "$work/help.out" "  1  a policy left requests"
checks=$((checks + 1))
grep -q "materialized\|no graphs" "$work/help.out" && fail "no exit codes of other commands" "$(grep "materialized\|no graphs" "$work/help.out")"

section "a function that is too large is named by file and line"
sed 's/execution: 5ms/execution: 5ms, kv: 900GB/' "$work/plain.yaml" >"$work/large.yaml"
run large medusa-simulate --node h200-x2 --functions "$work/large.yaml" --trace poisson
assert_exit large 3
assert_contains "$work/large.err" "$work/large.yaml:2: function a-0: "
assert_contains "$work/large.err" "KV cache of a request 900 GB"

section "a limit on the size of files leaves no half of one"
mkdir "$work/limit"
(ulimit -f 1 && simulate limit torpor --policy torpor --quiet --json "$work/limit/out.json"
echo $code >"$work/limit.code")
assert_equal "exit code" 4 "$(cat "$work/limit.code")"
assert_equal "files" "" "$(ls -A "$work/limit")"

section "outputs that cannot be written, and what must not be replaced"
mkfifo "$work/pipe"
ln -s "$work/plain.json" "$work/link"
for option in json html; do
	for path in "$work/none/out" "$work" "$work/pipe" "$work/link"; do
		simulate unwritten torpor --policy native --$option "$path" --quiet
		assert_exit unwritten 4
		assert_contains "$work/unwritten.err" "$path: "
	done
	simulate unwritten torpor --policy native --$option "$work/none/out"
	assert_contains "$work/unwritten.err" "--$option $work/none/out: its folder: No such file or directory"
	assert_equal "nothing is simulated before that is said" "" "$(cat "$work/unwritten.out")"
done
checks=$((checks + 1))
[ -p "$work/pipe" ] && [ -L "$work/link" ] || fail "pipe and link to be what they were" "$(ls -l "$work/pipe" "$work/link")"
finish
