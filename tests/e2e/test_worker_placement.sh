#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nodes of a cluster elect a leader, who places models: minimum copies, failure domains, users' moves, and leaders that hang and die.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	echo "no etcd here (Debian: etcd-server etcd-client): skipped the cluster's placement"
	exit 77
fi
section 'three nodes, of which one leads'
run placement python3 tests/worker/cluster_placement.py "$work"
assert_exit placement 0
grep -A3 FAIL "$work/placement.out"
section 'GPUs, engines that fail, engines that start together'
mkdir "$work/loads"
run loads python3 tests/worker/cluster_loads.py "$work/loads"
assert_exit loads 0
grep -A3 FAIL "$work/loads.out"
section 'plans on a thread'
mkdir "$work/thread"
run plan_thread python3 tests/worker/cluster_plan_thread.py "$work/thread"
assert_exit plan_thread 0
grep -A3 FAIL "$work/plan_thread.out"
finish
