# SPDX-License-Identifier: Apache-2.0
"""A real llama.cpp server, from the Python package xllamacpp, for the demo: demo_llamacpp.py MODEL.gguf PORT [THREADS]."""
import signal
import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.port = int(sys.argv[2])
parameters.n_ctx = 512
parameters.cpuparams.n_threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
server = xllamacpp.Server(parameters)
print(f"llama.cpp listens on {server.listening_address}", flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
