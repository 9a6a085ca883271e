#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sample of `make torture`, chosen by a seed: failing driver calls, allocations and files, kills, crowds, cycles.
exec "$(dirname "$0")/../faults/run.sh" --sample 6 --seed "${SEED:-1}"
