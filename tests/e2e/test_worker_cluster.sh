#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Daemons of several nodes that are one cluster by a real etcd: where requests go, and what goes on while parts fail.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	echo "no etcd here (Debian: etcd-server etcd-client): skipped the cluster"
	exit 77
fi
section 'three nodes and one etcd'
mkdir "$work/one"
run nodes python3 tests/worker/cluster_nodes.py "$work/one"
assert_exit nodes 0
grep -A3 FAIL "$work/nodes.out"
section 'three members of etcd, TLS, and engines that compute'
mkdir "$work/three"
run members python3 tests/worker/cluster_members.py "$work/three" "$engine_binary"
assert_exit members 0
grep -A3 FAIL "$work/members.out"
finish
