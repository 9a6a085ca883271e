#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bill of a cluster, by a real etcd: what clients were told, from whichever node, and a name for each node that lacks.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	echo "no etcd here (Debian: etcd-server etcd-client): skipped the bill of a cluster"
	exit 77
fi
section 'three nodes and their clients'
mkdir "$work/bill"
run bill python3 tests/worker/cluster_bill.py "$work/bill"
assert_exit bill 0
grep -A3 FAIL "$work/bill.out"
finish
