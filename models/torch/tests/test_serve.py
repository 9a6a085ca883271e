# SPDX-License-Identifier: Apache-2.0
"""`transformers serve` in processes of its own, over HTTP: a stand-in of its call structure, with a device and a C side that are fakes."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

try:
    import torch  # noqa: F401
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None
import medusa

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.dirname(os.path.dirname(os.path.abspath(medusa.__file__)))
LIMIT = 60  # seconds: whatever a server does, it has ended then
PROMPTS = [[3, 4, 5], [9, 8, 7, 6, 5, 4], [11] * 13]


class Server:
    """One start of the server; what it said is in .said once it has ended."""

    def __init__(self, mode, artifact, *options, **environment):
        self.said, self.until = "", time.monotonic() + LIMIT
        self.folder = tempfile.TemporaryDirectory()
        with open(os.path.join(self.folder.name, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(f"import site\nsite.addsitedir({PLACE!r})\n")
        environment = {**os.environ, "PYTHONPATH": self.folder.name, "PYTHONDONTWRITEBYTECODE": "1",
                       "LD_PRELOAD": "" if mode == "none" else f"libmedusa-{mode}.so", **environment}
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8")
        # The server inherits the socket: a number of a port alone could be another program's by then.
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port, inherited = listening.getsockname()[1], listening.fileno()
            command = [sys.executable, os.path.join(HERE, "served", "program.py"), mode, artifact, str(inherited), *options]
            self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log, pass_fds=[inherited])

    def __enter__(self):
        try:
            self.own_graphs()
            return self
        except OSError:
            self.end()
            raise AssertionError(f"the server does not answer: {self.said}") from None

    def __exit__(self, *what):
        self.end()

    def left(self):
        return max(1, self.until - time.monotonic())

    def end(self):
        if self.log.closed:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.seek(0)
        self.said = "".join(line for line in self.log if "ld.so" not in line)
        self.log.close()
        self.folder.cleanup()

    def ended_itself(self):
        try:
            return self.process.wait(self.left())
        except subprocess.TimeoutExpired:
            raise AssertionError("the server did not end") from None
        finally:
            self.end()

    def interrupted(self):
        """The exit status after one Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.ended_itself()

    def ask(self, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=self.left()) as answer:
            return json.load(answer)

    def own_graphs(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}", timeout=self.left()) as answer:
            return json.load(answer)["own_graphs"]


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.artifact = os.path.join(cls.folder.name, "served.medusa")
        with Server("none", "-") as live:
            cls.live = [live.ask(ids=ids)["tokens"] for ids in PROMPTS]
            cls.penalized = live.ask(ids=PROMPTS[0], repetition_penalty=1.5)["tokens"]  # the first request decided
            cls.live_graphs = live.own_graphs()
        cls.captured = Server("capture", cls.artifact, FREE_MEMORY=str((1 << 30) + 12345))
        cls.code = cls.captured.ended_itself()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_live_is_as_transformers_made_it(self):
        self.assertEqual(self.live_graphs, 3)
        self.assertEqual(self.penalized, self.live[0])

    def test_a_capture_ends_by_itself_with_all_graphs_and_no_request(self):
        self.assertEqual((self.code, self.captured.said), (0, "mark ready\nmark complete\nrefused {}\n"))

    def test_a_restore_answers_the_same_and_makes_no_graph(self):
        with Server("restore", self.artifact, FREE_MEMORY=str((1 << 30) - (8 << 20))) as restored:
            answers = [restored.ask(ids=ids) for ids in PROMPTS]
            self.assertEqual([answer["tokens"] for answer in answers], self.live)
            self.assertEqual(restored.own_graphs(), 0)
            self.assertTrue(answers[0]["early"], "the manager was made before the first request")
            self.assertEqual(answers[0]["blocks"], 1024, "the cache has the size of the capture")
        self.assertEqual(sorted(restored.said.splitlines()), ["mark ready", *sorted(
            f"restored varlen.0.64 {size}" for size in (4, 8, 16)), "serving"])

    def test_a_first_request_with_another_sampling_is_answered_as_live(self):
        with Server("none", "-") as live:
            expected = live.ask(ids=PROMPTS[0], repetition_penalty=1.5)["tokens"]
        self.assertNotEqual(expected, self.live[0])
        with Server("restore", self.artifact) as restored:
            self.assertEqual(restored.ask(ids=PROMPTS[0], repetition_penalty=1.5)["tokens"], expected)
            self.assertEqual(restored.ask(ids=PROMPTS[0])["tokens"], expected)
            self.assertGreater(restored.own_graphs(), 0)
        self.assertIn("the first request has repetition_penalty=1.5, and the server's graphs were made for "
                      "repetition_penalty=None: they are made anew, live; MEDUSA_SERVE_REQUEST", restored.said)

    def test_a_temperature_that_is_not_used_changes_nothing(self):
        with Server("restore", self.artifact) as restored:
            self.assertEqual(restored.ask(ids=PROMPTS[0], temperature=0, max_tokens=6)["tokens"], self.live[0])
            self.assertEqual(restored.own_graphs(), 0)

    def test_graphs_are_made_for_the_request_that_is_named(self):
        artifact = os.path.join(self.folder.name, "named.medusa")
        request = {"MEDUSA_SERVE_REQUEST": '{"repetition_penalty": 1.5}', "MEDUSA_SERVE_TOKENS": "8"}
        self.assertEqual(Server("capture", artifact, **request).ended_itself(), 0)
        with Server("none", "-") as live:
            expected = live.ask(ids=PROMPTS[1], repetition_penalty=1.5)["tokens"]
        with Server("restore", artifact, **request) as restored:
            self.assertEqual(restored.ask(ids=PROMPTS[1], repetition_penalty=1.5)["tokens"], expected)
            self.assertEqual(restored.own_graphs(), 0)
            # A batch of a size that was not captured: live, and right.
            self.assertEqual(restored.ask(ids=[7] * 11)["tokens"], restored.ask(ids=[7] * 11)["tokens"])
        self.assertNotIn("restored varlen.0.64 12", restored.said)

    def test_what_is_left_to_transformers_is_named_and_a_capture_ends(self):
        for options, environment, why in (
            (["batching=0"], {}, "without --continuous-batching it makes no CUDA graphs"),
            (["graphs=0"], {}, "with attention 'sdpa' it makes CUDA graphs only if --cb-use-cuda-graph is given"),
            ([], {"OTHER_BUILD": "1"}, "CBGenerateManager.init_cb takes ['self', 'model', 'gen_config', 'extra', 'init'], not"),
        ):
            with self.subTest(why):
                captured = Server("capture", os.path.join(self.folder.name, "nothing"), *options, **environment)
                self.assertEqual(captured.ended_itself(), 0)
                self.assertIn("transformers serve is left as it is: " + why, captured.said)
                with Server("restore", self.artifact, *options, **environment) as restored:
                    self.assertEqual(restored.ask(ids=PROMPTS[0])["tokens"], self.live[0])

    def test_a_server_without_a_model_is_taken_over_at_its_first_request(self):
        with Server("restore", self.artifact, "model=") as restored:
            answer = restored.ask(ids=PROMPTS[0])
            self.assertEqual((answer["tokens"], restored.own_graphs()), (self.live[0], 0))
            self.assertFalse(answer["early"], "no request had named a model")
        self.assertIn("transformers serve names no model: graphs are made when the first request does", restored.said)

    def test_it_can_be_switched_off(self):
        with Server("restore", self.artifact, MEDUSA_TRANSFORMERS="0") as restored:
            self.assertEqual(restored.ask(ids=PROMPTS[0])["tokens"], self.live[0])
            self.assertGreater(restored.own_graphs(), 0)
        self.assertEqual(restored.said, "serving\n")

    def test_a_graph_that_cannot_be_taken_over_is_made_by_transformers(self):
        with Server("restore", self.artifact, "fail=graph") as restored:
            self.assertEqual([restored.ask(ids=ids)["tokens"] for ids in PROMPTS], self.live)
            self.assertEqual(restored.own_graphs(), self.live_graphs)
        self.assertIn("continuous batching: transformers makes this graph itself", restored.said)
        self.assertNotIn("restored varlen", restored.said)

    def test_a_manager_that_cannot_be_taken_over_is_transformers_own(self):
        with Server("restore", self.artifact, "fail=ready") as restored:
            self.assertEqual([restored.ask(ids=ids)["tokens"] for ids in PROMPTS], self.live)
            self.assertEqual(restored.own_graphs(), self.live_graphs)
        self.assertIn("medusa: making the graphs failed", restored.said)
        self.assertIn("transformers serve is left as it is: ZeroDivisionError('division by zero')", restored.said)
        self.assertEqual(restored.said.splitlines().count("closed"), 1)
        self.assertNotIn("nothing is prepared", restored.said)

    def test_one_ctrl_c_ends_a_server_that_was_asked_nothing(self):
        for mode, artifact in (("none", "-"), ("restore", self.artifact)):
            with self.subTest(mode), Server(mode, artifact) as idle:
                self.assertEqual(idle.interrupted(), -signal.SIGINT)
                self.assertIn("KeyboardInterrupt", idle.said)


if __name__ == "__main__":
    unittest.main()
