#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kernels of one name in several images: every way in which an image is loaded, found again, or lost.
. "$(dirname "$0")/lib.sh"
images=$MEDUSA_BUILD/tests/images
subject=("$MEDUSA_BUILD/tests/subjects/identity_subject" "$images")

captured() { # name, what medusa-capture is told or -, words of the engine...
	local name=$1 option=$2
	shift 2
	[ "$option" != - ] || option=
	run "$name.live" "${subject[@]}" "$@"
	assert_exit "$name.live" 0
	run "$name" medusa-capture -o "$work/$name.medusa" --vary '*' $option -- "${subject[@]}" "$@"
}

restored() { # name of the run, of the capture, order of resolution or -, graphs that are restored, words of the engine...
	local name=$1 from=$2 order=$3 count=$4
	shift 4
	[ "$order" = - ] && order= || order="--resolve $order"
	run "$name" medusa-restore "$work/$from.medusa" $order -- "${subject[@]}" "$@"
	assert_exit "$name" 0
	assert_same_file "$work/$from.live.out" "$work/$name.out"
	assert_count "$work/$name.err" " restored " "$count"
}

in_images() { # name, expression over the list of images: True if all is as it should be
	medusa-inspect --json "$work/$1.medusa" >"$work/$1.json"
	assert_equal "images of $1: $2" True "$(python3 -c "import json, sys
images = json.load(open(sys.argv[1]))['images']
print($2)" "$work/$1.json")"
}

section "two images with kernels of the same names and layouts"
captured memory - memory
assert_exit memory 0
assert_contains "$work/memory.err" "verification: 4 passed, 0 failed, 0 not compared"
restored names memory - 4 memory
assert_contains "$work/names.err" "kernels: loaded 0 stored 6 triggered 0"
restored other_loaded memory - 4 memory second # the other image is there first, under the same names
assert_contains "$work/other_loaded.err" "kernels: loaded 2 stored 4 triggered 0"

for way in file mapped ptx linked library libfile; do
	section "an image loaded by: $way"
	captured $way --no-verify $way
	assert_exit $way 0
	case $way in
	file | mapped | libfile) in_images $way "any(i['path'] and i['path'].endswith('identity_first.host.so') and not i['stored'] for i in images)" ;;
	*) in_images $way "all(not i['path'] and i['stored'] for i in images)" ;;
	esac
	restored $way.stored $way stored 4 $way
	restored $way.loaded $way loaded 4 $way all
	assert_contains "$work/$way.loaded.err" "kernels: loaded 6 stored 0 triggered 0"
done

for way in compiled libcompiled; do
	section "PTX that is compiled with options: $way"
	captured $way --no-verify $way
	assert_exit $way 0
	restored $way.stored $way stored 4 $way
	restored $way.loaded $way loaded 4 $way all
	restored $way.other $way loaded 1 $way all limited # the engine's own copy is another now
	captured $way.limited --no-verify $way limited
	assert_exit $way.limited 1
	for graph in 1 3 4; do
		assert_count "$work/$way.limited.err" "refused: (g, $graph): kernel " 1
	done
	assert_count "$work/$way.limited.err" "its PTX was loaded with the JIT option CU_JIT_MAX_REGISTERS, which a restore would not give: link it to a cubin with that option (cuLinkCreate), and load the cubin" 3
	restored $way.limited.cold $way.limited - 1 $way limited
done

section "a library's kernels launched by their own handles"
captured handles --no-verify library handles
assert_exit handles 0
in_images handles "all(i['stored'] for i in images) and len(images) == 4"
restored handles.stored handles stored 4 library handles
restored handles.loaded handles loaded 4 library handles all

section "one image loaded twice"
captured twice --no-verify memory twice
assert_exit twice 0
in_images twice "len(images) == 4 and len({i['hash'] for i in images}) == 4"
restored twice.stored twice stored 4 memory twice
restored twice.loaded twice loaded 4 memory twice all

for how in memory library; do
	section "an image unloaded before the capture, and its handles given again: $how"
	captured before.$how --no-verify $how before
	assert_exit before.$how 0
	assert_count "$work/before.$how.err" "handle given again: 1" 2
	restored before.$how.restored before.$how - 4 $how

	section "the same, with its context: $how"
	captured context.$how --no-verify $how context
	assert_exit context.$how 0
	assert_count "$work/context.$how.err" "handle given again: 1" 2
	restored context.$how.restored context.$how - 4 $how

	section "an image unloaded while a graph is captured, and its handles given again: $how"
	captured during.$how --no-verify $how during
	assert_exit during.$how 1
	assert_contains "$work/during.$how.err" "refused: (g, 1): kernel node at index 0: its module was unloaded after the launch was captured"
	restored during.$how.restored during.$how - 3 $how during
done

section "an image unloaded once its graphs were captured"
captured after - memory after
assert_exit after 0
assert_contains "$work/after.err" "verification: 4 passed, 0 failed, 0 not compared"
restored after.restored after - 4 memory

section "verifications side by side" # the background must not take away the images that they are at work with
for i in 1 2 3; do
	for k in $(seq 10); do
		medusa-verify "$work/after.medusa" -- "${subject[@]}" memory after >"$work/beside.$i.$k.out" 2>&1
	done &
done
wait
assert_equal "verifications that found something" "" "$(grep -L '^4 passed, 0 failed, 0 skipped' "$work"/beside.*.out)"

section "every way of resolution in one graph"
captured mixed - file unseen trigger
assert_exit mixed 0
restored all_ways mixed - 4 file second trigger
assert_contains "$work/all_ways.err" "kernels: loaded 2 stored 3 triggered 1"

section "a way that is forced and does not lead there"
restored forced_loaded mixed loaded 1 file second trigger
assert_contains "$work/forced_loaded.err" "graph 1 live kernel"
assert_contains "$work/forced_loaded.err" "no image loaded in this process holds it"
restored forced_stored mixed stored 3 file second trigger
assert_contains "$work/forced_stored.err" "graph 4 live kernel tail: its image is unknown"
restored forced_trigger mixed trigger 4 file all

section "no way left"
restored none_left mixed - 3 file
assert_contains "$work/none_left.err" "graph 4 live kernel tail: its image is unknown"

section "an image that is not known, and two that have a kernel of that name"
captured decoy --no-verify memory unseen decoy
assert_exit decoy 0
restored ambiguous decoy - 3 memory unseen decoy all
assert_contains "$work/ambiguous.err" "graph 4 live kernel tail: its image is unknown, and several loaded images hold a kernel of that name"
finish
