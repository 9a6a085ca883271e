#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What somebody who may write files, or start programs, can do to those who read them: set-user-ID programs, pipes and
# devices where files belong, files that change under their reader, artifacts with right checksums and wrong contents.
. "$(dirname "$0")/lib.sh"
run_limit=120
craft=$MEDUSA_BUILD/tests/fuzz/craft

run two medusa-capture --keep-traces -o "$work/two.medusa" -- "${engine[@]}" --batches 1,2 --report "$work/capture.json"
assert_exit two 0
run_live live
run_live live_two --batches 1,2

# ---- set-user-ID programs --------------------------------------------------------------------------------------------
# The same program with and without the bit: without it the settings must work, else the test would show nothing.
try_setuid() { # run, setting, library
	local run=$1 setting=$2 library=$3
	cp "$MEDUSA_BUILD/tests/subjects/setuid_subject" "$rooted/plain"
	cp "$rooted/plain" "$rooted/setuid"
	chmod 0755 "$rooted/plain"
	chmod 4755 "$rooted/setuid"
	for bit in plain setuid; do
		run "${run}_$bit" setpriv --reuid=65534 --regid=65534 --clear-groups \
			env -u LD_LIBRARY_PATH MEDUSA_LOG=debug "$setting" "$rooted/$bit" "$library"
	done
}

section "set-user-ID programs"
rooted=$(mktemp -d "${TMPDIR:-/tmp}/medusa-setuid.XXXXXX")
chmod 0755 "$rooted"
mkdir -m 0777 "$rooted/open"
cp "$MEDUSA_BUILD"/lib/libmedusa*.so "$MEDUSA_BUILD/lib/hostcuda/libcuda.so.1" "$MEDUSA_BUILD/tests/doors/evil.so" "$rooted"
chmod 0644 "$rooted"/*.so*
can_setuid=
if [ -n "${SAN:-}" ] || [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null; then
	echo "skipped: set-user-ID programs (needs root, setpriv, and no sanitizers)"
else
	try_setuid probe NOTHING=1 "$rooted/libmedusa.so"
	if grep -q 'secure 1, uid 65534, euid 0' "$work/probe_setuid.out"; then
		can_setuid=1
	else
		echo "skipped: set-user-ID programs (this file system or sandbox knows none)"
	fi
fi
if [ -n "$can_setuid" ]; then
	for library in libmedusa libmedusa-restore libmedusa-capture; do
		section "set-user-ID programs: MEDUSA_LIBCUDA, $library"
		try_setuid driver MEDUSA_LIBCUDA="$rooted/evil.so" "$rooted/$library.so"
		assert_contains "$work/driver_plain.out" "evil: ran with euid 65534"
		assert_contains "$work/driver_setuid.out" "secure 1"
		assert_lacks "$work/driver_setuid.out" "evil"
	done
	section "set-user-ID programs: CUDA_INJECTION64_PATH, hostcuda"
	try_setuid injected CUDA_INJECTION64_PATH="$rooted/evil.so" "$rooted/libcuda.so.1"
	assert_contains "$work/injected_plain.out" "evil: ran with euid 65534"
	assert_contains "$work/injected_setuid.out" "cuInit: 0"
	assert_lacks "$work/injected_setuid.out" "evil"
	for library in libmedusa-restore libmedusa-capture; do
		section "set-user-ID programs: MEDUSA_LOG_FILE, $library"
		try_setuid log MEDUSA_LOG_FILE="$rooted/open/$library.log" "$rooted/$library.so"
		assert_equal "who wrote the log" 65534 "$(stat -c %u "$rooted/open/$library.log" 2>&1)"
		assert_lacks "$rooted/open/$library.log" "euid 0"
		size=$(stat -c %s "$rooted/open/$library.log")
		run again setpriv --reuid=65534 --regid=65534 --clear-groups env -u LD_LIBRARY_PATH MEDUSA_LOG=debug \
			MEDUSA_LOG_FILE="$rooted/open/$library.log" "$rooted/setuid" "$rooted/$library.so"
		assert_equal "bytes of the log, which the set-user-ID program leaves alone" "$size" \
			"$(stat -c %s "$rooted/open/$library.log")"
	done
fi

# ---- what is no file -------------------------------------------------------------------------------------------------
mkfifo "$work/pipe"
images_at() { # run, path of every image that lies in a file; more of a sed script
	run "$1_text" medusa-inspect --text "$work/two.medusa"
	sed "s|^\\(image .*\\)path=\"[^\"]*\"\\(.*\\)|\\1path=\"$2\"\\2|; ${3:-}" "$work/$1_text.out" >"$work/$1.txt"
	run "$1_made" medusa-inspect --from-text "$work/$1.txt" -o "$work/$1.medusa"
	assert_exit "$1_made" 0
}

for what in pipe:"$work/pipe":"a pipe" device:/dev/zero:"a device" folder:"$work":"a folder"; do
	IFS=: read -r name path said <<<"$what"
	section "$said as the file of an image"
	images_at "image_$name" "$path"
	resolve=stored run_restored "image_$name" "$work/image_$name.medusa" --batches 1,2
	assert_exit "image_$name" 0
	assert_same_output live_two "image_$name"
	assert_contains "$work/image_$name.err" "image file $path: not a regular file but $said"
	section "$said as an artifact"
	run "artifact_$name" env "$(preload restore)" MEDUSA_ARTIFACT="$path" "${engine[@]}" --report "$work/artifact_$name.json"
	assert_refused_whole live "artifact_$name" "$path: not a regular file but $said"
	run "inspect_$name" medusa-inspect "$path"
	assert_exit "inspect_$name" 3
	run "analyze_$name" medusa-analyze --single -o "$work/none.medusa" "$path"
	assert_exit "analyze_$name" 3
	assert_contains "$work/analyze_$name.err" "not a regular file but $said"
	section "$said as a list of trusted keys"
	MEDUSA_TRUSTED_KEYS=$path run_restored "keys_$name" "$work/two.medusa"
	assert_refused_whole live "keys_$name" "MEDUSA_TRUSTED_KEYS: $path: not a regular file but $said"
	section "$said as the probe's kernel"
	run "probe_$name" env MEDUSA_PROBE_KERNEL="$path" medusa-capture -o "$work/probe_$name.medusa" -- "${engine[@]}"
	assert_exit "probe_$name" 0
	section "$said as a configuration"
	run "simulate_$name" medusa-simulate --node "$path" --functions "$path" --trace "$path"
	assert_exit "simulate_$name" 3
done

section "a pipe that nobody reads as a log, a trace's part, a report"
run log env "$(preload restore)" MEDUSA_LOG_FILE="$work/pipe" MEDUSA_ARTIFACT="$work/nothing" "${engine[@]}" --report "$work/log.json"
assert_exit log 0
assert_same_output live log
mkfifo "$work/piped.mtrace.part"
run part env "$(preload capture)" MEDUSA_TRACE="$work/piped.mtrace" "${engine[@]}" --report "$work/part.json"
assert_exit part 0
assert_same_output live part
assert_contains "$work/part.err" "nothing is recorded"
run report env "$(preload restore)" MEDUSA_ARTIFACT="$work/two.medusa" MEDUSA_VERIFY=1 MEDUSA_VERIFY_REPORT="$work/pipe" \
	"${engine[@]}" --report "$work/report.json"
assert_exit report 0
assert_same_output live report

section "a file of gigabytes that is no image"
truncate -s 3000000000 "$work/sparse"
images_at sparse "$work/sparse" '/^image .*path=/{s| size=[0-9]*| size=2900000000|; s| file_offset=[0-9]*| file_offset=0|}'
resolve=stored run_restored sparse "$work/sparse.medusa" --batches 1,2
assert_same_output live_two sparse
assert_contains "$work/sparse.err" "image file $work/sparse at offset 0: no image of 2900000000 bytes is there"

# ---- files that change under their reader ----------------------------------------------------------------------------
section "an artifact that is rewritten in place while engines are restored from it"
cp "$work/two.medusa" "$work/changing.medusa"
run_restored quiet "$work/changing.medusa" --batches 1,2
assert_restored quiet 2 0
(while :; do
	: >"$work/changing.medusa" # cut off, and written again, the same file
	cat "$work/two.medusa" >"$work/changing.medusa"
	head -c 3000 /dev/zero | dd of="$work/changing.medusa" conv=notrunc status=none
	cat "$work/two.medusa" >"$work/changing.medusa"
done) &
writer=$!
for i in $(seq 1 "${HOSTILE_ROUNDS:-15}"); do
	run_restored changing "$work/changing.medusa" --batches 1,2
	assert_exit changing 0
	assert_same_output live_two changing
	run changing_inspect medusa-inspect "$work/changing.medusa"
	checks=$((checks + 1))
	[ "$code" -le 4 ] || fail "medusa-inspect to end by itself" "$code"
done
kill $writer
wait $writer 2>/dev/null

section "image files that are rewritten in place"
file=$(sed -n 's/^image .*path="\([^"]*\)".*/\1/p' "$work/image_pipe_text.out" | head -n 1)
cp "$file" "$work/images.so"
images_at images "$work/images.so"
resolve=stored run_restored images "$work/images.medusa" --batches 1,2
assert_restored images 2 0
(while :; do
	: >"$work/images.so"
	cat "$file" >"$work/images.so"
done) &
writer=$!
for i in $(seq 1 "${HOSTILE_ROUNDS:-15}"); do
	resolve=stored run_restored images "$work/images.medusa" --batches 1,2
	assert_exit images 0
	assert_same_output live_two images
done
kill $writer
wait $writer 2>/dev/null

# ---- traces that lack their end --------------------------------------------------------------------------------------
# What refuses a graph comes behind what says that it is right: that somebody else writes what it reads, for instance.
section "a trace that was cut off, or recorded by an older version"
analyzed() { # run, the second trace, why it is refused
	run "$1" medusa-analyze -o "$work/$1.medusa" "$work/two.1.mtrace" "$2"
	assert_exit "$1" 3
	assert_contains "$work/$1.err" "$3"
	assert_no_file "$work/$1.medusa"
}
run whole medusa-analyze -o "$work/whole.medusa" "$work/two.1.mtrace" "$work/two.2.mtrace"
assert_exit whole 0
head -c -20 "$work/two.2.mtrace" >"$work/cut.mtrace"
analyzed cut "$work/cut.mtrace" "second trace is incomplete: what it lacks may be what refuses a graph; capture again"
run cut_shown medusa-inspect "$work/cut.mtrace"
assert_exit cut_shown 0
{ head -c 8 "$work/two.2.mtrace" && printf '\004\000\000\000\003\000\000\000' && tail -c +17 "$work/two.2.mtrace"; } >"$work/older.mtrace"
analyzed older "$work/older.mtrace" "second trace is of version 4, whose recorder did not look for all that refuses graphs"

# ---- right checksums, wrong contents ---------------------------------------------------------------------------------
# A refusal without a label, of a batch that the engine asks for: it was compared as a string.
run three medusa-capture -o "$work/three.medusa" -- "${engine[@]}" --report "$work/three.json"
run twin medusa-inspect --text "$work/three.medusa"
sed '/^graph .*batch=4/,/^graph\|^\[/{/^graph .*batch=4/d; /^graph\|^\[/!d}
	/^\[graphs\]/a refusal batch=4 why="crafted"\nrefusal label="decode" batch=8 why="crafted, too"' "$work/twin.out" >"$work/base.txt"
run base medusa-inspect --from-text "$work/base.txt" -o "$work/base.medusa"
assert_exit base 0

section "a refusal without a label"
run_restored label "$work/base.medusa"
assert_exit label 0
assert_same_output live label
assert_restored label 2 1

section "a KV profile that does not hold together"
while read -r key value said; do
	run craft "$craft" "$work/base.medusa" "$work/kv.medusa" kv "$key" "$value"
	assert_exit craft 0
	run_restored kv "$work/kv.medusa"
	assert_refused_whole live kv "$said"
	run kv_inspect medusa-inspect "$work/kv.medusa"
	assert_exit kv_inspect 3
done <<'CASES'
blocks 18446744073709551615 18446744073709551615 blocks of
blocks 0 0 blocks of
blocks 1 1 blocks of
block_bytes 0 blocks of 0 bytes
kv_bytes 18446744073709551615 are not the 18446744073709551615 bytes
kv_bytes 0 are not the 0 bytes
peak 18446744073709551615 beside a peak of 18446744073709551615
baseline_free 18446744073709551615 that were free on a device
graph_bytes 18446744073709551615 graphs of 18446744073709551615 bytes
utilization_ppm 4294967295 utilization of 4294967295
CASES

section "what is compared at a cold start is left out, with right checksums"
run craft "$craft" "$work/base.medusa" "$work/left.medusa" fingerprint facts absent
assert_exit craft 0
run_restored left "$work/left.medusa"
assert_refused_whole live left "something is missing; capture again"

section "an artifact of an older Medusa, which did not have all the checks"
run craft "$craft" "$work/base.medusa" "$work/older.medusa" provenance checks absent
assert_exit craft 0
run_restored older "$work/older.medusa"
assert_refused_whole live older "the artifact does not say which checks were made of it, as one of an older Medusa; capture again"
run older_text medusa-inspect "$work/older.medusa"
assert_exit older_text 0
assert_contains "$work/older_text.out" "NOT RESTORED: the artifact does not say which checks were made of it"
run older_verify medusa-verify "$work/older.medusa" -- "${engine[@]}"
assert_exit older_verify 1
run base_text medusa-inspect --text "$work/base.medusa"
for check in $(sed -n 's/^MD_CHECK("\([a-z-]*\)",.*/\1/p' format/checks.def); do
	section "an artifact without the check $check"
	sed "s/\(checks=\"\|checks=.* \)$check\([ \"]\)/\1un$check\2/" "$work/base_text.out" >"$work/without.txt"
	run without medusa-inspect --from-text "$work/without.txt" -o "$work/without.medusa"
	assert_exit without 0
	run_restored without "$work/without.medusa"
	assert_refused_whole live without "the artifact was made without the check \"$check\""
	assert_contains "$work/without.err" "capture again"
done

# Whatever a file says: no command and no engine may crash or hang, and the engine computes what it computes.
survive() { # what was done to it; $work/crafted.medusa
	local tool
	for tool in "$work/crafted.medusa" "--json $work/crafted.medusa" "--text $work/crafted.medusa" \
		"--diff $work/crafted.medusa $work/base.medusa" "--diff --json $work/base.medusa $work/crafted.medusa"; do
		# shellcheck disable=SC2086
		run tool medusa-inspect $tool
		checks=$((checks + 1))
		[ "$code" -le 4 ] || fail "medusa-inspect $tool to end by itself ($1)" "$code; $(excerpt "$work/tool.err")"
	done
	run tool medusa-sign check "$work/crafted.medusa"
	checks=$((checks + 1))
	[ "$code" -le 4 ] || fail "medusa-sign check to end by itself ($1)" "$code; $(excerpt "$work/tool.err")"
	run_restored survivor "$work/crafted.medusa"
	checks=$((checks + 1))
	[ "$code" = 0 ] && cmp -s "$work/live.out" "$work/survivor.out" && [ "$(logits live)" = "$(logits survivor)" ] ||
		fail "the engine to compute what it does live ($1)" "$code; $(excerpt "$work/survivor.err")"
	run verified env "$(preload restore)" MEDUSA_ARTIFACT="$work/crafted.medusa" MEDUSA_VERIFY=1 \
		MEDUSA_VERIFY_REPORT="$work/verified.report" "${engine[@]}" --report "$work/verified.json"
	checks=$((checks + 1))
	[ "$code" = 0 ] && cmp -s "$work/live.out" "$work/verified.out" ||
		fail "an engine to be verified to compute what it does live ($1)" "$code; $(excerpt "$work/verified.err")"
}

section "each value absent or nil, alone and everywhere"
"$craft" list "$work/base.medusa" | sort -u >"$work/keys"
assert_at_least "keys in the sections" 60 "$(wc -l <"$work/keys")"
while read -r part key kind; do
	for value in absent nil; do
		[ $value = absent ] || [ "$kind" = text ] || continue
		"$craft" "$work/base.medusa" "$work/crafted.medusa" "$part" "$key" $value all 2>/dev/null || continue
		# Only what can be read differs from the others for an engine.
		medusa-inspect "$work/crafted.medusa" >/dev/null 2>"$work/tool.err"
		code=$?
		checks=$((checks + 1))
		[ $code -le 4 ] || fail "medusa-inspect to end by itself ($part $key $value)" "$code"
		[ $code = 0 ] && survive "$part $key $value"
	done
done <"$work/keys"
cp "$work/base.medusa" "$work/bare.medusa"
while read -r part key kind; do
	for value in nil absent; do
		"$craft" "$work/bare.medusa" "$work/crafted.medusa" "$part" "$key" $value all 2>/dev/null || continue
		medusa-inspect "$work/crafted.medusa" >/dev/null 2>&1 || continue
		cp "$work/crafted.medusa" "$work/bare.medusa"
	done
done <"$work/keys"
cp "$work/bare.medusa" "$work/crafted.medusa"
survive "all that may be absent"

# The columns of graphs are left to the fuzz targets: what a kernel is launched with is code.
section "each number at its bounds"
while read -r part key kind; do
	[ "$kind" = number ] && [ "$part" != graphs ] && [ "$part" != pointers ] || continue
	for value in 0 1 -1 4294967295 9223372036854775807 18446744073709551615; do
		"$craft" "$work/base.medusa" "$work/crafted.medusa" "$part" "$key" $value 2>/dev/null || continue
		medusa-inspect "$work/crafted.medusa" >/dev/null 2>&1
		code=$?
		checks=$((checks + 1))
		[ $code -le 4 ] || fail "medusa-inspect to end by itself ($part $key $value)" "$code"
		[ $code = 0 ] && survive "$part $key $value"
	done
done <"$work/keys"

finish
