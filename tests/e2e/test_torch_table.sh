#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/h200-torch and its table without PyTorch and GPU: commands that only write what the real ones would report.
. "$(dirname "$0")/lib.sh"
stubs=$work/build
mkdir -p "$stubs/bin" "$stubs/bench"

# In the place of `python3 bench/torch_decode.py`: a report whose numbers the assertions below know.
cat >"$stubs/engine" <<'EOF'
#!/usr/bin/env python3
import json, os, sys, time
args = sys.argv[1:]
value = lambda name, default="": args[args.index(name) + 1] if name in args else default
name, report = os.path.basename(value("--recipe")), value("--report")
mode, fault = os.environ.get("STUB_MODE", "none"), os.environ.get("STUB_FAULT", "")
with open(os.environ["STUB_CALLS"], "a") as calls:
    calls.write(f"{name} {mode} {value('--order', 'vanilla')}\n")
if fault == f"{name} {mode} fails":
    sys.exit("RuntimeError: out of stub memory")
if fault == f"{name} {mode} hangs":
    time.sleep(60)
restored = mode == "restore"
batches = [1, 2, 4] + list(range(8, 257, 8))
live = 0 if restored else 1
graphs = [{"batch": b, "restored": restored, "reason": "", "warmup_ms": 60.0 * live, "capture_ms": 5.0 * live,
           "instantiate_ms": 3.0 * live, "replay_ms": 1.01, "live_replay_ms": 1.0} for b in batches]
stages = {"context": 100.0, "structure": 300.0, "weights": 200.0, "kv": 100.0, "bind": 10.0, "first_graph": 70.0 if live else 9.0,
          "other_graphs": 2310.0 if live else 30.0}
medusa = {key: 1e6 for key in ("open_ns", "images_ns", "functions_ns", "arena_ns", "patch_ns", "build_ns", "instantiate_ns", "upload_ns", "heap_ns")}
medusa.update(total_ns=170e6, private_bytes=64000000)
loading = {"vanilla": 3.0, "async": 2.7, "late": 1.0, "early": 0.6}[value("--order", "vanilla")] * 1e3
out = {"recipe": name, "mode": mode, "device": "stub", "versions": {"torch": "2.0.stub", "transformers": "5.stub"}, "weight_bytes": 7e9,
       "kv": {"ms": 500.0 if live else 3.0, "from_profile": restored}, "stages_ms": stages, "graphs": graphs,
       "ready_ms": {"from_context": 4000.0 if mode == "capture" else 3200.0, "from_process_start": 5000.0 if restored else 9000.0},
       "loading_ms": {"first_graph": loading - 100, "all_graphs": loading}, "after_weights_ms": {"first_graph": 12.5, "all_graphs": 180.0},
       "graphs_restored": len(batches) if restored else 0, "medusa": medusa if restored else None,
       "background": {"beside_ms": {"count": 40, "p50": 4.1, "p99": 4.6}, "alone_ms": {"count": 100, "p50": 4.0, "p99": 4.0}},
       "check": {"equal": 34 if fault == f"{name} unequal" else 35, "of": 35}}
number = 1
while "%d" in report and os.path.exists(report.replace("%d", str(number))):
    number += 1
if report:
    json.dump(out, open(report.replace("%d", str(number)), "w"))
EOF
cat >"$stubs/bin/medusa-capture" <<'EOF'
#!/bin/bash
out=$2 && while [ "$1" != -- ]; do shift; done && shift
export STUB_MODE=capture
"$@" && "$@" || exit 4
touch "$out" "${out%.medusa}.1.mtrace" "${out%.medusa}.2.mtrace"
EOF
cat >"$stubs/bin/medusa-restore" <<'EOF'
#!/bin/bash
while [ "$1" != -- ]; do shift; done && shift
STUB_MODE=restore exec "$@"
EOF
cat >"$stubs/bin/medusa-verify" <<'EOF'
#!/bin/bash
printf '<testsuites><testsuite><testcase name="1"/><testcase name="2"><failure message="differs"/></testcase></testsuite></testsuites>' >"$3"
exit 1
EOF
cat >"$stubs/bin/medusa-inspect" <<'EOF'
#!/bin/bash
cat <<'JSON'
{"graphs": [{"nodes": 14000, "edges": 1, "pointers": 2, "pointer_words": 90000, "constant_words": 1000000, "noise_words": 250000, "proof": "verified"}],
 "refusals": [], "images": [{"size": 4000000, "stored": true}, {"size": 9000000, "stored": false}], "kernels": [1], "bindings": [], "kv": null,
 "private_bytes": 1, "content_bytes": 0, "file_bytes": 5000000, "bytes_per_node": 7.25, "sections": [{"name": "images", "stored": 1500000}]}
JSON
EOF
printf '#!/bin/bash\n:\n' >"$stubs/bin/medusa-analyze"
printf '#!/bin/bash\ntouch "$3"; echo "{\\"read_ms\\": 100, \\"analyze_ms\\": 200, \\"write_ms\\": 50, \\"total_ms\\": 350}"\n' >"$stubs/bench/analysis"
printf '#!/bin/bash\necho "{\\"total_ms\\": 150, \\"images_ms\\": 50, \\"functions_ms\\": 40, \\"add_ms\\": 10, \\"instantiate_ms\\": 35, \\"upload_ms\\": 15}"\n' >"$stubs/bench/floor"
chmod +x "$stubs"/engine "$stubs"/bin/* "$stubs"/bench/*

bench() { # name, arguments...
	local name=$1
	shift
	export STUB_CALLS=$work/$name.calls
	: >"$STUB_CALLS"
	BUILD=$stubs COMMIT=abc1234 run "$name" bench/h200-torch --python "$stubs/engine" --work "$work/$name.work" --results "$work/$name.results" "$@"
	table=$work/$name.results/h200-torch.md
}

column() { # title of a row, model's column (from 1): its cell in the table
	awk -F'|' -v what="$1" -v at=$(($2 + 2)) '{ name = $2; gsub(/^ +| +$/, "", name) } name == what { gsub(/^ +| +$/, "", $at); print $at; exit }' "$table"
}

section "two models, every step"
bench both --models yi-6b,qwen1.5-4b
assert_exit both 0
assert_contains "$table" "PyTorch 2.0.stub"
assert_contains "$table" "commit abc1234"
assert_equal "models, in the paper's order" "Qwen1.5-4B Yi-6B" "$(sed -n 's/^| what *| \([^ ]*\) *| \([^ ]*\) .*/\1 \2/p' "$table")"
assert_equal "bit-equal graphs" "35 of 35" "$(column 'restored graphs bit-equal to eager' 1)"
assert_equal "live / restore: 35 x 68 ms / 170 ms" "14.0 x" "$(column '- live / restore' 2)"
assert_equal "restore / floor: 170 / 150 ms" "1.13 x" "$(column '- restore / floor' 1)"
assert_equal "the floor's stages" "50.0 / 40.0 / 10.0 / 35.0 / 15.0" "$(column '- images / functions / add / instantiate / upload, ms' 1)"
assert_equal "capture overhead: 4000 / 3200 ms" "1.25 x" "$(column 'start until ready, under capture / without' 1)"
assert_equal "replay ratio" "1.010 (1.010, 1.010)" "$(column 'replay restored / live, in turns, median (min, max)' 1)"
assert_equal "weights ready to first graph, to all" "12.5, 180" "$(column 'the same; buffers bound after the weights are there' 1)"
assert_equal "replays beside" "1.15 x (4.10, 4.60 / 4.00, 4.00 ms; 40)" "$(column 'replay beside restoring / alone, 99th percentile (median, 99th; replays)' 1)"
assert_equal "words" "90000 / 1000000 / 250000" "$(column 'pointer / constant / noise words' 1)"
assert_equal "images" "2 (13), 1 stored (1.5)" "$(column 'images (MB), those in the artifact (MB compressed)' 1)"
assert_equal "analysis" "100 + 200 + 50 = 350" "$(column 'analysis: read + analyze + write, ms' 1)"
assert_equal "KV answer" "500 -> 3.0" "$(column 'KV capacity: profiling -> answer, ms' 1)"
assert_equal "without images" "35 of 35, 35 equal, 170 ms + 0" "$(column 'without images: restored, restore + trigger' 1)"
assert_equal "verified, one of two failed" "1 of 2" "$(column 'medusa-verify: graphs equal' 1)"
assert_equal "MEDUSA's nodes" 16150 "$(column "nodes in MEDUSA's Table 1 (vLLM)" 1)"
assert_contains "$table" "| Qwen1.5-4B | 3.00       | 2.70 s, -10.0 %      | 0.60 s, -80.0 %      | -77.8 %"
assert_contains "$table" "| 9.00 -> 5.00 s, -44.4 % | -13.0 %              | -41.4 % | -32.7 %"
assert_contains "$table" "| average "
assert_lacks "$table" "What failed"
assert_equal "graphs kept one by one: live and restored, of two models" 140 "$(grep -o '"capture_ms"' "$work/both.results/h200-torch.json" | wc -l)"
checks=$((checks + 1))
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$work/both.results/h200-torch.svg" || fail "a well-formed drawing" "none"

section "the table alone, from the records"
cp "$table" "$work/before.md"
rm -r "$work/both.results"
run again python3 bench/torch_table.py "$work/both.work/records" "$work/both.results"
assert_exit again 0
assert_same_file "$work/before.md" "$table"

section "rounds"
bench rounds --models yi-6b --rounds 2 --steps live,restored,capture
assert_equal "live runs" 2 "$(grep -c 'none vanilla' "$STUB_CALLS")"
assert_equal "runs under capture" 2 "$(grep -c capture "$STUB_CALLS")"

section "a model that fails leaves its reason, and the others their numbers"
STUB_FAULT="qwen1.5-0.5b.yaml capture fails" bench failing --models qwen1.5-0.5b,yi-6b
assert_exit failing 1
assert_contains "$table" "* Qwen1.5-0.5B, capture: exit code 4; RuntimeError: out of stub memory"
assert_contains "$table" "* Qwen1.5-0.5B, restored: there is no artifact"
assert_equal "the failed one" - "$(column 'restored graphs bit-equal to eager' 1)"
assert_equal "the other one" "35 of 35" "$(column 'restored graphs bit-equal to eager' 2)"

section "and is resumed: what is there is kept"
bench failing --models qwen1.5-0.5b,yi-6b --resume
assert_exit failing 0
assert_equal "live runs that were there already" 0 "$(grep -c 'none vanilla' "$STUB_CALLS")"
assert_equal "runs of the model that was complete" 0 "$(grep -c yi-6b "$STUB_CALLS")"
assert_equal "the failed one" "35 of 35" "$(column 'restored graphs bit-equal to eager' 1)"
assert_lacks "$table" "What failed"

section "a graph that differs is said"
STUB_FAULT="yi-6b.yaml unequal" bench unequal --models yi-6b --quick
assert_equal "bit-equal graphs" "34 of 35" "$(column 'restored graphs bit-equal to eager' 1)"

section "a step that hangs is killed"
STUB_FAULT="yi-6b.yaml restore hangs" bench hanging --models yi-6b --quick --timeout 10
assert_exit hanging 1
assert_contains "$table" "restored: killed after 10 s"
assert_equal "the floor, after it" 150 "$(column 'floor of the same run, ms' 1)"

section "no step is started after the budget"
bench late --models yi-6b --quick --budget 0.0001
assert_exit late 1
assert_contains "$table" "* Yi-6B, live: not run: out of time"
assert_equal "runs" 0 "$(wc -l <"$STUB_CALLS")"

section "one model a GPU"
sed -i 's/^    calls.write(.*/    calls.write(os.environ.get("CUDA_VISIBLE_DEVICES", "none") + "\\n")/' "$stubs/engine"
bench spread --models yi-6b,yi-9b,llama2-7b,llama2-13b --gpus 2 --steps live
assert_exit spread 0
assert_equal "devices" "0 1" "$(sort -u "$STUB_CALLS" | xargs)"
bench alone --models yi-6b --steps live
assert_equal "devices" none "$(sort -u "$STUB_CALLS" | xargs)"

section "arguments"
bench wrong --steps guess
assert_exit wrong 2
assert_contains "$work/wrong.err" "unknown steps: guess"
bench wrong --models gpt-5
assert_exit wrong 2
assert_contains "$work/wrong.err" "no recipe models/recipes/gpt-5.yaml"
run nothing python3 bench/torch_table.py "$work/nowhere" "$work/nothing"
assert_exit nothing 1
assert_contains "$work/nothing.err" "no records"
for script in bench/*.py bench/h200-torch; do
	checks=$((checks + 1))
	python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$script" || fail "$script to compile" "errors"
done
finish
