#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An engine that chooses its kernels anew at each start, as max-autotune does: two captures that disagree get a third one.
. "$(dirname "$0")/lib.sh"
images=$MEDUSA_BUILD/tests/images
subject=$MEDUSA_BUILD/tests/subjects/outputs_subject
for choice in a b c; do # the same kernels in images of other bytes
	echo $choice >"$work/which"
	objcopy --add-section .choice="$work/which" "$images/restore_kernels.host.so" "$work/$choice.so" || exit 1
done

# CHOICES: the image of each start, the last one's from then on.
cat >"$work/engine.sh" <<'END'
starts=$(cat "$COUNT" 2>/dev/null || echo 0)
echo $((starts + 1)) >"$COUNT"
set -- $CHOICES
[ "$starts" -lt $# ] || starts=$(($# - 1))
shift "$starts"
exec "$SUBJECT" "$IMAGES/$1.so"
END
chosen() { # name, choices, options...
	local name=$1 choices=$2
	shift 2
	rm -f "$work/count"
	run "$name" env CHOICES="$choices" COUNT="$work/count" SUBJECT="$subject" IMAGES="$work" \
		medusa-capture -o "$work/$name.medusa" "$@" -- bash "$work/engine.sh"
}

section "captures that agree need no third one"
chosen same "a"
assert_exit same 0
assert_equal "starts" 3 "$(cat "$work/count")"
assert_lacks "$work/same.err" "capture 3"

section "the third agrees with the first"
chosen first "a b a"
assert_exit first 0
assert_equal "starts" 4 "$(cat "$work/count")"
assert_contains "$work/first.err" "analysis: 0 graphs, 3 refused"
assert_contains "$work/first.err" "the captures disagree about the kernels or nodes of 3 graphs: a third capture may agree with one of them"
assert_contains "$work/first.err" "using captures 1 and 3: 3 graphs, 0 refused"
assert_contains "$work/first.err" "verification: 3 passed, 0 failed, 0 not compared"
assert_lacks "$work/first.err" "TORCHINDUCTOR_CACHE_DIR"

section "the third agrees with the second, whose addresses are not its own"
chosen second "b a" --keep-traces
assert_exit second 0
assert_contains "$work/second.err" "using captures 2 and 3: 3 graphs, 0 refused"
assert_contains "$work/second.err" "verification: 3 passed, 0 failed, 0 not compared"
for number in 1 2 3; do assert_file "$work/second.$number.mtrace"; done
run live "$subject" "$work/a.so"
run restored medusa-restore "$work/second.medusa" -- "$subject" "$work/a.so"
assert_exit restored 0
assert_count "$work/restored.err" " restored 0" 3
assert_same_file "$work/live.out" "$work/restored.out"

section "a cold start that chooses otherwise still gets the graphs that were proven, with their own images"
run live_b "$subject" "$work/b.so"
run restored_b medusa-restore "$work/second.medusa" -- "$subject" "$work/b.so"
assert_exit restored_b 0
assert_count "$work/restored_b.err" " restored 0" 3
assert_same_file "$work/live_b.out" "$work/restored_b.out"

section "none agree: refused by name, with a way"
chosen none "a b c"
assert_exit none 1
assert_contains "$work/none.err" "using captures 1 and 2: 0 graphs, 3 refused"
assert_contains "$work/none.err" "comes from different images or has another parameter layout"
assert_count "$work/none.err" "set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR, here and at a cold start" 1

section "an engine that fails in its third start"
rm -f "$work/count"
cat >"$work/dies.sh" <<END
[ "\$(cat "$work/count" 2>/dev/null || echo 0)" -ge 2 ] && exit 9
. "$work/engine.sh"
END
run dies env CHOICES="a b a" COUNT="$work/count" SUBJECT="$subject" IMAGES="$work" \
	medusa-capture -o "$work/dies.medusa" -- bash "$work/dies.sh"
assert_exit dies 4
assert_no_file "$work/dies.medusa"
finish
