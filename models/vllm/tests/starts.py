# SPDX-License-Identifier: Apache-2.0
"""What the plug-in's tests have in common: one start of a stand-in for vLLM, with stand-ins for the device and for the C side."""
import contextlib
import logging
import os
import sys
import types
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(HERE, "../../torch"), os.path.join(HERE, "../../torch/tests")]

import standin  # noqa: E402
from fakes import Cuda, Library  # noqa: E402
from medusa import _api  # noqa: E402
import medusa_vllm  # noqa: E402
from medusa_vllm import hooks  # noqa: E402,F401  # else each process would import it anew

logging.getLogger("medusa").propagate = False


class CSide(Library):
    """Answers for KV capacity, too: measured in a capture, from the artifact in a restore or a verification."""

    def present(self):
        return self.mode_name != "none"

    def kv_capacity(self, key, block_bytes, utilization, callback, most=None):
        known = self.mode_name in ("restore", "verify") and self.artifact.get("kv", [None])[0] == key
        if not known:
            if callback.pointer(None):
                raise _api.Error(_api.INVALID, "the profile failed")
        blocks = self.artifact["kv"][1] if known else min(12, most.value // block_bytes)
        if self.mode_name == "capture":
            self.artifact["kv"] = key, blocks
        return types.SimpleNamespace(bytes=blocks * block_bytes, blocks=blocks, from_profile=int(known)), ""


class Starts(unittest.TestCase):
    """Starts the engine of a stand-in, in any mode."""

    standin = standin
    c_side = CSide

    def setUp(self):
        torch.manual_seed(3)
        patch = mock.patch.dict(os.environ)  # what a test sets goes with it
        patch.start()
        self.addCleanup(patch.stop)
        logger = logging.getLogger("vllm.medusa")
        logger.propagate = False
        self.said = []
        handler = logging.Handler()
        handler.emit = lambda record: self.said.append(record.getMessage())
        logger.handlers, logger.level = [handler], logging.INFO

    def process(self, mode, artifact=None, version="0.26.0", sizes=(1, 2, 4), change=None, after=None, **config):
        """One start of the engine; the worker and the C side as it left them."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.standin.installed(version))
            cuda = Cuda()
            stack.enter_context(cuda.patch())
            library = self.library = self.c_side(mode, artifact)
            stack.enter_context(library.patch())
            for name in ("empty_cache",):
                stack.enter_context(mock.patch.object(torch.cuda, name, lambda: None))
            stack.enter_context(mock.patch("medusa.torch.kv._run", lambda profile: profile()))
            stack.enter_context(mock.patch("medusa_vllm._start.preloaded", lambda: mode != "none"))
            medusa_vllm.register()
            worker = sys.modules["vllm.v1.worker.gpu_worker"].Worker(sizes, **config)
            if change:
                change(worker)
            self.assertEqual(worker.start(), "times")
            self.cuda, self.bound = cuda, library.bound
            if after:
                with torch.inference_mode():
                    after(worker)
            return worker, library

    def record(self, **config):
        worker, library = self.process("capture", **config)
        self.assertEqual(library.refused, {})
        return worker, library.artifact
