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
# It waits most of the time, for shares to run out.
mkdir "$work/tenants"
run_beside tenants python3 tests/worker/cluster_tenants.py "$work/tenants"
section 'three nodes and one etcd'
mkdir "$work/one"
run nodes python3 tests/worker/cluster_nodes.py "$work/one"
assert_exit nodes 0
grep -A3 FAIL "$work/nodes.out"
section 'prompts go where a prefix of them is cached'
mkdir "$work/prefixes"
run prefixes python3 tests/worker/cluster_prefixes.py "$work/prefixes"
assert_exit prefixes 0
grep -A3 FAIL "$work/prefixes.out"
section 'three members of etcd, TLS, and engines that compute'
mkdir "$work/three"
run members python3 tests/worker/cluster_members.py "$work/three" "$engine_binary"
assert_exit members 0
grep -A3 FAIL "$work/members.out"
section 'quotas and shares of tenants'
await_beside tenants
assert_exit tenants 0
grep -A3 FAIL "$work/tenants.out"
section 'the demo of a cluster'
mkdir "$work/demo"
# What other suites do meanwhile may make etcd late.
run demo env DEMO_RECOVERY_S=60 python3 tests/e2e/demo_cluster.py "$work/demo" "$engine_binary"
assert_exit demo 0
assert_contains "$work/demo.out" 'was answered once, with the same text'
assert_contains "$work/demo.out" 'all was as docs/cluster.md promises'
run left grep -lsxz "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" /proc/[0-9]*/environ
assert_equal 'processes that the demo has left' "" "$(for file in $(cat "$work/left.out"); do tr '\0' ' ' <"${file%environ}cmdline" 2>/dev/null | grep -a "$work/demo"; done)"
finish
