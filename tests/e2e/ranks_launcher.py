#!/usr/bin/env -S python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""ranks_launcher.py RANKS CMD [ARG...]: starts CMD once for each rank, with the variables that torchrun sets.

SIGTERM and SIGINT are passed on. When one rank fails, the others are ended, and the launcher fails, too. RANK in a word of CMD is the rank.
  LAUNCHER_BY=mpi      the variables of Open MPI
  LAUNCHER_SKIP=N      rank N is not started
  LAUNCHER_AT_N=WORDS  assignments, for rank N alone
  LAUNCHER_LETS=1      the other ranks go on when one fails
  LAUNCHER_BEFORE=CMD  is run first, by a shell, and is no rank
"""
import os
import signal
import sys

ranks, command = int(sys.argv[1]), sys.argv[2:]
running = set()


def variables(rank):
    if os.environ.get("LAUNCHER_BY") == "mpi":
        said = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": ranks, "OMPI_COMM_WORLD_LOCAL_SIZE": ranks, "PMIX_NAMESPACE": "job-1"}
    else:
        said = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0}
    said.update(word.split("=", 1) for word in os.environ.get(f"LAUNCHER_AT_{rank}", "").split())
    made = {**os.environ, **{name: str(value) for name, value in said.items()}}
    if "ASAN_OPTIONS" in made:  # leaks are for ranks alone to answer for
        made["ASAN_OPTIONS"] = made["ASAN_OPTIONS"].removesuffix(":detect_leaks=0")
    return made


def end(*_):
    for pid in running:
        os.kill(pid, signal.SIGTERM)


before = os.environ.get("LAUNCHER_BEFORE")
if before and os.system(before):
    sys.exit(9)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end)
for rank in range(ranks):
    if os.environ.get("LAUNCHER_SKIP") != str(rank):
        running.add(os.spawnvpe(os.P_NOWAIT, command[0], [word.replace("RANK", str(rank)) for word in command], variables(rank)))
result = 0
while running:
    pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    running.discard(pid)
    if code and not result:
        result = 128 - code if code < 0 else code
        if not os.environ.get("LAUNCHER_LETS"):
            end()
sys.exit(result)
