#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Some of what can happen to the nodes of a cluster and its etcd (make torture has ten minutes of all of it): every request ends once, with the right
# answer or an error. SEED=N chooses the same plan again; SECONDS_OF_CHAOS=N goes on for so long, WITH_TLS=1 lets nodes and etcd speak TLS.
. tests/e2e/lib.sh
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
	echo "no etcd here (Debian: etcd-server etcd-client): skipped the chaos of a cluster"
	exit 77
fi
section 'a cluster in chaos'
mkdir "$work/chaos"
run_limit=$((${SECONDS_OF_CHAOS:-0} + 600))
run chaos python3 -B tests/worker/cluster_chaos.py "$work/chaos" "$engine_binary" --seed "${SEED:-$RANDOM}" --seconds "${SECONDS_OF_CHAOS:-0}" ${ONLY_KIND:+--only "$ONLY_KIND"} ${WITH_TLS:+--tls}
assert_exit chaos 0
cat "$work/chaos.out"
[ ! -s "$work/chaos.err" ] || fail 'nothing on stderr' "$(tail -n 20 "$work/chaos.err")"
finish
