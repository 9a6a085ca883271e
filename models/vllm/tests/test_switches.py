# SPDX-License-Identifier: Apache-2.0
"""The plug-in's settings: what each means, and that a value which is not understood leaves things to vLLM."""
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../../torch")]

from medusa import _settings  # noqa: E402
from medusa_vllm import switches  # noqa: E402

# function, variable: default, the answer to 0 and to 1, what an unreadable value means and what is said of it
SETTINGS = (
    (switches.plugin, "MEDUSA_VLLM", True, False, True, False, "vLLM is left as it is"),
    (switches.prefork, "MEDUSA_VLLM_PREFORK", True, False, True, False, "the engine core's process is spawned"),
    (switches.sleep, "MEDUSA_VLLM_SLEEP", True, False, True, False, "sleep mode is left to vLLM"),
    (switches.any_version, "MEDUSA_VLLM_ANY_VERSION", False, False, True, False, "versions that were never tried are left alone"),
    (switches.pieces, switches.PIECES, None, False, True, False, "no pieces are recorded or restored"),
    (switches.takeover, switches.TAKEOVER, "load", "0", "load", "0", "batches with prefills stay as they are after the start"),
)


class Switches(unittest.TestCase):
    def setUp(self):
        _settings._named.clear()

    def test_each(self):
        for function, name, default, off, on, unreadable, so in SETTINGS:
            with self.subTest(name), mock.patch.dict(os.environ):
                os.environ.pop(name, None)
                self.assertEqual(function(), default)
                for text, wanted in (("", default), ("0", off), ("off", off), ("FALSE", off), ("1", on), ("on", on), ("Yes", on)):
                    os.environ[name] = text
                    self.assertEqual(function(), wanted, text)
                os.environ[name] = "maybe"
                with self.assertLogs("vllm.medusa", "ERROR") as said:
                    self.assertEqual(function(), unreadable)
                self.assertIn(f"medusa: {name}='maybe': one of ", said.output[0])
                self.assertTrue(said.output[0].endswith(f" is wanted; {so}"), said.output[0])

    def test_how_prefills_run(self):
        for text, wanted in (("", "eager"), ("eager", "eager"), ("Compiled", "compiled")):
            with mock.patch.dict(os.environ, {"MEDUSA_VLLM_PREFILL": text}):
                self.assertEqual(switches.prefill(), wanted)
        for text in ("0", "1", "lazy"):
            with mock.patch.dict(os.environ, {"MEDUSA_VLLM_PREFILL": text}), self.assertLogs("vllm.medusa", "ERROR") as said:
                self.assertEqual(switches.prefill(), "compiled")
            self.assertIn("one of eager, compiled is wanted; the model is compiled before the first answer", said.output[0])


if __name__ == "__main__":
    unittest.main()
