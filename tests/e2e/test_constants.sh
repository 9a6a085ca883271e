#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Contents that warm-up made of the weights serve no other weights; what was shown not to depend on them serves all.
. "$(dirname "$0")/lib.sh"
subject=$MEDUSA_BUILD/tests/subjects/constants_subject
artifact=$work/captured.medusa
kernel=$MEDUSA_BUILD/tests/images/probe_kernels.host.so

# Whatever was restored, the output is what the engine computes without Medusa.
start() { # name, artifact, variables...
	local name=$1 from=$2
	shift 2
	run "${name}_live" env "$@" "$subject"
	run "$name" env "$@" medusa-restore "$from" -- "$subject"
	assert_exit "$name" 0
	assert_same_file "$work/${name}_live.out" "$work/$name.out"
}

restored() { # run, graphs that are; the others are live
	local name
	for name in plain packed table; do
		case " $2 " in
		*" $name "*) assert_count "$work/$1.err" "$name restored " 1 ;;
		*) assert_count "$work/$1.err" "$name live " 1 ;;
		esac
	done
}

other_weights() { # graph, binding
	printf 'contents of graph %s/1 were made with other weights: binding "%s" has another hash than in the capture' "$1" "$2"
}

section "captured twice with the same weights"
run captured medusa-capture -o "$artifact" -- "$subject"
assert_exit captured 0
assert_contains "$work/captured.err" "graphs with contents serve these weights alone: no second value was seen of 2 of 2 constant bindings, and 0 of 2 contents were found in one capture alone (--second"
assert_contains "$work/captured.err" "verification: 3 passed, 0 failed, 0 not compared"
run inspected medusa-inspect "$artifact"
assert_count "$work/inspected.out" "the same, or not known" 2
assert_contains "$work/inspected.out" "contents of 2 places were the same in both captures"
run twin medusa-inspect --text "$artifact"
assert_count "$work/twin.out" " hash=" 2
run again medusa-inspect --from-text "$work/twin.out" -o "$work/again.medusa"
assert_same_file "$artifact" "$work/again.medusa"
assert_equal "feature bits that a reader must know: arguments, constants, limits, places" 12480 "$(od -An -tu8 -j16 -N8 "$artifact" | tr -d ' ')"

for how in none "$kernel"; do
	export MEDUSA_PROBE_KERNEL=$how
	section "the same weights, hashed by ${how##*/}"
	start same "$artifact"
	restored same "plain packed table"
	assert_contains "$work/same.err" "hashed something"
	section "other weights, hashed by ${how##*/}"
	start other "$artifact" W=3
	restored other plain
	for graph in packed table; do
		assert_contains "$work/other.err" "$graph live $(other_weights $graph weights)"
		assert_count "$work/other.err" "graph $graph/1 is not restored: $(other_weights $graph weights)" 1
	done
	start embed "$artifact" E=3
	restored embed plain
	assert_contains "$work/embed.err" "$(other_weights packed embed)"
done
unset MEDUSA_PROBE_KERNEL

section "weights that are still on their way"
start late "$artifact" LOADS_LATE=1 HOSTCUDA_H2D_GBPS=0.01
restored late "plain packed table"

section "a stream capture in progress"
start capturing "$artifact" CAPTURES=1
restored capturing plain
assert_contains "$work/capturing.err" "packed live constant bindings must be hashed first, which waits for the context and would break the stream capture in progress"

section "verified with other weights"
run verified env W=3 medusa-verify "$artifact" -- "$subject"
assert_exit verified 1
assert_contains "$work/verified.out" "$(other_weights packed weights)"
assert_contains "$work/verified.out" "1 passed, 0 failed, 2 skipped"

section "a second capture with other weights"
run second medusa-capture -o "$work/second.medusa" --second "W=2 E=2 exec $subject" -- "$subject"
assert_exit second 1
assert_contains "$work/second.err" "refused: (packed, 1): unprovable: contents of allocation "
assert_contains "$work/second.err" "differs between the captures"
assert_lacks "$work/second.err" "serve these weights alone"
run second_inspected medusa-inspect "$work/second.medusa"
assert_count "$work/second_inspected.out" " another" 3 # and the line that says what it means
start shown "$work/second.medusa" W=3 E=3
restored shown "plain table"
assert_contains "$work/shown.err" "hashed nothing"

section "a second capture in which one constant is another"
run half medusa-capture -o "$work/half.medusa" --second "E=2 exec $subject" -- "$subject"
assert_exit half 0
assert_contains "$work/half.err" "no second value was seen of 1 of 2 constant bindings"
start half_embed "$work/half.medusa" E=3
restored half_embed "plain packed table"
start half_weights "$work/half.medusa" W=3
restored half_weights plain
assert_contains "$work/half_weights.err" "$(other_weights packed weights)"

section "one capture alone"
run single medusa-capture --single -o "$work/single.medusa" -- "$subject"
assert_exit single 0
assert_contains "$work/single.err" "and 2 of 2 contents were found in one capture alone"
start single_other "$work/single.medusa" W=3
restored single_other plain
run both medusa-capture --single --second true -o "$work/both.medusa" -- "$subject"
assert_exit both 2
assert_contains "$work/both.err" "--single and --second exclude each other"

section "a constant that is freed, or changes"
run freed env FREES=1 medusa-capture -o "$work/freed.medusa" -- "$subject"
assert_exit freed 1
for graph in packed table; do
	assert_contains "$work/freed.err" "refused: ($graph, 1): contents of private memory are saved with it, which may be made of binding \"freed\"; the binding was freed"
done
run changed env CHANGES=1 medusa-capture -o "$work/changed.medusa" -- "$subject"
assert_exit changed 1
assert_contains "$work/changed.err" "refused: (packed, 1): contents of private memory are saved with it, which may be made of binding \"embed\"; the binding changed while it was recorded, so it is not constant"
start changed_restored "$work/changed.medusa"
restored changed_restored plain

section "a constant that warm-up writes after graphs were asked for"
run fills env FILLS=1 medusa-capture -o "$work/fills.medusa" --accept-unvaried -- "$subject"
assert_exit fills 1
assert_contains "$work/fills.err" 'refused: (plain, 1): binding "weights" is constant and was written after the engine had asked for graphs, which a cold start does not repeat: write it before the first medusa_graph_get'
start fills_restored "$work/fills.medusa" FILLS=1
restored fills_restored ""

section "the same between later labels, where each look would take too long"
run late env FILLS_LATE=1 medusa-capture -o "$work/late.medusa" --accept-unvaried -- "$subject"
assert_exit late 1
assert_contains "$work/late.err" 'refused: (plain, 1): binding "weights" is constant and was written after the engine had asked for graphs'

section "a constant that has no memory yet when graphs are asked for"
run maps env MAPS_LATE=1 medusa-capture --no-verify -o "$work/maps.medusa" -- "$subject"
assert_exit maps 0
run maps_twin medusa-inspect --text "$work/maps.medusa"
assert_count "$work/maps_twin.out" " hash=" 3
start maps_restored "$work/maps.medusa" MAPS_LATE=1 # the constant cannot be hashed in time
restored maps_restored plain

section "an artifact that has no hash of its constants"
sed 's/ hash=[0-9a-f]* *$//; s/^\(binding .*\) hash=[0-9a-f]*/\1/' "$work/twin.out" >"$work/older.txt"
run older medusa-inspect --from-text "$work/older.txt" -o "$work/older.medusa"
assert_exit older 0
start older_restored "$work/older.medusa"
restored older_restored plain
assert_contains "$work/older_restored.err" 'packed live its contents may be made of binding "embed", of which the artifact has no hash: capture again'

section "an engine that binds nothing"
# It replays what it has captured once, on what is there.
run sequence env BINDS_NOTHING=1 medusa-capture -o "$work/sequence.medusa" --accept-unvaried -- "$subject"
assert_exit sequence 0
start sequence_same "$work/sequence.medusa" BINDS_NOTHING=1
restored sequence_same "plain packed table"
start sequence_other "$work/sequence.medusa" BINDS_NOTHING=1 W=3
restored sequence_other plain
assert_contains "$work/sequence_other.err" "$(other_weights packed @allocation.0)"
run sequence_twin medusa-inspect --text "$work/sequence.medusa"
sed '/^binding name="@allocation.0"/s/ hash=[0-9a-f]*//' "$work/sequence_twin.out" >"$work/fewer.txt"
run fewer medusa-inspect --from-text "$work/fewer.txt" -o "$work/fewer.medusa"
assert_exit fewer 0
start fewer_restored "$work/fewer.medusa" BINDS_NOTHING=1 W=3
restored fewer_restored plain
assert_contains "$work/fewer_restored.err" 'packed live its contents may be made of binding "@allocation.0", of which the artifact has no hash: capture again'
finish
