# SPDX-License-Identifier: Apache-2.0
"""What a daemon leaves for the next one: records of its engines, and the keeper."""
import glob
import os


def records(daemon):
    return sorted(glob.glob(f"{daemon.control}.engines/engine-*.json"))


def keeper_of(daemon):
    """The keeper is the process that listens in the folder of the engines."""
    for status in glob.glob("/proc/[0-9]*/comm"):
        try:
            with open(status, encoding="utf-8", errors="replace") as file:
                if file.read() == "medusa-keeper\n" and os.readlink(f"{status[:-4]}fd/4") == f"{os.path.realpath(daemon.control)}.engines":
                    return int(status.split("/")[2])
        except OSError:
            pass
    return None
