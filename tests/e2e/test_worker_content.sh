#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Files of models travel between nodes by their hash, by a real etcd: whole, in parts, from several nodes, and from such as lie.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	echo "no etcd here (Debian: etcd-server etcd-client): skipped contents"
	exit 77
fi
section 'fetched whole, from several nodes, and on after a restart'
mkdir "$work/nodes"
run nodes python3 tests/worker/content_nodes.py "$work/nodes"
assert_exit nodes 0
grep -A3 FAIL "$work/nodes.out"
section 'what can not be had, or must not be'
mkdir "$work/hostile"
sample=tests/fuzz/corpus/artifact/ok-all
for who in us others; do
	run keygen medusa-sign keygen -o "$work/$who"
	assert_exit keygen 0
	run sign medusa-sign sign $sample --key "$work/$who" -o "$work/$who.medusa"
	assert_exit sign 0
done
cp $sample "$work/plain.medusa"
run hostile python3 tests/worker/content_hostile.py "$work/hostile" "$work/us.medusa" "$work/others.medusa" "$work/plain.medusa" "$work/us.pub"
assert_exit hostile 0
grep -A3 FAIL "$work/hostile.out"
section 'what lies in a store after a daemon was killed'
mkdir "$work/store"
run store python3 tests/worker/content_store.py "$work/store"
assert_exit store 0
grep -A3 FAIL "$work/store.out"
section 'between nodes that show certificates: contents and bills'
mkdir "$work/tls"
run tls python3 tests/worker/content_tls.py "$work/tls"
assert_exit tls 0
grep -A3 FAIL "$work/tls.out"
finish
