#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The sample for Kubernetes, as far as it can be tried without one: its configuration is good, and its options are those of the daemon.
. tests/e2e/lib.sh
sample=packaging/medusa-worker-kubernetes.yaml
awk '/^  worker.yaml: \|/ { on = 1; next } on && /^---/ { exit } on { sub(/^    /, ""); print }' $sample >"$work/worker.yaml"
section 'the configuration'
MEDUSA_ETCD_PASSWORD=secret run checked medusa-worker --config "$work/worker.yaml" --check
assert_exit checked 0
assert_contains "$work/worker.yaml" 'etcd_password_env: MEDUSA_ETCD_PASSWORD'
sed 's/etcd_user: medusa/etcd_usr: medusa/' "$work/worker.yaml" >"$work/wrong.yaml"
MEDUSA_ETCD_PASSWORD=secret run wrong medusa-worker --config "$work/wrong.yaml" --check
assert_exit wrong 3
section 'the options'
medusa-worker --help >"$work/help"
options=$(sed -n 's/^ *- \(--[a-z-]*\)=.*/\1/p' $sample)
[ "$(wc -w <<<"$options")" = 5 ] || fail 'five options' "$options"
for option in $options; do
	grep -q -e "$option " "$work/help" || fail "$option is an option of medusa-worker" "$(cat "$work/help")"
done
checks=$((checks + 2))
section 'as YAML'
if python3 -c 'import yaml' 2>/dev/null; then
	run kinds python3 -c 'import sys, yaml; print(" ".join(one["kind"] for one in yaml.safe_load_all(open(sys.argv[1]))))' $sample
	assert_exit kinds 0
	assert_contains "$work/kinds.out" 'ConfigMap DaemonSet Service'
fi
finish
