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
finish
