#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Warm templates: engines that medusa-worker has forked by a process that has done the imports.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
section 'engines from templates'
run template python3 tests/worker/template_engines.py "$work"
assert_exit template 0
grep -A3 FAIL "$work/template.out"
finish
