#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Switches and numbers of the environment, in real commands: what is neither on nor off is named, and is not obeyed.
. "$(dirname "$0")/lib.sh"
subject=("$MEDUSA_BUILD/tests/subjects/assumptions_subject" --value 5)
switch="one of 1, on, true, yes, 0, off, false, no is wanted"

section "what requires more is on when it is unreadable"
run single medusa-capture --single -o "$work/single.medusa" -- "${subject[@]}"
restored() { # value, text
	run "proof.$1" env MEDUSA_REQUIRE_PROOF="$1" medusa-restore "$work/single.medusa" -- "${subject[@]}"
	assert_exit "proof.$1" 0
	assert_contains "$work/proof.$1.err" "constant $2"
}
for off in "" 0 off False NO; do restored "$off" restored; done
for on in 1 ON true Yes; do
	restored $on live
	assert_lacks "$work/proof.$on.err" "is wanted"
done
restored ture live
assert_count "$work/proof.ture.err" "MEDUSA_REQUIRE_PROOF=ture: $switch; graphs of one capture only are captured live" 1

section "what checks less is off when it is unreadable"
for value in 0 off; do
	run probe.$value env MEDUSA_PROBE=$value MEDUSA_TRACE="$work/$value.mtrace" "$(preload capture)" "${subject[@]}"
	assert_lacks "$work/probe.$value.err" "is wanted"
done
run probe.odd env MEDUSA_PROBE=of MEDUSA_PROBE_LIMIT=-1 MEDUSA_TRACE="$work/odd.mtrace" "$(preload capture)" "${subject[@]}"
assert_contains "$work/probe.odd.err" "MEDUSA_PROBE=of: $switch; permanent contents are tested"
assert_contains "$work/probe.odd.err" "MEDUSA_PROBE_LIMIT=-1: a whole number from 0 on is wanted; 4294967296 is used"
run unvaried env MEDUSA_VERIFY_READ_BACK=maybe medusa-verify "$work/single.medusa" -- "${subject[@]}"
assert_contains "$work/unvaried.err" "MEDUSA_VERIFY_READ_BACK=maybe: $switch; they are read back"
assert_lacks "$work/unvaried.err" "are not read back"

section "words"
run words env MEDUSA_LOG=loud MEDUSA_UNTIL=graphs=3x MEDUSA_STORE_IMAGES=some MEDUSA_TRACE="$work/words.mtrace" "$(preload capture)" "${subject[@]}"
assert_count "$work/words.err" "MEDUSA_LOG=loud: one of error, warn, info, debug is wanted; warn is used" 1
assert_contains "$work/words.err" "MEDUSA_UNTIL=graphs=3x: one of exit, graphs=N, mark=NAME is wanted; recording goes on until the exit"
assert_contains "$work/words.err" "MEDUSA_STORE_IMAGES=some: one of all, anonymous, none is wanted; images that lie in no file are stored"
finish
