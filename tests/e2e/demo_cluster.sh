#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Three worker nodes that are one cluster by a real etcd, on hostcuda: what each of them answers, and what goes on when one is killed.
set -eu
cd "$(dirname "$0")/../.."
MEDUSA_DEVICE=host # the nodes share this machine, and a GPU is one node's
. tests/e2e/device.sh
export PATH=$PWD/$build/bin:$PATH
out=$PWD/$build/demo-cluster
rm -rf "$out" # what an earlier run has left in etcd is not this one's
mkdir -p "$out"
mkdir -m 700 "$out/run"
XDG_RUNTIME_DIR=$out/run exec python3 tests/e2e/demo_cluster.py "$out" "$build/models/llama/llama-engine"
