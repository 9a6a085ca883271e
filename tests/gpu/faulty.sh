#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: tests that fault or hang cost their graph alone, and words in doubt are noise or refused by name.
. "$(dirname "$0")/cases.sh"
faulty=("$MEDUSA_BUILD/tests/subjects/faulty_subject" "$images/faulty_kernels.$suffix")
doubt=("$MEDUSA_BUILD/tests/subjects/doubt_subject" "$images/doubt_kernels.$suffix")
export MEDUSA_REPLAY_DEADLINE=5

# Whatever it refuses, the engine computes what it computes without Medusa.
chain() { # graphs that are restored, text on stderr of the capture, options..., --, command...
	local count=$1 text=$2 found options=()
	shift 2
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	live "$@"
	captured 1 "${options[@]}" -- "$@"
	grep -qF -- "$text" captured.err || fails "not said: $text; $(tail -n 1 captured.err)"
	restored -- "$@"
	found=$(grep -cE '^graph [0-9]+ (is )?restored' restored.err)
	[ "$found" = "$count" ] || fails "$found graphs restored, not $count"
	passes "$count graphs restored; $text"
}

one() { # name
	case $1 in
	fault) chain 2 "graph step/2: the poison test broke the engine: " -- "${faulty[@]}" plain fault plain ;;
	hang) chain 1 "graph step/1: the poison test hung: " -- "${faulty[@]}" hang slow ;;
	proof_fault) export MEDUSA_PROBE=0; chain 1 "graph step/1: the proof broke the engine: " -- "${faulty[@]}" fault plain ;;
	proof_hang) export MEDUSA_PROBE=0; chain 1 "graph step/2: the proof hung: " -- "${faulty[@]}" plain hang ;;
	swap) chain 2 "verification: 2 passed, 0 failed, 0 not compared" -- "${doubt[@]}" swap ;;
	stale) chain 3 "verification: 3 passed, 0 failed, 0 not compared" -- "${doubt[@]}" keep ignored ;;
	peeked) chain 2 "refused: (step, 3): verification failed: not proven to be noise: node 0" -- "${doubt[@]}" keep peeked ;;
	touched) chain 3 "graph step/3: the proof broke the engine: node 0" -- "${doubt[@]}" keep touched ignored ;;
	esac
}

begin "$@"
built "${faulty[@]}" "${doubt[@]}"
cases fault hang proof_fault proof_hang swap stale peeked touched
finish
