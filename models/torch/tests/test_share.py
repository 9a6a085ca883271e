# SPDX-License-Identifier: Apache-2.0
"""medusa.share and medusa.torch.share: processes with one copy of their weights, by a real medusa-backbone, on hostcuda."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    torch = None

from medusa import _api, share

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("MEDUSA_BUILD", "")
TOOL = os.path.join(BUILD, "bin/medusa-backbone")

PLAIN = """
import ctypes, sys
from medusa import _driver, share
cuda = _driver.library()
device, context = ctypes.c_int(), ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) and not cuda.cuCtxSetCurrent(context)
address, filled = share.attach("q", "v1", 1 << 20, deadline=20, verify=True)
if not filled:
    assert not cuda.cuMemsetD32_v2(ctypes.c_uint64(address), 77, ctypes.c_size_t(1 << 18))
    share.commit(address)
word = ctypes.c_uint32()
assert not cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(address), ctypes.c_size_t(4))
print(filled, word.value, flush=True)
sys.stdin.read()
share.end(address)
try:
    share.end(address)
except share.Error as error:
    print(error.code, error, flush=True)
"""


@unittest.skipUnless(os.path.exists(TOOL), "MEDUSA_BUILD names no build")
class Sharing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.chmod(self.folder.name, 0o700)
        self.processes = []
        self.environment = {**os.environ, "MEDUSA_BACKBONE": f"{self.folder.name}/backbone.sock", "PYTHONPATH": os.path.dirname(os.path.dirname(share.__file__)),
                            "LD_LIBRARY_PATH": f"{BUILD}/lib/hostcuda:{BUILD}/lib"}
        self.broker = None

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.communicate()
        if self.broker:
            self.broker.terminate()
            self.broker.wait(20)
            self.broker.stderr.close()

    def serve(self):
        self.broker = subprocess.Popen([TOOL, "run", "--device", "host"], env=self.environment, stderr=subprocess.PIPE, text=True)
        while "ready:" not in self.broker.stderr.readline():
            self.assertIsNone(self.broker.poll())

    def start(self, *command):
        process = subprocess.Popen([sys.executable, *command], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def say(self, way):
        process = self.start(os.path.join(HERE, "share_engine.py"), way)
        line = process.stdout.readline()
        return json.loads(line) if line else process.communicate()[1]

    def test_without_pytorch(self):
        self.serve()
        said = []
        for _ in range(3):
            process = self.start("-c", PLAIN)
            said.append(process.stdout.readline().split() or process.communicate()[1])
        self.assertEqual(said, [["False", "77"], ["True", "77"], ["True", "77"]])
        out, _ = process.communicate("", 20)
        self.assertEqual(out.split()[0], str(_api.NOT_FOUND))
        self.assertIn("is not the address of shared memory", out)

    def test_without_a_broker(self):
        process = self.start("-c", PLAIN)
        _, said = process.communicate("", 20)
        self.assertIn("medusa-backbone is not there", said)

    def test_wrong_arguments(self):
        process = self.start("-c", "from medusa import share\nshare.attach('no name', '', 5)")
        self.assertIn("is not a name", process.communicate("", 20)[1])

    @unittest.skipUnless(torch, "PyTorch is not installed: models that share their parameters")
    def test_models(self):
        self.serve()
        first, second, loaded = (self.say(way) for way in ("meta", "meta", "loaded"))
        self.assertEqual([one["fill"] for one in (first, second, loaded)], [True, False, False])
        self.assertEqual(first["numbers"], second["numbers"])
        self.assertEqual(first["numbers"], loaded["numbers"])
        self.assertNotEqual(set(first["numbers"]["0.weight"]), {0.0})
        for one in (first, second, loaded):
            self.assertEqual((one["private"], one["tied"], one["attribute"], one["grad"]), (False, True, "kept", False))
        self.assertEqual(loaded["buffers"], "cpu")
        self.assertEqual(self.say("revision")["fill"], True, "another revision is other memory")

    @unittest.skipUnless(torch, "PyTorch is not installed: models whose loading fails")
    def test_a_load_that_fails(self):
        self.serve()
        self.assertIn("the file is broken", self.say("raises"))
        self.assertIn("parameter 0.weight was replaced while the model was loaded, not filled", self.say("assigns"))
        one = self.say("loaded")
        self.assertEqual((one["fill"], one["private"]), (True, False), "nothing of the failed ones is left")

    @unittest.skipUnless(torch, "PyTorch is not installed: models without a broker")
    def test_models_without_a_broker(self):
        one = self.say("meta")
        self.assertEqual((one["fill"], one["private"]), (True, True))
        self.assertIn("medusa-backbone is not there", one["reason"])
        self.serve()
        self.assertEqual(one["numbers"], self.say("loaded")["numbers"])

    @unittest.skipUnless(torch, "PyTorch is not installed: parameters that cannot be shared")
    def test_what_cannot_be_shared(self):
        from medusa.torch import shared

        with self.assertRaisesRegex(ValueError, "no parameters with elements"):
            shared._places(torch.nn.ReLU())
        sparse = torch.nn.Module()
        sparse.weight = torch.nn.Parameter(torch.eye(3).to_sparse())
        with self.assertRaisesRegex(ValueError, "parameter weight is a Tensor of layout torch.sparse_coo"):
            shared._places(sparse)
        turned = torch.nn.Module()
        turned.weight = torch.nn.Parameter(torch.randn(3, 5).t())
        turned.gaps = torch.nn.Parameter(torch.randn(8, 8)[:, ::2])
        places = shared._places(turned)
        self.assertEqual([place.stride for place in places], [(1, 5), (4, 1)])
        self.assertTrue(all(place.offset % 256 == 0 for place in places))


if __name__ == "__main__":
    unittest.main()
