#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch engines on a real GPU: each live, captured, restored, verified and compared; then what must never hurt.
# JOBS checks (half as many as there are cores, 4 to 8) run at a time, PYTHON names the interpreter, ONLY="triton hurt" picks parts; all logs lie in
# build/tests/gpu/torch, and OUT, a folder, gets them as one file.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/e2e/device.sh
python=${PYTHON:-python3} jobs=${JOBS:-$(($(nproc) / 2))} out=$build/tests/gpu/torch
[ -n "${JOBS:-}" ] || jobs=$((jobs < 4 ? 4 : jobs > 8 ? 8 : jobs))
compare=("$python" tests/gpu/torch_compare.py)
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "tests/gpu/torch: skipped: no NVIDIA GPU with a driver on this machine"
	exit 77
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
	echo "tests/gpu/torch: skipped: PyTorch is not installed"
	exit 77
fi
printf '%s; %d x %s; %s; commit %s; JOBS=%s\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(nvidia-smi -L | wc -l)" \
	"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)" \
	"$("$python" -c 'import torch, transformers; print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")' 2>&1 | tail -n 1)" \
	"${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null)}" "$jobs"
rm -rf "$out"
mkdir -p "$out/verdicts"
out=$(cd "$out" && pwd)
PATH=$(cd "$build/bin" && pwd):$PATH
export PYTHONPYCACHEPREFIX=$out/pycache TORCHINDUCTOR_CACHE_DIR=$out/inductor TRITON_CACHE_DIR=$out/triton
unset CAPTURE MEDUSA_ARTIFACT MEDUSA_RESOLVE MEDUSA_PROBE PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF

# ---- one check -------------------------------------------------------------------------------------------------------
verdict() { # word, name, seconds, text
	printf '  %-4s  %-30s %3d s  %.95s\n' "$1" "$2" "$3" "${4//$PWD\//}"
	printf '%s\n' "$1" >"$out/verdicts/$2"
}

try() { # name, command or function...
	local name=$1 start=$SECONDS log=$out/$1.log code=0 limit=(timeout --kill-after=5 "${LIMIT:-240}")
	shift
	[ "$(type -t "$1")" = function ] && limit=()
	"${limit[@]}" "$@" >"$log" 2>&1 || code=$?
	case $code in
	0) verdict pass "$name" $((SECONDS - start)) "$(tail -n 1 "$log")" ;;
	77) verdict skip "$name" $((SECONDS - start)) "$(grep '^skipped' "$log" | tail -n 1)" ;;
	*) verdict FAIL "$name" $((SECONDS - start)) "exit $code: $( (grep -m 1 '^failure' || tail -n 1 "$log") <"$log")" ;;
	esac
	return $code
}

wanted() { [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $1 "* ]]; }

pool() { # command...: in the background, as soon as one of the places is free
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
		wait -n
	done
	"$@" &
}

# ---- the whole way of one program ------------------------------------------------------------------------------------
# Graphs may be left out of the artifact only for a reason that matches; "" is: none may.
capture() { # artifact, pattern, command...
	local artifact=$1 pattern=$2 code=0 refused=$1.refused
	shift 2
	timeout --kill-after=5 280 medusa-capture -o "$artifact" --keep-traces ${CAPTURE:-} -- "$@" \
		>"$artifact.log" 2>&1 || code=$?
	cat "$artifact.log"
	grep '^medusa-capture: refused' "$artifact.log" >"$refused" || rm -f "$refused"
	[ $code = 1 ] && [ -n "$pattern" ] && [ -e "$refused" ] || return $code
	if grep -viE "$pattern" "$refused"; then
		echo "failure: refused for another reason than $pattern"
		return 1
	fi
	sort "$refused" | sed 's/^medusa-capture: //' | head -n 1
}

# The last line is the tool's count, behind the engine's own words.
verified() { # name, artifact, command...
	local name=$1 artifact=$2 code=0
	shift 2
	timeout --kill-after=5 "${LIMIT:-240}" medusa-verify "$artifact" --junit "$out/$name.xml" -- "$@" \
		>"$out/$name-verify.said" 2>&1 || code=$?
	cat "$out/$name-verify.said"
	grep -E '^[0-9]+ passed, ' "$out/$name-verify.said" | tail -n 1
	return $code
}

chain() { # name, pattern of refusals, how much is restored (all, any), program, arguments...
	local name=$1 pattern=$2 restored=$3 artifact=$out/$1.medusa run
	shift 3
	run=("$python" "tests/gpu/$1.py" "${@:2}" --artifact "$artifact")
	try "$name-live" "${run[@]}" --out "$out/$name.live.json" || return
	try "$name-capture" capture "$artifact" "$pattern" "${run[@]}" || return
	try "$name-restore" medusa-restore "$artifact" -- "${run[@]}" --out "$out/$name.restored.json" &&
		try "$name-same" "${compare[@]}" "$out/$name.live.json" "$out/$name.restored.json" --restored "$restored"
	[ -e "$artifact.refused" ] ||
		try "$name-verify" verified "$name" "$artifact" "${run[@]}"
}

streams() {
	chain streams "" all torch_streams
	[ -e "$out/streams.medusa" ] && try streams-dag "$python" -c '
import collections, json, subprocess, sys
graph = json.loads(subprocess.check_output(["medusa-inspect", sys.argv[1], "--json", "--graph", "decode/1"]))
forks = [node for node, out in collections.Counter(edge["from"] for edge in graph["edges"]).items() if out > 1]
print(len(graph["edges"]), "edges,", len(forks), "nodes with two successors")
sys.exit(not forks)' "$out/streams.medusa"
}

# Graphs that are not what eager computes are restored as they replay live; a user may say how far is too far.
eager() {
	local run=("$python" tests/gpu/torch_eager.py) artifact=$out/eager.medusa
	try eager-live "${run[@]}" || return
	CAPTURE="" try eager-capture capture "$artifact" "" "${run[@]}" || return
	try eager-said grep -c "live replays differ from eager: output" "$artifact.log"
	try eager-restore medusa-restore "$artifact" -- "${run[@]}"
	try eager-verify verified eager "$artifact" "${run[@]}"
	CAPTURE="" try eager-beyond capture "$out/beyond.medusa" "differs from eager: .* beyond eager_tolerance" \
		env MEDUSA_EAGER_TOLERANCE=0 "${run[@]}"
}

# Sums by atomics: refused with a way out, or accepted within a tolerance, restored and verified.
scatter() {
	local run=("$python" tests/gpu/torch_scatter.py --expect-restored) artifact=$out/scatter.medusa
	CAPTURE="" try scatter-unnamed capture "$out/unnamed.medusa" "--nondeterministic ULPS" "${run[@]}"
	CAPTURE="--nondeterministic 256" try scatter-capture capture "$artifact" "" "${run[@]}" || return
	try scatter-said grep -c "nondeterministic within 256 ULP of f32" <(medusa-inspect "$artifact")
	try scatter-restore medusa-restore "$artifact" -- "${run[@]}"
	try scatter-verify medusa-verify --nondeterministic 256 "$artifact" -- "${run[@]}"
}

# Few rows and wide matrices, whose products are split; verified by the capture and again.
products() {
	local run=("$python" tests/gpu/torch_products.py --expect-restored) artifact=$out/products.medusa
	try products-live "${run[@]}" || return
	CAPTURE="" try products-capture capture "$artifact" "" "${run[@]}" || return
	try products-restore medusa-restore "$artifact" -- "${run[@]}"
	try products-verify verified products "$artifact" "${run[@]}"
}

# Adapters that did not exist at capture, in slots that restored graphs read.
adapters() {
	local run=("$python" tests/gpu/torch_adapters.py --expect-restored) artifact=$out/adapters.medusa
	try adapters-live "${run[@]}" || return
	CAPTURE="" try adapters-capture capture "$artifact" "" "${run[@]}" || return
	try adapters-restore medusa-restore "$artifact" -- "${run[@]}"
}

# PyTorch's own graphs have no label: they run as ever, and the capture says by name that none can be restored.
graph_trees() {
	local run=("$python" tests/gpu/torch_graph_trees.py) artifact=$out/graph_trees.medusa
	try graph_trees-live "${run[@]}" --out "$out/graph_trees.live.json" || return
	CAPTURE="" try graph_trees-capture capture "$artifact" . "${run[@]}" --out "$out/graph_trees.captured.json"
	try graph_trees-said grep -c "refused: (graph/.*it carries no label" "$artifact.log"
	try graph_trees-captured "${compare[@]}" "$out/graph_trees.live.json" "$out/graph_trees.captured.json" --restored none
	try graph_trees-restore medusa-restore "$artifact" -- "${run[@]}" --out "$out/graph_trees.restored.json" &&
		try graph_trees-same "${compare[@]}" "$out/graph_trees.live.json" "$out/graph_trees.restored.json" --restored none
}

# transformers' server as a user starts it: what Python reads at its start (medusa-torch.pth) is all that is added.
serve_needs() {
	"$python" -c 'import transformers, fastapi, uvicorn, openai, accelerate' 2>&1 | tail -n 1 | sed 's/^/skipped: transformers serve: /'
	return "$((PIPESTATUS[0] ? 77 : 0))"
}

serve() {
	local artifact=$out/serve.medusa site=$out/serve_site run=("$python" tests/gpu/torch_serve.py --model "$out/serve_model") command
	try serve-needs serve_needs || return
	mkdir -p "$site"
	printf 'import logging, site\nlogging.basicConfig()\nlogging.getLogger("medusa.torch").setLevel("INFO")\nsite.addsitedir(%s)\n' \
		"'$PWD/models/torch'" >"$site/sitecustomize.py"
	export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
	mapfile -t command < <("${run[@]}" --make 2>/dev/null)
	try serve-live "${run[@]}" --out "$out/serve.live.json" || return
	CAPTURE="" try serve-capture capture "$artifact" "" "${command[@]}" || return
	try serve-restore "${run[@]}" --out "$out/serve.restored.json" -- medusa-restore "$artifact" -- &&
		try serve-same "${compare[@]}" "$out/serve.live.json" "$out/serve.restored.json" --restored all
	try serve-verify verified serve "$artifact" "${command[@]}"
}

# ---- what must never hurt --------------------------------------------------------------------------------------------
hurt() { # case, environment...: on the artifact of the case `base`
	local case=$1 artifact=$out/base.medusa
	shift
	[ "$case" = damaged ] && artifact=$out/damaged.medusa
	try "hurt-$case" env "$@" medusa-restore "$artifact" -- \
		"$python" tests/gpu/torch_hurt.py --case "$case" --out "$out/$case.restored.json"
}

# The engine raises while a capture is recorded: what it captures afterwards is materialized all the same.
raise_in_capture() {
	try hurt-exception-capture capture "$out/exception.medusa" "" "$python" tests/gpu/torch_hurt.py --case exception &&
		try hurt-exception-inspect medusa-inspect "$out/exception.medusa"
}

# These measure what is allocated on the device, so nothing else may run.
memory() {
	local run=("$python" tests/gpu/torch_hurt.py --case)
	hurt free-graphs
	try hurt-failed-live "${run[@]}" failed-restore --out "$out/failed-restore.live.json" &&
		hurt failed-restore &&
		try hurt-failed-memory "${compare[@]}" "$out/failed-restore.live.json" "$out/failed-restore.restored.json" \
			--restored none --memory 16
}

# ---- all of it -------------------------------------------------------------------------------------------------------
begin=$SECONDS base=
# With the default options, verification of the artifact included; the others are verified by the command.
wanted hurt && { pool chain base "" all torch_hurt --case base; base=$!; }
export CAPTURE=--no-verify
wanted triton && pool chain triton "" all torch_triton
# Its varlen graphs pad with rows that race for one KV block: two live replays differ there already.
wanted batching && pool chain batching "" all torch_continuous_batching
wanted streams && pool streams
wanted eager && pool eager
wanted scatter && pool scatter
wanted products && pool products
wanted adapters && pool adapters
wanted graph_trees && pool graph_trees
wanted serve && pool serve
wanted cudnn && pool chain cudnn "" all torch_cudnn
wanted rng && pool chain rng 'rng|random|philox|generator|seed' any torch_rng
if [ -n "$base" ]; then
	pool chain two-engines "" all torch_hurt --case two-engines
	pool raise_in_capture
	PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True pool chain expandable '.' any torch_hurt --case expandable-segments
	PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync pool chain malloc-async '.' any torch_hurt --case cuda-malloc-async
	wait "$base"
	[ -e "$out/base.medusa" ] && head -c 4096 "$out/base.medusa" >"$out/damaged.medusa"
	for case in other-fingerprint other-version other-artifact damaged changed-batches changed-shape changed-cache \
		weight-moved same-name-later same-name-before fork spawn second-gpu exception ctrl-c; do
		pool hurt $case
	done
	pool hurt expandable-segments PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
	pool hurt cuda-malloc-async PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
fi
wait
[ -n "$base" ] && memory

count() { cat "$out"/verdicts/* 2>/dev/null | grep -cx "$1"; }
for failed in $(grep -lx FAIL "$out"/verdicts/* 2>/dev/null | head -n 6); do
	printf -- '---- %s\n' "${failed##*/}"
	tail -n "${TAIL:-6}" "$out/${failed##*/}.log" | cut -c1-200
done
[ -z "${OUT:-}" ] || (cd "$out" && tar -czf "$OUT/torch-logs.tar.gz" ./*.log ./*.json ./*.xml 2>/dev/null)
printf 'tests/gpu/torch: %d passed, %d failed, %d skipped in %d s; logs in %s\n' \
	"$(count pass)" "$(count FAIL)" "$(count skip)" $((SECONDS - begin)) "$out"
[ "$(count FAIL)" = 0 ] && [ "$(count pass)" -gt 0 ]
