#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: an engine that binds nothing, linked with libcuda; its allocations are matched by order and size, or all is live.
. "$(dirname "$0")/engine_cases.sh"
subject=("$MEDUSA_BUILD/tests/subjects/sequence_subject" "$images/restore_kernels.$suffix")
checked="verification: 3 passed, 0 failed, 0 not compared"
engine whole "" "" "" 3 "$checked"
engine late "" "" late 3
engine extra --no-verify "" extra 0 "allocation 0: artifact has 768 bytes, this process 2304: the allocation sequences differ from here on"
engine bigger --no-verify "" bigger 0 "allocation 0: artifact has 768 bytes, this process 1024: the allocation sequences differ from here on"
engine gone --no-verify "" gone 0 "allocation 3 (768 bytes) was freed before the engine asked for a graph"
engine named --no-verify "" named 3 "names that begin with @ are Medusa's own"

looked_at() {
	[ "$1" != whole ] || verified 3 "${subject[@]}"
}

begin "$@"
prove "${subject[@]}"
