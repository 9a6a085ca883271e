#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that prove to each other by certificates who they are, and a real etcd with TLS and users.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	echo "no etcd here (Debian: etcd-server etcd-client): skipped the security of a cluster"
	exit 77
fi
section 'certificates, users and strangers'
mkdir "$work/tls"
run tls python3 -B tests/worker/cluster_tls.py "$work/tls"
assert_exit tls 0
grep -A3 FAIL "$work/tls.out"
[ ! -s "$work/tls.err" ] || fail 'nothing on stderr' "$(tail -n 20 "$work/tls.err")"
finish
