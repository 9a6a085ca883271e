# SPDX-License-Identifier: Apache-2.0
"""Each part of the plug-in that vLLM's own calls go through is made to fail: the engine starts, serves and ends as without the plug-in."""
import os
import sys
import time
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin_compiled  # noqa: E402
import standin_first  # noqa: E402
import torch  # noqa: E402
from medusa_vllm import background, capacity, facts, first, fit, hooks, interim, lora, plan, prefills, second, sleeping, switches, takeover, turns, workspace  # noqa: E402
from piece_starts import PieceStarts  # noqa: E402
from standin_compiled import step  # noqa: E402

PLANTED = RuntimeError("planted")
PARTS = (  # what a start calls, in any mode
    (fit, "unfit"), (fit, "unfit_version"), (hooks, "_unhooked"), (hooks, "_hand_over"), (capacity, "_given"), (facts, "memory"), (facts, "settings"),
    (capacity, "kv_capacity"), (takeover.Takeover, "postpone_compiling"), (interim.Interim, "begin"), (interim.Interim, "end"), (interim, "_eager_method"),
    (takeover.Takeover, "_open"), (takeover.Takeover, "_close"), (takeover, "Graphs"), (takeover.Graphs, "get"), (takeover.Graphs, "close"),
    (takeover.Graphs, "complete"), (workspace, "unexpected"), (workspace, "is_needed"), (workspace, "tensors"), (prefills, "prepare"), (prefills, "capture"),
    (prefills, "restore"), (facts, "of"), (takeover, "nothing_to_come"), (takeover.Takeover, "_start_background"), (background, "start"),
)
SECOND = ((second.Second, "capture"), (second.Second, "bindings"), (second.Second, "facts"), (second.Second, "randomizer"), (second.Second, "_make"),
          (second.Second, "_publish"), (second.Second, "_remark"), (second, "_label"), (second, "tell"), (lora, "bindings"), (fit, "unfit_second"))
FIRST = ((first.First, "capture"), (first.First, "bindings"), (first.First, "facts"), (first.First, "randomizer"), (first.First, "_make"),
         (first.First, "_label"), (first, "tell"), (first.First, "_clear"), (fit, "unfit_first"))
# Without these a restore that cannot be finished would leave the engine half-way.
BESIDE = ((takeover.Graphs, "close"), (interim.Interim, "end"), (takeover, "nothing_to_come"))


def failing(*parts):
    """Patches under which each of these parts raises."""
    return [mock.patch.object(owner, name, side_effect=PLANTED) for owner, name in parts]


class Starting(starts.Starts):
    parts = SECOND

    def made(self, worker):
        return len(worker.model_runner.cudagraph_manager.graphs)

    def start_under(self, mode, artifact, patches):
        for patch in patches:
            patch.start()
        try:
            worker, _ = self.process(mode, artifact)
        finally:
            for patch in patches:
                patch.stop()
        self.assertEqual(self.made(worker), 3, "each batch size has a graph, restored or live")
        self.assertIn(worker.kv_bytes, (1 << 30, 12 * (64 << 20)))
        return worker

    def test_each_part_fails_alone(self):
        _, artifact = self.record()
        for mode, given in (("capture", None), ("restore", artifact)):
            for part in (*PARTS, *self.parts):
                with self.subTest(mode=mode, part=part[1]):
                    self.start_under(mode, dict(given) if given else None, failing(part))

    def test_what_brings_the_engine_back_fails_too(self):
        _, artifact = self.record()
        for mode, given in (("capture", None), ("restore", artifact)):
            for part in ((takeover.Graphs, "get"), (prefills, "capture" if mode == "capture" else "restore"), *self.parts[:2]):
                with self.subTest(mode=mode, part=part[1]):
                    self.start_under(mode, dict(given) if given else None, failing(part, *BESIDE))

    def test_its_end(self):
        for part in ((takeover.Takeover, "end"), (takeover.Takeover, "_close"), (takeover.Graphs, "close"), (interim.Interim, "end"), (hooks, "_forget")):
            with self.subTest(part[1]), mock.patch.object(*part, side_effect=PLANTED):
                worker, _ = self.process("capture", after=lambda worker: worker.shutdown())
                self.assertIsNone(worker.model_runner.model, "vLLM's own end has been reached")


class StartingFirst(Starting):
    standin = standin_first
    parts = FIRST

    def made(self, worker):
        return len(worker.model_runner.model.concrete_cudagraph_entries)


class Serving(PieceStarts):
    """Steps of a restored engine beside the take-over, and on restored pieces."""

    standin = standin_compiled

    def setUp(self):
        super().setUp()
        _, self.artifact = self.record()
        self.said.clear()

    def test_a_plan_that_fails_is_given_up_and_the_batch_runs_eagerly(self):
        def serve(worker, launched):
            def half(made):
                made._steps[0][0]()  # the first piece, and nothing behind it
                raise PLANTED

            ids = self.tokens(4)
            with mock.patch.object(plan.Plan, "run", half):
                out = step(worker, ids)[1]
            self.assertEqual(launched, [("piece.0", 4)])
            caches = [cache.clone() for cache in worker.model_runner.kv_caches]
            for cache in worker.model_runner.kv_caches:
                cache.zero_()
            del launched[:]
            mode, eager = step(worker, ids)
            self.assertEqual((mode, launched), (standin_compiled.CUDAGraphMode.NONE, []), "this size has no plan any more")
            self.assertTrue(torch.equal(out, eager), "an eager batch, from its beginning")
            self.assertEqual([torch.equal(*pair) for pair in zip(caches, worker.model_runner.kv_caches)], [True] * len(caches))
            self.assert_as_compiled(worker, self.tokens(2))

        self.restore(self.artifact, serve)
        self.assert_said("batches of 4 tokens run eagerly: its plan failed: RuntimeError('planted')")

    def test_steps_that_cannot_take_turns(self):
        for name in ("enter", "leave"):
            with self.subTest(name), mock.patch.object(turns.Turns, name, side_effect=PLANTED), mock.patch.dict(os.environ, {switches.TAKEOVER: "load"}):
                def serve(worker, _):
                    began = time.monotonic()
                    for _ in range(3):
                        self.assert_as_compiled(worker, self.tokens(4))
                    self.assertLess(time.monotonic() - began, 30, "no step waits for the beginning of the work, which is 100 s away")
                    taking = getattr(worker, hooks.ATTRIBUTE).background
                    if name == "enter":
                        self.assertTrue(taking.join(5), "the work has ended, so that nothing runs beside steps")
                    taking.stop()

                self.restore(self.artifact, serve)

    def test_waking_and_ending(self):
        def serve(worker, _):
            with mock.patch.object(background.Background, "_woken", side_effect=PLANTED):
                worker.sleep(1)
                worker.wake_up()
            self.assertEqual(worker.slept, [])
            beside = getattr(worker, hooks.ATTRIBUTE).background
            with mock.patch.object(background.Background, "stop", side_effect=PLANTED):
                worker.shutdown()
            self.assertIn("shut down", worker.log)
            beside.stop()

        with mock.patch.dict(os.environ, {switches.TAKEOVER: "load", switches.AFTER: "100"}):
            self.restore(self.artifact, serve)

    def test_an_engine_whose_methods_are_the_users_own_is_not_taken_over(self):
        def change(worker):
            worker.vllm_config.parallel_config.worker_extension_cls = "unittest.mock.Mock"

        _, artifact = self.record(change=change)
        with mock.patch.dict(os.environ, {switches.TAKEOVER: "load"}):
            self.restore(artifact, lambda worker, _: self.assertIsNone(getattr(worker, hooks.ATTRIBUTE).background), change)
        self.assert_said("methods of the user's own in the worker (worker_extension_cls)")


class Sleeping(unittest.TestCase):
    def test_a_backend_that_is_not_told_of_the_worker(self):
        backend = types.SimpleNamespace(serve=mock.Mock(side_effect=PLANTED))
        with self.assertLogs("vllm.medusa", "ERROR"):
            self.assertIs(sleeping._get_backend(lambda worker: backend)(types.SimpleNamespace()), backend)  # pylint: disable=protected-access


if __name__ == "__main__":
    unittest.main()
