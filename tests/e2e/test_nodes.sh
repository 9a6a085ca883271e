#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every kind of node, edge, attribute and parameter that a graph can hold: restored as it was, or refused by name.
. "$(dirname "$0")/lib.sh"
image=$MEDUSA_BUILD/tests/images/nodes_kernels.host.so
subject=("$MEDUSA_BUILD/tests/subjects/nodes_subject" "$image")
artifact=$work/captured.medusa
export HOSTCUDA_SETTABLE=11 # for the one graph on whose node an engine sets what real drivers let no one set

assert_restored() { # graph, what the device was given for it
	section "$1"
	assert_count "$work/restored.err" "$1 restored" 1
	assert_contains "$work/verified.xml" "classname=\"$1\""
	assert_contains "$work/restored.graphs" "$2"
}

assert_refused() { # graph, why
	section "$1"
	assert_contains "$work/inspected.out" "$1/1: $2"
	assert_count "$work/restored.err" "$1 live: graph $1/1 was not materialized: $2" 1
}

in_twin() { # graph: its part of the artifact's text
	sed -n "/^graph label=\"$1\"/,/^graph label/p" "$work/twin.out" | sed '1b;/^graph label/d' >"$work/$1.part"
	printf '%s' "$work/$1.part"
}

section "captured"
run live env HOSTCUDA_GRAPHS="$work/live.graphs" "${subject[@]}"
assert_exit live 0
# A node's preferred cluster cannot be read back: it is taken from the launch.
run captured medusa-capture --vary '*' --no-verify -o "$artifact" -- "${subject[@]}"
assert_exit captured 1 # as graphs are left out
assert_lacks "$work/captured.err" "not labelled"
run inspected medusa-inspect "$artifact"
run twin medusa-inspect --text "$artifact"
run verified medusa-verify "$artifact" --junit "$work/verified.xml" -- "${subject[@]}"
assert_exit verified 0
assert_contains "$work/verified.xml" 'tests="43" failures="0" errors="0" skipped="0"'

section "restored"
run restored env HOSTCUDA_GRAPHS="$work/restored.graphs" medusa-restore "$artifact" -- "${subject[@]}"
assert_exit restored 0
assert_same_file "$work/live.out" "$work/restored.out"
# Nodes, attributes, edges and their data as the device was given them, whoever made the graph.
sort "$work/live.graphs" >"$work/live.sorted"
sort "$work/restored.graphs" >"$work/restored.sorted"
# A node that the engine switches off is made as an empty one.
comm -13 "$work/live.sorted" "$work/restored.sorted" | grep -v "^ 2 nodes \[0 type 5\] " >"$work/changed"
assert_equal "graphs that are not as they were" "" "$(cat "$work/changed")"

section "each graph"
restored() { assert_restored "$@"; }
refused() { assert_refused "$@"; }
told() { assert_contains "$(in_twin "$1")" "$2"; }
either() { :; }
. tests/e2e/nodes_cases.sh

section "what the words of nodes_cases.sh do not say"
assert_contains "$work/restored.graphs" "attribute 5 02000000"
assert_equal "nodes with the copied attribute" 2 "$(grep -c 'attribute id=11' "$(in_twin copied_attributes)")"
assert_equal "attributes of the node before" 0 "$(grep -c 'attribute id=11' "$(in_twin reused_node)")"
assert_equal "attributes of nodes that failed" 0 "$(grep -c 'attribute id=11' "$(in_twin after_failure)")"
assert_contains "$work/restored.graphs" "attribute 10 01000000"
run untold env HOSTCUDA_UNREADABLE=13 medusa-capture --vary '*' --single --no-verify -o "$work/untold.medusa" -- "${subject[@]}" updatable streams
assert_contains "$work/untold.err" "refused: (updatable, 1): kernel node at index 0 can be updated from the device"
assert_contains "$work/twin.out" "pointer node=none at=0 alloc=0 kind=1 offset=0"

section "nodes that no device here has"
type=8
for name in "semaphore signal" "semaphore wait" "memory allocation" "memory free" "batch memory operation" conditional unknown; do
	run "type_$type" env HOSTCUDA_EMPTY_TYPE=$type medusa-capture --vary '*' --single --no-verify -o "$work/type.medusa" -- "${subject[@]}" empty streams
	assert_contains "$work/type_$type.err" "refused: (empty, 1): $name node at index 3"
	assert_contains "$work/type_$type.err" "analysis: 1 graphs, 1 refused"
	type=$((type + 1))
done

section "page-locked memory that the engine does not hand over"
run forgets env SUBJECT_FORGETS_HOST=1 timeout 20 medusa-restore "$artifact" -- "${subject[@]}" host_pointer
assert_contains "$work/forgets.err" 'host_pointer live: '
assert_contains "$work/forgets.err" 'staged_in'
run elsewhere env SUBJECT_STAGES_ON_DEVICE=1 medusa-restore "$artifact" -- "${subject[@]}" host_copy window
assert_contains "$work/elsewhere.err" "host_copy live: bindings: binding staged_in: artifact has page-locked host memory, the engine's memory is not page-locked"
assert_contains "$work/elsewhere.err" "window restored"

section "a driver that lacks an entry point which only some graphs need"
late=(programmatic streams tensor_map)
run late "${subject[@]}" "${late[@]}"
run no_edge_data env "$(driver_without cuGraphAddDependencies_v2)" medusa-restore "$artifact" -- "${subject[@]}" "${late[@]}"
assert_exit no_edge_data 0
assert_same_file "$work/late.out" "$work/no_edge_data.out"
assert_contains "$work/no_edge_data.err" "programmatic live: edges: it has programmatic edges, and this driver has no cuGraphAddDependencies_v2"
assert_contains "$work/no_edge_data.err" "streams restored"
run no_edges_read env "$(driver_without cuGraphGetEdges_v2)" medusa-capture --vary '*' --single --no-verify -o "$work/no_edges_read.medusa" -- "${subject[@]}" "${late[@]}"
assert_same_file "$work/late.out" "$work/no_edges_read.out"
assert_contains "$work/no_edges_read.err" "refused: (programmatic, 1): "
assert_lacks "$work/no_edges_read.err" "refused: (streams, 1): "
run no_edges_told env "$(driver_without cuGraphGetEdges_v2)" medusa-restore "$artifact" -- "${subject[@]}" "${late[@]}"
assert_same_file "$work/late.out" "$work/no_edges_told.out"
assert_contains "$work/no_edges_told.err" "programmatic live: edges: it has programmatic edges, and this driver has no cuGraphGetEdges_v2"
assert_contains "$work/no_edges_told.err" "streams restored"
run no_launch env "$(driver_without cuStreamBeginCaptureToGraph)" medusa-restore "$artifact" -- "${subject[@]}" "${late[@]}" cloned
assert_contains "$work/no_launch.err" "cloned live: build: node 0: kernel nodes_step: cuStreamBeginCaptureToGraph: this CUDA driver does not have it"
assert_contains "$work/no_launch.err" "streams restored"
run no_replace env "$(driver_without cuTensorMapReplaceAddress)" medusa-restore "$artifact" -- "${subject[@]}" "${late[@]}"
assert_same_file "$work/late.out" "$work/no_replace.out"
assert_contains "$work/no_replace.err" "tensor_map live: patch: node 0, byte 0: cuTensorMapReplaceAddress: this CUDA driver does not have it"
assert_contains "$work/no_replace.err" "streams restored"

section "a driver with other edges"
run other_edges env HOSTCUDA_EDGE_DATA=ignored medusa-restore "$artifact" -- "${subject[@]}" "${late[@]}"
assert_same_file "$work/late.out" "$work/other_edges.out"
assert_contains "$work/other_edges.err" "programmatic live: edges: edge from node 0 to node 1: artifact has ports 1 and 0, type 1, the driver has made ports 0 and 0, type 0 of it"
assert_contains "$work/other_edges.err" "streams restored"

section "a driver that makes something else of a node than it is told"
altered() { # what is altered, graph, what verification says
	run altered env HOSTCUDA_NODE_FAULT=$1 medusa-verify "$artifact" -- "${subject[@]}" "$2"
	assert_contains "$work/altered.out" "edges: $3"
}
altered attribute priority "node 0: kernel nodes_step: attribute 8, byte 0 of 4: artifact has 0xfd, the driver has made 0x00 of it"
altered attribute window "node 0: kernel nodes_step: attribute 1, byte 0 of 28: artifact has 0x40, the driver has made 0x00 of it"
altered function function_state "node 0: kernel nodes_told: carveout of the function: artifact has 60, the driver -1"
altered shared tensor_map "node 0: kernel nodes_mapped: bytes of shared memory: artifact has 0, the driver has made 16 of it"
altered grid streams "node 1: kernel nodes_step: grid z: artifact has 1, the driver has made 2 of it"
altered parameter in_struct "node 0: kernel nodes_range: parameter 0, byte 0 of "
altered memset nested "node 3: memset: width: artifact has 64, the driver has made 63 of it"
altered memcpy host_copy "node 0: copy: width: artifact has 256, the driver has made 255 of it"
altered event events "node 2: event 0: the driver has made another one of it"
altered empty empty "number of nodes: artifact has 4, the driver has made 5 of it"
altered edge streams "artifact has 6 edges, the driver has 5"
run other_type env HOSTCUDA_EMPTY_TYPE=8 medusa-verify "$artifact" -- "${subject[@]}" empty
assert_contains "$work/other_type.out" "edges: node 3: type: artifact has 5, the driver has made 8 of it"
for name in attribute shared function; do # replays show nothing: only what is read back does
	run equal_outputs env HOSTCUDA_NODE_FAULT=$name medusa-restore "$artifact" -- "${subject[@]}"
	assert_same_file "$work/live.out" "$work/equal_outputs.out"
	assert_contains "$work/equal_outputs.err" "priority restored"
done
run unread env HOSTCUDA_NODE_FAULT=attribute MEDUSA_VERIFY_READ_BACK=0 medusa-verify "$artifact" -- "${subject[@]}" priority
assert_contains "$work/unread.out" "1 passed, 0 failed"
assert_contains "$work/unread.err" "restored graphs are not read back from the driver (MEDUSA_VERIFY_READ_BACK=0)"
run proven env HOSTCUDA_NODE_FAULT=attribute medusa-capture --vary '*' -o "$work/proven.medusa" -- "${subject[@]}" priority cloned
assert_contains "$work/proven.err" "verification: 0 passed, 2 failed, 0 not compared"
assert_contains "$work/proven.err" "refused: (priority, 1): verification failed: "

section "a driver that cannot tell what it has made"
told=(priority events streams)
run told medusa-capture --vary '*' --no-verify -o "$work/told.medusa" -- "${subject[@]}" "${told[@]}"
run untold_attribute env HOSTCUDA_UNREADABLE=8 medusa-verify "$work/told.medusa" -- "${subject[@]}" "${told[@]}"
assert_exit untold_attribute 1
assert_contains "$work/untold_attribute.out" "0 passed, 0 failed, 3 skipped"
assert_contains "$work/untold_attribute.out" "attribute 8 cannot be read back: cuGraphKernelNodeGetAttribute: CUDA_ERROR_INVALID_VALUE"
run untold_event env "$(driver_without cuGraphEventWaitNodeGetEvent)" medusa-verify "$work/told.medusa" -- "${subject[@]}" "${told[@]}"
assert_exit untold_event 1
assert_contains "$work/untold_event.out" "2 passed, 0 failed, 1 skipped"
assert_contains "$work/untold_event.out" "node 3: it cannot be read back: this driver has no cuGraphEventWaitNodeGetEvent"
run plain_edges env "$(driver_without cuGraphGetEdges_v2)" medusa-verify "$work/told.medusa" -- "${subject[@]}" "${told[@]}"
assert_exit plain_edges 0

section "driver calls that only these graphs need fail once"
few=(nested events host_copy window function_state tensor_map tensor_map_in_memory programmatic)
run few "${subject[@]}" "${few[@]}"
for name in cuEventCreate cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph cuGraphAddEventRecordNode \
	cuGraphAddEventWaitNode cuGraphKernelNodeSetAttribute cuStreamBeginCaptureToGraph cuFuncSetAttribute \
	cuTensorMapReplaceAddress cuPointerGetAttribute cuGraphAddDependencies_v2 cuGraphGetEdges_v2; do
	for nth in 1 2; do
		[ $name != cuEventCreate ] || nth=$((nth + 9)) # behind the engine's own
		run fault env HOSTCUDA_FAULT="$name:$nth:INVALID_VALUE" medusa-restore "$artifact" -- "${subject[@]}" "${few[@]}"
		assert_exit fault 0
		assert_same_file "$work/few.out" "$work/fault.out"
		assert_equal "bytes held after call $nth of $name failed" "" "$(grep '^held=[1-9]' "$work/fault.err")"
		case $name:$nth in
		cuFuncSetAttribute:*) assert_contains "$work/fault.err" "function_state restored" ;; # from another image
		cuPointerGetAttribute:1) assert_contains "$work/fault.err" "is not restored: bindings: binding staged_in: " ;;
		*:1 | *:10) assert_contains "$work/fault.err" "$name: CUDA_ERROR_INVALID_VALUE" ;;
		esac
	done
done

section "a launch into a graph fails, or its capture does not end at first" # before the engine captures anything itself
run cloned "${subject[@]}" cloned
for name in cuLaunchKernelEx cuStreamEndCapture; do
	run ended env HOSTCUDA_FAULT="$name:1:INVALID_VALUE" medusa-restore "$artifact" -- "${subject[@]}" cloned
	assert_exit ended 0
	assert_same_file "$work/cloned.out" "$work/ended.out"
	assert_contains "$work/ended.err" "$name: CUDA_ERROR_INVALID_VALUE"
	assert_lacks "$work/ended.err" "CUDA_ERROR_ILLEGAL_STATE"
	assert_lacks "$work/ended.err" "STREAM_CAPTURE"
done

section "inspected"
run nested medusa-inspect --graph nested/1 "$artifact"
assert_contains "$work/nested.out" "child graph  the next 12 nodes"
run events medusa-inspect --graph events/1 "$artifact"
assert_contains "$work/events.out" "    3  event wait  event 0"
run window medusa-inspect --graph window/1 "$artifact"
assert_contains "$work/window.out" "access policy window -> in+64"

section "a tensor map across two of the blocks in which memory is searched for addresses"
for kernel in none "$MEDUSA_BUILD/tests/images/probe_kernels.host.so"; do
	for at in 163776 4194112; do # at the end of 4 KiB, and of what the host looks at at a time
		export MAP_AT=$at MEDUSA_PROBE_KERNEL=$kernel
		run across medusa-capture -o "$work/across.medusa" -- "${subject[@]}" tensor_map_in_memory
		assert_exit across 0
		run across_live "${subject[@]}" tensor_map_in_memory
		run across_restored medusa-restore "$work/across.medusa" -- "${subject[@]}" tensor_map_in_memory
		assert_contains "$work/across_restored.err" "tensor_map_in_memory restored"
		assert_same_file "$work/across_live.out" "$work/across_restored.out"
	done
done
unset MAP_AT MEDUSA_PROBE_KERNEL

section "an older reader"
required() { od -An -tu8 -j16 -N8 "$1" | tr -d ' '; } # feature bits
assert_equal "required features of nodes that it does not know, arguments, limits and places" 12357 "$(required "$artifact")"
for name in child events window streams; do
	run "single_$name" medusa-capture --vary '*' --single --no-verify -o "$work/$name.medusa" -- "${subject[@]}" $name
done
assert_equal "of child graphs" 12357 "$(required "$work/child.medusa")"
assert_equal "of events" 12357 "$(required "$work/events.medusa")"
assert_equal "of windows" 12357 "$(required "$work/window.medusa")"
assert_equal "of arguments, limits and places alone" 12353 "$(required "$work/streams.medusa")"

section "the text twin, and what it must not say"
run again medusa-inspect --from-text "$work/twin.out" -o "$work/again.medusa"
assert_exit again 0
assert_same_file "$artifact" "$work/again.medusa"
refused_twin() { # name, sed program, reason
	sed "$2" "$work/twin.out" >"$work/$1.txt"
	run "$1" medusa-inspect --from-text "$work/$1.txt" -o "$work/$1.medusa"
	assert_contains "$work/$1.err" "$3"
	assert_no_file "$work/$1.medusa"
}
refused_twin too_far '0,/node type="child" nodes=3/s//node type="child" nodes=300/' "child graphs reach too far"
refused_twin no_event 's/node type="event_wait" event=0/node type="event_wait" event=65541/' "event 65541, of a graph of 5 nodes"
refused_twin no_window 's/attribute id=1 /attribute id=8 /' "byte 65536 of node 0 of 2 is outside"
refused_twin other_graph '/^graph label="child"/,/^edge/s/edge from=[0-9]* to=[0-9]*/edge from=1 to=4/' "in another graph"
finish
