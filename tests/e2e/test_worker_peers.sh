#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker passes requests on to other nodes, and names mean what selectors and profiles say.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'peers, selectors and profiles'
run peers python3 tests/worker/peer_nodes.py "$work"
assert_exit peers 0
grep -A3 FAIL "$work/peers.out"
section 'names of peers that are looked up'
if unshare -rm true 2>/dev/null; then
	mkdir "$work/names"
	run names unshare -rm python3 tests/worker/peer_names.py "$work/names"
	assert_exit names 0
	grep -A3 FAIL "$work/names.out"
else
	echo "not checked here, as user namespaces cannot be made: names that are looked up"
fi
finish
