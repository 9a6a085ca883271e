#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: kernels of one name in several images, and every way in which an image is loaded, found again, or lost.
. "$(dirname "$0")/engine_cases.sh"
subject=("$MEDUSA_BUILD/tests/subjects/identity_subject" "$images")
checked="verification: 4 passed, 0 failed, 0 not compared"
engine names memory "" memory 4 "$checked" "kernels: loaded 0 stored 6 triggered 0"
engine other_loaded "--no-verify memory" "" "memory second" 4 "kernels: loaded 2 stored 4 triggered 0"
for how in file mapped ptx linked library libfile; do
	engine $how.stored "--no-verify $how" "--resolve stored" $how 4
	engine $how.loaded "--no-verify $how" "--resolve loaded" "$how all" 4 "kernels: loaded 6 stored 0 triggered 0"
done
engine handles.stored "--no-verify library handles" "--resolve stored" "library handles" 4
engine handles.loaded "--no-verify library handles" "--resolve loaded" "library handles all" 4
engine twice.stored "--no-verify memory twice" "--resolve stored" "memory twice" 4
engine twice.loaded "--no-verify memory twice" "--resolve loaded" "memory twice all" 4
for how in memory library; do
	engine before.$how "--no-verify $how before" "" $how 4
	engine context.$how "--no-verify $how context" "" $how 4
done
for how in memory library; do
	engine during.$how "--no-verify $how during" "" "$how during" 3 "refused: (g, 1): kernel node at index 0: its module was unloaded after the launch was captured"
	host_only during.$how "a real driver may crash on stale handles"
done
engine after "memory after" "" memory 4 "$checked"
engine all_ways "--no-verify file unseen" "" "file second trigger" 4 "kernels: loaded 2 stored 3 triggered 1"
engine forced_loaded "--no-verify file unseen" "--resolve loaded" "file second trigger" 1 "no image loaded in this process holds it"
engine forced_stored "--no-verify file unseen" "--resolve stored" "file second trigger" 3 "graph 4 live kernel tail: its image is unknown"
engine forced_trigger "--no-verify file unseen" "--resolve trigger" "file all" 4
engine none_left "--no-verify file unseen" "" file 3 "graph 4 live kernel tail: its image is unknown"
engine ambiguous "--no-verify memory unseen decoy" "" "memory unseen decoy all" 3 "its image is unknown, and several loaded images hold a kernel of that name"

# What comes of a file stays there, and what has none is in the artifact.
looked_at() {
	case $1 in
	file.stored | mapped.stored | libfile.stored) grep -q '^image .*identity_first' captured.txt || fails "the artifact does not name the image's file" ;;
	esac
}

begin "$@"
prove "$images/identity_first.$suffix" "$images/arith.$suffix"
