#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# medusa-worker among clients that mean harm, or are broken: others are served, and nothing is left behind.
. tests/e2e/lib.sh
section 'hostile clients'
run hostile python3 tests/worker/hostile_clients.py "$work"
assert_exit hostile 0
grep -A3 FAIL "$work/hostile.out"
finish
