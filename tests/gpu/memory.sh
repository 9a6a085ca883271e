#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: each way to come by memory, and what may lie in it, is restored as it was, or refused by name.
. "$(dirname "$0")/graph_cases.sh"
subject=("$MEDUSA_BUILD/tests/subjects/memory_subject" "$images/memory_kernels.$suffix")
listed tests/e2e/memory_cases.sh
alone='^reused' # beside others it is left to chance whether an address is given again
begin "$@"
prove
