# SPDX-License-Identifier: Apache-2.0
"""The compiled model and its pieces take over from a restored start's eager layers, on the stand-ins; what a GPU does, tests/gpu shows."""
import importlib
import logging
import os
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import standin_compiled  # noqa: E402
import torch  # noqa: E402
from medusa_vllm import background, compiled, hooks, switches, turns  # noqa: E402
from standin import CUDAGraphMode  # noqa: E402
from standin_compiled import step  # noqa: E402

NONE, PIECEWISE, FULL = CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL
TOKENS = [7, 11, 13, 17]


class Beside(starts.Starts):
    """Restored starts beside which the take-over works."""

    standin = standin_compiled

    def setUp(self):
        super().setUp()
        os.environ[switches.TAKEOVER] = "load"
        for name, value in (("LATE_S", 100), ("IDLE_S", 0.01), ("PATIENCE_S", 0.2)):
            patch = mock.patch.object(turns, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        os.environ[switches.AFTER] = "0"
        _, self.artifact = self.record()
        self.said.clear()

    def restore(self, serve, change=None, **options):
        """A restored start; serve(worker) runs beside the take-over, whose end is waited for."""

        def after(worker):
            taking = getattr(worker, hooks.ATTRIBUTE).background
            serve(worker)
            if taking is not None:
                self.wait(worker, taking)

        return self.process("restore", self.artifact, change=change, after=after, **options)[0]

    def wait(self, worker, taking=None):
        """Nothing begins before the first step."""
        taking = taking or getattr(worker, hooks.ATTRIBUTE).background
        if taking.turns._first and not taking.turns._stopped:
            step(worker, TOKENS)
        self.assertTrue(taking.join(60), self.said)

    def assert_said(self, text):
        self.assertTrue(any(text in line for line in self.said), self.said)


class TakeOver(Beside):
    # ---- what it does ----

    def test_the_compiled_model_and_its_pieces_take_over(self):
        os.environ[switches.AFTER] = "0.3"

        def serve(worker):
            worker.log.clear()
            mode, before = step(worker, TOKENS)
            self.assertEqual((mode, worker.log), (NONE, [("eager", 4)]), "the first answer waits for nothing")
            self.wait(worker)
            worker.log.clear()
            launches = [graph.launches for graph in self.cuda.graphs]
            mode, after = step(worker, TOKENS)
            self.assertEqual(mode, PIECEWISE)
            self.assertEqual(worker.log, [("compiled", PIECEWISE, 4)])
            self.assertEqual(sum(graph.launches for graph in self.cuda.graphs), sum(launches) + standin_compiled.PIECES)
            self.assertTrue(torch.equal(before, after))
            self.assertEqual(step(worker, TOKENS + TOKENS)[0], PIECEWISE, "larger than any full graph")

        worker = self.restore(serve)
        self.assertEqual(worker.log.count("loaded"), 0, "it was loaded before")
        self.assert_said("has taken over after")
        self.assert_said("12 piecewise graphs")

    def test_full_graphs_stay_the_restored_ones(self):
        def serve(worker):
            self.wait(worker)
            steps = worker.model_runner.cudagraph_manager.graphs
            self.assertEqual([made.restored for made in steps.values()], [True] * 3)
            del self.cuda.launched[:]
            outputs = worker.model_runner.cudagraph_manager.hidden_states
            self.assertEqual(outputs.data_ptr(), self.bound["hidden_states"][0])
            self.assertEqual(step(worker, TOKENS, uniform=1)[0], FULL)
            self.assertEqual([graph for graph, _ in self.cuda.launched], [0xE0 + 4])

        self.restore(serve)

    def test_it_captures_as_vllm_does_and_leaves_vllm_as_it_was(self):
        empty = mock.Mock()

        def serve(worker):
            with mock.patch.object(torch.cuda, "empty_cache", empty):
                self.wait(worker)
            captured = [graph for graph in self.cuda.graphs if graph.ended]
            self.assertEqual([graph.mode for graph in captured], ["thread_local"] * 12, "other threads go on")
            self.assertFalse(sys.modules["vllm.compilation.monitor"].cudagraph_capturing_enabled)
            self.assertIs(sys.modules["vllm.compilation.decorators"]._try_load_aot_compiled_fn, standin_compiled._try_load_aot_compiled_fn)
            self.assertEqual(set(vars(worker)) & set((*background.GUARDED, "shutdown")), set(), "steps are vLLM's own again")
            self.assertTrue(worker.model_runner.model.was_aot_compile_fn_loaded_from_disk)
            self.assertFalse(worker.model_runner.model.do_not_compile)

        self.restore(serve)
        self.assertFalse(empty.called, "what the engine's allocator keeps is kept")

    def test_a_failing_first_forward_leaves_eager_layers(self):
        def serve(worker):
            self.wait(worker)
            worker.log.clear()
            self.assertEqual(step(worker, TOKENS)[0], NONE)
            self.assertEqual(worker.log, [("eager", 4)])
            self.assertIsNone(worker.model_runner.model.aot_compiled_fn)

        with mock.patch.object(standin_compiled.Compiled, "__call__", side_effect=RuntimeError("no kernel image")):
            self.restore(serve)
        self.assert_said("stay as they are")

    def test_a_failing_capture_leaves_the_compiled_model(self):
        def serve(worker):
            self.wait(worker)
            worker.log.clear()
            self.assertEqual(step(worker, TOKENS)[0], PIECEWISE, "made before")
            self.assertEqual(step(worker, TOKENS[:2])[0], NONE)
            self.assertEqual(worker.log, [("compiled", PIECEWISE, 4), ("compiled", NONE, 2)])
            self.assertEqual(self.cuda.recording_pools, [])
            self.assertFalse(self.cuda.generator.capturing)

        wrapper, calls = standin_compiled.CUDAGraphWrapper.__call__, []

        def broken(self_, *args):
            now = sys.modules["vllm.forward_context"].context.now
            if now.mode == PIECEWISE and now.descriptor.num_tokens == 2:
                calls.append(1)
                if len(calls) == 2:
                    self.cuda.broken = True
                    with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=1):
                        raise MemoryError("out of memory")
            return wrapper(self_, *args)

        with mock.patch.object(standin_compiled.CUDAGraphWrapper, "__call__", broken):
            self.restore(serve)
        self.assert_said("stay as they are")

    def test_little_memory_ends_capturing(self):
        def serve(worker):
            torch.cuda.mem_get_info = lambda device=None: (100 << 20, 1 << 31)
            self.wait(worker)
            self.assertEqual(step(worker, TOKENS)[0], NONE)
            self.assertEqual(worker.log[-1], ("compiled", NONE, 4))

        self.restore(serve)
        self.assert_said("100 MiB of device memory are free")
        self.assert_said("0 piecewise graphs")

    # ---- what there is not ----

    def cold(self, change_cache, reason):
        def serve(worker):
            change_cache(sys.modules["vllm.compilation.decorators"].cache)
            self.wait(worker)
            worker.log.clear()
            self.assertEqual(step(worker, TOKENS)[0], NONE)
            self.assertEqual(worker.log, [("eager", 4)])

        self.restore(serve)
        self.assert_said(reason)

    def test_without_a_cache_nothing_is_compiled(self):
        self.cold(lambda cache: setattr(cache, "stored", False), "no compiled model for this configuration")
        self.cold(lambda cache: setattr(cache, "broken", True), "no compiled model for this configuration")
        self.cold(lambda cache: setattr(cache, "lost", (1,)), "a piece of the compiled model is in none of vLLM's caches")

    def test_vllm_that_keeps_no_compiled_model(self):
        self.cold(lambda cache: setattr(sys.modules["vllm.envs"], "VLLM_USE_AOT_COMPILE", False), "vLLM keeps no compiled model")

        def other(cache):
            sys.modules["vllm.compilation.decorators"]._try_load_aot_compiled_fn = lambda model: None

        self.cold(other, "has no _try_load_aot_compiled_fn")

    def test_it_compiles_by_wish(self):
        def serve(worker):
            sys.modules["vllm.compilation.decorators"].cache.stored = False
            numbers = torch.get_rng_state()
            self.wait(worker)
            self.assertTrue(torch.equal(torch.get_rng_state(), numbers), "samples are those of an engine that has not compiled")
            self.assertIn(("compiles", 4), worker.log)
            self.assertEqual(step(worker, TOKENS)[0], PIECEWISE)

        with mock.patch.dict(os.environ, {switches.TAKEOVER: "compile"}):
            self.restore(serve)

    def test_it_is_on_unless_it_is_switched_off(self):
        def serve(worker):
            self.assertIsNone(getattr(worker, hooks.ATTRIBUTE).background)
            time.sleep(0.1)
            self.assertEqual(step(worker, TOKENS)[0], NONE)

        with mock.patch.dict(os.environ):
            del os.environ[switches.TAKEOVER]
            self.restore(self.wait)
        self.assert_said("has taken over")
        self.said.clear()
        with mock.patch.dict(os.environ, {switches.TAKEOVER: "0"}):
            self.restore(serve)
        self.assertEqual([line for line in self.said if "taken over" in line], [])

    def test_not_with_a_kv_connector(self):
        def serve(worker):
            self.assertIsNone(getattr(worker, hooks.ATTRIBUTE).background)

        self.restore(serve, kv_transfer_config=types.SimpleNamespace(kv_connector="Some", kv_role="kv_both"))
        self.assert_said("a KV connector")

    def test_a_capture_takes_nothing_over(self):
        self.process("capture", after=lambda worker: self.assertIsNone(getattr(worker, hooks.ATTRIBUTE).background))

    def test_a_compiled_start_gets_its_pieces(self):
        def serve(worker):
            self.wait(worker)
            self.assertEqual(step(worker, TOKENS)[0], PIECEWISE)

        with mock.patch.dict(os.environ, MEDUSA_VLLM_PREFILL="compiled"):
            self.restore(serve)

    def test_a_failure_to_start_is_logged(self):
        with mock.patch.object(background, "Background", side_effect=RuntimeError("no threads")):
            self.restore(lambda worker: self.assertEqual(step(worker, TOKENS)[0], NONE))
        self.assert_said("stay as they are")

    # ---- beside a serving engine ----

    def slow(self, worker, seconds=0.05):
        sys.modules["vllm.compilation.decorators"].cache.delay = seconds
        self.assertTrue(worker.model_runner.model.do_not_compile)

    def test_a_busy_engine_gets_it_too_and_steps_wait_little(self):
        """Steps follow each other without a pause; each is right, and the two threads never overlap."""

        def serve(worker):
            self.slow(worker)
            taking, modes, expected = getattr(worker, hooks.ATTRIBUTE).background, set(), None
            deadline = time.monotonic() + 20
            while not taking.join(0) and time.monotonic() < deadline:
                mode, out = step(worker, TOKENS)
                modes.add(mode)
                expected = out if expected is None else expected
                self.assertTrue(torch.equal(out, expected))
            self.assertEqual(step(worker, TOKENS)[0], PIECEWISE)
            self.assertEqual(modes & {NONE}, {NONE})
            self.assertGreater(taking.turns.waits, 1, "steps have waited, one after the other")

        self.restore(serve)
        self.assert_said("steps have waited for it")

    def test_work_is_interrupted_when_a_request_comes(self):
        def serve(worker):
            self.slow(worker, 0.2)
            taking = getattr(worker, hooks.ATTRIBUTE).background
            step(worker, TOKENS)
            while not taking.turns._working:
                time.sleep(0.001)
            began = time.monotonic()
            mode, _ = step(worker, TOKENS)
            took = time.monotonic() - began
            self.assertEqual(mode, NONE)
            self.assertLess(took, 0.5, "one piece, not all of them")

        with mock.patch.object(turns, "PATIENCE_S", 100):
            self.restore(serve)

    def test_nothing_begins_before_the_first_step_and_a_pause(self):
        def serve(worker):
            taking = getattr(worker, hooks.ATTRIBUTE).background
            self.assertFalse(taking.join(0.3))
            self.assertFalse(taking.turns._working)
            self.assertEqual(step(worker, TOKENS)[0], NONE)
            served = time.monotonic()
            while not taking.turns._working:
                time.sleep(0.001)
            self.assertGreater(time.monotonic() - served, 0.25)
            self.wait(worker)
            self.assertEqual(taking.turns.waits, 0)

        os.environ[switches.AFTER] = "0.3"
        self.restore(serve)
        for text, seconds in (("1.5", 1.5), ("soon", switches.AFTER_S), ("-3", switches.AFTER_S)):
            os.environ[switches.AFTER] = text
            self.assertEqual(switches.takeover_after(), seconds)

    def test_work_is_interrupted_in_the_middle_of_a_piece(self):
        def serve(worker):
            sys.modules["vllm.compilation.decorators"].cache.busy = 1.0
            taking = getattr(worker, hooks.ATTRIBUTE).background
            step(worker, TOKENS)
            while not taking.turns._working:
                time.sleep(0.001)
            for _ in range(3):
                time.sleep(0.05)
                began = time.monotonic()
                self.assertEqual(step(worker, TOKENS)[0], NONE)
                self.assertLess(time.monotonic() - began, 0.4)

        with mock.patch.object(turns, "PATIENCE_S", 100):
            self.restore(serve)
        self.assert_said("its longest uninterrupted part took")

    def test_a_step_is_not_interrupted_before_its_tokens_are_sampled(self):
        def serve(worker):
            worker.execute_model(TOKENS)
            taking = getattr(worker, hooks.ATTRIBUTE).background
            self.assertFalse(taking.join(0.5), "the work waits, though nothing runs")
            self.assertNotIn("loaded", worker.log)
            self.assertEqual(worker.sample_tokens()[0], NONE)

        self.restore(serve)
        self.assert_said("has taken over")

    def test_shutting_down_ends_it(self):
        def serve(worker):
            self.slow(worker, 0.3)
            step(worker, TOKENS)
            taking = getattr(worker, hooks.ATTRIBUTE).background
            while not taking.turns._working:
                time.sleep(0.001)
            worker.shutdown()
            self.assertTrue(taking.join(0))
            self.assertEqual(worker.log[-1], "shut down")

        self.restore(serve)
        self.assert_said("was stopped")


class TurnTaking(unittest.TestCase):
    def setUp(self):
        self.set_times(LATE_S=0.0, IDLE_S=0.01, PATIENCE_S=0.05)

    def set_times(self, **values):
        for name, value in values.items():
            patch = mock.patch.object(turns, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def work(self, turn, run):
        raised = []

        def all_of_it():
            try:
                run()
            except BaseException as error:
                raised.append(error)
            finally:
                turn.give()

        thread = threading.Thread(target=all_of_it)
        thread.start()
        self.addCleanup(thread.join, 10)
        return thread, raised

    def test_a_busy_engine_keeps_most_of_the_time(self):
        self.set_times(IDLE_S=2.0)  # no pause between two steps is that long
        turn, worked = turns.Turns(), []

        def run():
            for _ in range(5):
                turn.take()
                began = time.monotonic()
                time.sleep(0.01)
                worked.append((began, time.monotonic()))
                turn.give()

        thread, raised = self.work(turn, run)
        steps, began = [], time.monotonic()
        while thread.is_alive():
            turn.enter()
            at = time.monotonic()
            time.sleep(0.002)
            steps.append((at, time.monotonic()))
            turn.leave()
        whole = time.monotonic() - began
        self.assertEqual((raised, len(worked)), ([], 5))
        self.assertFalse([1 for a, b in worked for c, d in steps if a < d and c < b], "never at the same time")
        self.assertGreater(whole, 4 * 0.01 / turns.SHARE * 0.9)
        self.assertGreaterEqual(turn.longest_wait, 0.009)

    def test_the_longest_part_without_a_point_is_what_a_step_may_wait(self):
        now = [0.0]
        turn = turns.Turns(clock=lambda: now[0])
        for step_s in (1, 0.3):  # after a pause
            now[0] += step_s
            turn.take()
            for part in (0.1, 0.2, 0.05):
                now[0] += part
                turn.point("here")
            now[0] += step_s / 10
            turn.give()
        self.assertAlmostEqual(turn.longest_part, 0.2)

    def test_idle_only_work_waits_for_an_idle_engine(self):
        self.set_times(IDLE_S=2.0)
        turn = turns.Turns()
        thread, _ = self.work(turn, lambda: turn.take(may_interrupt=False))
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            turn.enter()
            time.sleep(0.002)
            turn.leave()
        self.assertTrue(thread.is_alive())
        thread.join(5)
        self.assertFalse(thread.is_alive())

    def test_a_step_waits_for_work_on_its_own_buffers_however_long_it_takes(self):
        turn, order, inside = turns.Turns(limit=0.1), [], threading.Event()
        turn.enter()
        turn.leave()

        def work():
            turn.take()
            with turn.whole():
                inside.set()
                threading.Event().wait(0.5)
                order.append("work")
            turn.give()

        thread = threading.Thread(target=work)
        thread.start()
        self.assertTrue(inside.wait(30))
        with self.assertLogs("vllm.medusa", "ERROR") as said:
            turn.enter()
        order.append("step")
        turn.leave()
        thread.join()
        self.assertEqual(order, ["work", "step"])
        self.assertFalse(turn.abandoned)
        self.assertIn("waits on: the take-over uses the buffers of steps", said.output[0])

    def test_given_up_work_touches_no_buffers(self):
        turn = turns.Turns()
        turn.stop()
        with self.assertRaises(turns.Stopped), turn.whole():
            self.fail("the work goes on")

    def test_a_step_goes_on_without_work_that_hangs(self):
        turn, end = turns.Turns(limit=0.1), threading.Event()

        def run():
            turn.take()
            end.wait(10)
            turn.point("here")

        with self.assertLogs("vllm.medusa", "ERROR") as said:
            thread, raised = self.work(turn, run)
            while not turn._working:
                time.sleep(0.001)
            turn.enter()
        self.assertIn("given up", said.output[0])
        turn.leave()
        turn.enter()
        turn.leave()
        end.set()
        thread.join(5)
        self.assertIsInstance(raised[0], turns.Stopped)

    def test_a_step_that_waits_for_what_interrupted_work_holds(self):
        """The work goes on beside the step, and shares again when the step is over."""
        self.set_times(STUCK_S=0.1, FREE_S=0.05)
        turn, held = turns.Turns(), threading.Lock()

        def run():
            turn.take()
            with held:
                while not turn.engine_waits:
                    time.sleep(0.001)
                turn.point("holding it")
                turn.point("still free")
            while turn._stepping:
                turn.point("waiting")
                time.sleep(0.01)
            turn.take()

        thread, raised = self.work(turn, run)
        while not turn._working:
            time.sleep(0.001)
        turn.enter()
        self.assertTrue(held.acquire(timeout=5), "the work has gone on")
        turn.leave()
        thread.join(5)
        self.assertEqual((thread.is_alive(), raised), (False, []))

    def test_stopping_frees_a_step_that_lets_work_go_first(self):
        turn = turns.Turns()
        thread, raised = self.work(turn, turn.take)
        thread.join(5)
        turn.enter()
        turn._due = 0
        thread, raised = self.work(turn, turn.take)
        time.sleep(0.05)
        turn.stop()
        thread.join(5)
        turn.leave()
        turn.enter()
        self.assertIsInstance(raised[0], turns.Stopped)


class Sleeping(Beside):
    """While the engine sleeps, the work rests: a thread that waits for the memory would hold Python's lock."""

    def rests(self, worker):
        taking, before = getattr(worker, hooks.ATTRIBUTE).background, len(self.cuda.graphs)
        time.sleep(0.3)
        return taking._thread.is_alive() and not taking.turns._working and len(self.cuda.graphs) == before

    def test_nothing_is_done_while_it_sleeps(self):
        os.environ[switches.AFTER] = "0.2"

        def serve(worker):
            step(worker, TOKENS)
            worker.sleep(1)
            self.assertTrue(self.rests(worker), "asleep")
            step(worker, TOKENS)  # such as the loading of weights: it ends, and the engine still sleeps
            self.assertTrue(self.rests(worker), "after a call of the engine")
            worker.wake_up(["weights"])
            self.assertTrue(self.rests(worker), "half awake")
            worker.wake_up(["kv_cache"])
            self.wait(worker)
            self.assertEqual(step(worker, TOKENS)[0], PIECEWISE)

        worker = self.restore(serve)
        self.assertIn(("sleep", 1), worker.log)
        self.assertNotIn("sleep", vars(worker), "it is vLLM's own again")
        self.assert_said("12 piecewise graphs")

    def test_an_engine_that_could_not_sleep_goes_on(self):
        def serve(worker):
            with self.assertRaisesRegex(TypeError, "hundred"):
                worker.sleep(hundred=1)
            self.wait(worker)

        self.restore(serve)
        self.assert_said("12 piecewise graphs")

    def test_work_that_does_not_pause_keeps_it_awake(self):
        os.environ[switches.AFTER] = "0.3"

        def serve(worker):
            turns_ = getattr(worker, hooks.ATTRIBUTE).background.turns
            turns_.abandoned = True
            with self.assertRaisesRegex(RuntimeError, "the take-over by the compiled model does not pause"):
                worker.sleep(1)
            turns_.abandoned = False

        worker = self.restore(serve)
        self.assertNotIn(("sleep", 1), worker.log)


class Loading(unittest.TestCase):
    def test_steps_compile_what_they_need_while_the_work_may_not(self):
        owner = types.SimpleNamespace(fx_codegen_and_compile=lambda graph: f"compiled {graph}")
        answers = []
        with mock.patch.dict(sys.modules, {compiled.COMPILE[0]: owner}), compiled._nothing_compiled():
            with self.assertRaises(compiled._Incomplete):
                owner.fx_codegen_and_compile("a piece")
            step = threading.Thread(target=lambda: answers.append(owner.fx_codegen_and_compile("a sampler")))
            step.start()
            step.join()
        self.assertEqual(answers, ["compiled a sampler"])
        self.assertEqual(owner.fx_codegen_and_compile("a piece"), "compiled a piece")

    def test_while_it_pauses_no_call_is_watched_and_then_all_are_again(self):
        seen = []

        def point(frame):
            if frame.f_code is standin_compiled.unpickle.__code__:
                if len(seen) == 1:
                    compiled.pause()
                seen.append(sys.getprofile() is not None)

        with compiled._interrupted(point):
            for _ in range(3):
                standin_compiled.unpickle()
        self.assertEqual(seen, [True, False, True])
        self.assertIsNone(sys.getprofile())

    def test_nothing_pauses_while_it_imports_or_logs(self):
        found = []

        class Handler(logging.Handler):
            def emit(self, record):
                found.append(compiled.may_pause(sys._getframe()))

        logger = logging.Logger("of this test")
        logger.addHandler(Handler())
        logger.warning("once")
        self.assertEqual(found, [False])
        self.assertTrue(compiled.may_pause(sys._getframe()))
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            with open(os.path.join(folder, "medusa_pause.py"), "w", encoding="utf-8") as file:
                file.write("import sys\nfrom medusa_vllm import compiled\nfound = compiled.may_pause(sys._getframe())\n")
            self.assertFalse(importlib.import_module("medusa_pause").found)

    def test_what_this_vllm_has_not_is_left_out(self):
        self.assertEqual(compiled._find("no.such.module", "f"), (None, ""))
        self.assertEqual(compiled._find("os", "path.nothing"), (None, ""))
        self.assertEqual(compiled._find("os", "path.join"), (os.path, "join"))


if __name__ == "__main__":
    unittest.main()
