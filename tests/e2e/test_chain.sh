#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The whole chain with each of its options: capture, inspect, verify, restore; restored runs must equal the live one.
. "$(dirname "$0")/lib.sh"

label_of() { sed -n 's/.*"label": "\([^"]*\)".*/\1/p' "$work/$1.json"; }

section "live"
run_live live
assert_exit live 0
assert_restored live 0 $graphs
assert_same_output live live

section "capture and restore"
capture chain
assert_exit chain 0
assert_contains "$work/chain.err" "verification: $graphs passed, 0 failed, 0 not compared"
assert_no_file "$work/chain.1.mtrace"
assert_no_file "$work/chain.medusa.unverified"
run_restored restored "$work/chain.medusa" --check
assert_exit restored 0
assert_contains "$work/restored.out" "check: $graphs of $graphs graphs bit-equal to eager"
run_restored restored "$work/chain.medusa"
assert_exit restored 0
assert_same_output live restored
assert_restored restored $graphs 0
assert_equal "words on stderr" "" "$(cat "$work/restored.err")"
assert_contains "$work/restored.json" '"from_profile": true'

section "state that is too large to be saved: verification leaves it to the engine as it was"
MEDUSA_PROBE_LIMIT=1048576 MEDUSA_PROBE_DEVICE_LIMIT=0 run sampled medusa-capture -o "$work/sampled.medusa" -- \
	"${engine[@]}" --max-kv-bytes 8000000 --check
assert_exit sampled 0
assert_contains "$work/sampled.err" "verification: $graphs passed, 0 failed, 0 not compared"
assert_lacks "$work/sampled.err" "differ from eager"

# A verification also compares graphs when others are launched: their inputs have to be valid then, idle rows included.
section "larger batches than the engine serves"
wide=("${engine[0]}" --recipe models/recipes/tiny.yaml --seed 3 --batches 1,2,4,32,64 --tokens 8 --quiet --kv-blocks 80)
run wide medusa-capture -o "$work/wide.medusa" -- "${wide[@]}"
assert_exit wide 0
assert_contains "$work/wide.err" "verification: 5 passed, 0 failed, 0 not compared"

section "graphs that several sequences use"
run_live live4 --prompt a --prompt b --prompt c
run_restored restored4 "$work/chain.medusa" --prompt a --prompt b --prompt c
assert_same_output live4 restored4
assert_restored restored4 $graphs 0

section "another seed: weights are bound, not stored"
run_live live_seed --seed 99
run_restored restored_seed "$work/chain.medusa" --seed 99
assert_same_output live_seed restored_seed
assert_restored restored_seed $graphs 0
checks=$((checks + 1))
[ "$(logits live)" != "$(logits live_seed)" ] || fail "another seed to give other logits" "the same"

section "inspect"
run inspect medusa-inspect "$work/chain.medusa"
assert_exit inspect 0
assert_contains "$work/inspect.out" "$graphs graphs"
run inspect_json medusa-inspect --json "$work/chain.medusa"
assert_exit inspect_json 0
run counts python3 -c 'import json, sys
a = json.load(open(sys.argv[1]))
print(len(a["graphs"]), {g["proof"] for g in a["graphs"]}, sorted(g["batch"] for g in a["graphs"]), a["kv"]["blocks"] > 0,
      sum(s["stored"] for s in a["sections"]) < a["file_bytes"])' "$work/inspect_json.out"
assert_equal "what the JSON says" "$graphs {'replay'} [1, 2, 4] True True" "$(cat "$work/counts.out" "$work/counts.err")"
run twin medusa-inspect --text "$work/chain.medusa"
assert_exit twin 0
run back medusa-inspect --from-text "$work/twin.out" -o "$work/back.medusa"
assert_exit back 0
assert_same_file "$work/chain.medusa" "$work/back.medusa"
run graph medusa-inspect --graph "$(label_of live)/2" "$work/chain.medusa"
assert_exit graph 0
assert_contains "$work/graph.out" llama_attention
run graph_json medusa-inspect --json --graph "$(label_of live)/2" "$work/chain.medusa"
assert_exit graph_json 0
run graph_parsed python3 -m json.tool "$work/graph_json.out"
assert_exit graph_parsed 0
run no_graph medusa-inspect --graph decode/77 "$work/chain.medusa"
assert_exit no_graph 2

section "verify"
run verify medusa-verify "$work/chain.medusa" --junit "$work/verify.xml" --json -- "${engine[@]}"
assert_exit verify 0
run parsed python3 -c 'import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
print(len(root.findall(".//testcase")), len(root.findall(".//failure")), len(root.findall(".//skipped")))
json.load(open(sys.argv[2]))' "$work/verify.xml" "$work/verify.out"
assert_equal "test cases, failures, skipped" "$graphs 0 0" "$(cat "$work/parsed.out" "$work/parsed.err")"

section "each way of resolving kernels alone"
resolve=loaded
run_restored loaded "$work/chain.medusa"
assert_exit loaded 0
assert_same_output live loaded
assert_equal "kernels from elsewhere" "0 0" "$(number loaded kernels_stored_image) $(number loaded kernels_triggered)"
resolve=stored
run_restored stored "$work/chain.medusa"
assert_exit stored 0
assert_same_output live stored
assert_restored stored $graphs 0
assert_equal "kernels from elsewhere" "0 0" "$(number stored kernels_loaded_image) $(number stored kernels_triggered)"
resolve=trigger
run_restored trigger "$work/chain.medusa"
assert_exit trigger 0
assert_same_output live trigger
assert_restored trigger $graphs 0
assert_at_least "triggered kernels" 1 "$(number trigger kernels_triggered)"
resolve=

section "--single"
capture single --single
assert_exit single 0
run single_text medusa-inspect "$work/single.medusa"
assert_contains "$work/single_text.out" "from 1 capture"
run_restored single_restored "$work/single.medusa"
assert_exit single_restored 0
assert_same_output live single_restored
assert_restored single_restored $graphs 0
MEDUSA_REQUIRE_PROOF=1 run_restored unproven "$work/single.medusa"
assert_refused live unproven proof

section "--no-images: triggering kernels"
capture no_images --no-images
assert_exit no_images 0
run no_images_json medusa-inspect --json "$work/no_images.medusa"
run no_images_paths python3 -c 'import json, sys
print([(i["path"], i["stored"]) for i in json.load(open(sys.argv[1]))["images"]])' "$work/no_images_json.out"
assert_equal "paths of images, and whether they are stored" "[(None, False), (None, False)]" "$(cat "$work/no_images_paths.out")"
run_restored triggered "$work/no_images.medusa"
assert_exit triggered 0
assert_same_output live triggered
assert_restored triggered $graphs 0
assert_at_least "triggered kernels" 1 "$(number triggered kernels_triggered)"

section "--store-images"
capture store_images --store-images
assert_exit store_images 0
run stored_json medusa-inspect --json "$work/store_images.medusa"
assert_lacks "$work/stored_json.out" '"stored": false'
resolve=stored run_restored stored_images "$work/store_images.medusa"
assert_same_output live stored_images
assert_restored stored_images $graphs 0

section "--until graphs=2"
capture until_graphs --until graphs=2
assert_exit until_graphs 0
run_restored two "$work/until_graphs.medusa"
assert_exit two 0
assert_same_output live two
assert_restored two 2 1

section "--until mark=ready"
capture until_mark --until mark=ready
assert_exit until_mark 0
run_restored marked "$work/until_mark.medusa"
assert_exit marked 0
assert_same_output live marked
assert_restored marked $graphs 0

section "replays of the first graph while the others are restored"
run_restored background "$work/chain.medusa" --bench-background 50
assert_exit background 0
assert_same_output live background
assert_restored background $graphs 0
assert_contains "$work/background.json" '"alone": { "count": 50,'

section "--no-verify, --keep-traces, medusa-analyze"
capture kept --no-verify --keep-traces
assert_equal "mode of a trace that is kept" 600 "$(stat -c %a "$work/kept.1.mtrace")"
assert_exit kept 0
assert_file "$work/kept.1.mtrace"
assert_file "$work/kept.2.mtrace"
run trace medusa-inspect --json "$work/kept.1.mtrace"
assert_exit trace 0
run analyzed medusa-analyze -o "$work/analyzed.medusa" -v "$work/kept.1.mtrace" "$work/kept.2.mtrace"
assert_exit analyzed 0
assert_same_file "$work/kept.medusa" "$work/analyzed.medusa"
run_restored analyzed_run "$work/analyzed.medusa"
assert_same_output live analyzed_run
assert_restored analyzed_run $graphs 0
run analyzed_single medusa-analyze --single -o "$work/analyzed1.medusa" "$work/kept.1.mtrace"
assert_exit analyzed_single 0

section "traces that do not belong together"
run itself medusa-analyze -o "$work/itself.medusa" "$work/kept.1.mtrace" "$work/kept.1.mtrace"
assert_exit itself 3
assert_contains "$work/itself.err" "both traces are of the same run"
assert_no_file "$work/itself.medusa"
HOSTCUDA_MEM=4G capture smaller --keep-traces --no-verify
run mixed medusa-analyze -o "$work/mixed.medusa" "$work/kept.1.mtrace" "$work/smaller.2.mtrace"
assert_exit mixed 3
assert_contains "$work/mixed.err" "device memory: first capture has 8589934592 bytes, second 4294967296"
assert_no_file "$work/mixed.medusa"
engine+=(--batches 1,2,8)
capture other --keep-traces --no-verify
run disjoint medusa-analyze -o "$work/disjoint.medusa" "$work/kept.1.mtrace" "$work/other.2.mtrace"
assert_exit disjoint 1
assert_count "$work/disjoint.err" "the second capture has no such graph" $graphs
assert_count "$work/disjoint.err" "only the second capture has this graph" $graphs
run_live other_live
run_restored nothing "$work/disjoint.medusa"
assert_exit nothing 0
assert_same_output other_live nothing
assert_restored nothing 0 $graphs
finish
