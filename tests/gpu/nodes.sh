#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a real GPU: every kind of node, edge, attribute and parameter of a graph is restored as it was, or refused by name.
. "$(dirname "$0")/graph_cases.sh"
subject=("$MEDUSA_BUILD/tests/subjects/nodes_subject" "$images/nodes_kernels.$suffix")
listed tests/e2e/nodes_cases.sh
begin "$@"
prove
