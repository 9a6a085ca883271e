# SPDX-License-Identifier: Apache-2.0
"""The engine core that the server forks before vLLM asks for it: the same as a spawned one, or a spawned one."""
import os
import signal
import unittest

from serving import BUILD, IMAGE, HOST_ENGINE, NAMED_THREADS, Serving, have_ended, write

FORKED = "the engine core's process was forked"
SPAWNED = "the engine core's process is spawned"


class Prefork(Serving):
    def assert_forked(self, run, code=0):
        self.assertEqual(run.code, code, run)
        self.assertIn(FORKED, run.said, run)
        self.assertEqual(self.counted(), 1, run)

    def assert_spawned(self, run, why, code=0):
        self.assertEqual(run.code, code, run)
        self.assertNotIn(FORKED, run.said, run)
        self.assertIn(why, run.said, run)
        self.assertEqual(self.counted(), 2, run)
        self.assertEqual(run.found["core"]["queue"], "through the queue", run)

    def test_what_was_imported_is_not_imported_again(self):
        run = self.serve()
        self.assert_forked(run)
        self.assertEqual(self.counted("vllm.v1.worker.gpu_worker"), 1)

    def test_it_is_spawned_if_that_is_asked_for(self):
        run = self.serve(environment={"MEDUSA_VLLM_PREFORK": "0"})
        self.assertNotIn(FORKED, run.said, run)
        self.assertEqual(self.counted("vllm.v1.worker.gpu_worker"), 1)

    def test_it_is_given_what_a_spawned_one_is(self):
        forked = self.serve("x=y")
        spawned = self.serve("x=y", environment={"MEDUSA_VLLM_PREFORK": "0"})
        self.assertIn(FORKED, forked.said, forked)
        self.assertNotIn(FORKED, spawned.said, spawned)
        for run in (forked, spawned):
            run.found["core"]["environment"].pop("MEDUSA_VLLM_PREFORK", None)
            run.found["core"]["standard"] = [link.split(":")[0] for link in run.found["core"]["standard"]]
            run.found["core"]["place"].pop("process group")
        self.assertEqual(forked.found["core"], spawned.found["core"])
        self.assertTrue(forked.found["core"]["parent_is_server"])
        self.assertEqual(forked.found["core"]["settings"]["limits"]["RLIMIT_NOFILE"][0], 777)

    def test_standard_descriptors_are_those_of_the_server_now(self):
        path = os.path.join(self.folder, "in")
        write(path, "")
        run = self.serve("input=" + path)
        self.assert_forked(run)
        self.assertEqual(run.found["core"]["standard"][0], path)

    def test_standard_descriptors_that_are_closed(self):
        """Then descriptors of the server's, and of the process that waits, would get their numbers."""
        for closed in ("<&-", ">&-", "<&- >&-"):
            with self.subTest(closed):
                open(self.imports, "w", encoding="utf-8").close()
                run = self.serve(before=("sh", "-c", f'exec {closed}; exec "$@"', "sh"))
                self.assert_forked(run)
                self.assertTrue(">" in closed or run.found["core"]["queue"] == "through the queue", run)

    def test_the_garbage_collector_rests_while_vllm_is_imported_and_not_longer(self):
        for environment in ({}, {"MEDUSA_VLLM_PREFORK": "0"}):
            run = self.serve(environment=environment)
            self.assertEqual((run.found["gc"], run.found["gc_while_importing"]), (True, False), run)
        run = self.serve(preload=False)
        self.assertEqual((run.found["gc"], run.found["gc_while_importing"]), (True, True), run)

    def test_exit_codes_and_signals_are_the_cores_own(self):
        for order, code in (("core_code=3", 3), (f"core_signal={int(signal.SIGSEGV)}", -signal.SIGSEGV)):
            with self.subTest(order):
                run = self.serve(order)
                self.assertIn(FORKED, run.said, run)
                self.assertEqual(run.found["exitcode"], code, run)

    def test_another_start_method_is_the_users_choice(self):
        run = self.serve(environment={"VLLM_WORKER_MULTIPROC_METHOD": "spawn"})
        self.assert_spawned(run, SPAWNED + ": VLLM_WORKER_MULTIPROC_METHOD is set to spawn")

    def test_without_a_library_nothing_is_forked(self):
        run = self.serve(preload=False)
        self.assertEqual((run.code, self.counted(), "medusa" in run.said), (0, 2, False), run)

    def test_a_capture_is_left_alone(self):
        run = self.serve(environment={"LD_PRELOAD": os.path.join(BUILD, "lib/libmedusa-capture.so"),
                                      "MEDUSA_TRACE": os.path.join(self.folder, "trace")})
        self.assertEqual((run.code, self.counted()), (0, 2), run)

    def test_another_version_is_left_alone(self):
        path = os.path.join(self.folder, "site/vllm/__init__.py")
        with open(path, "a", encoding="utf-8") as file:
            file.write("__version__ = '0.99.1'\n")
        self.assert_spawned(self.serve(), SPAWNED + ": vLLM 0.99.1 was never tried")

    def append(self, text):
        """To a module that the server imports."""
        with open(os.path.join(self.folder, "site/vllm/many/m3.py"), "a", encoding="utf-8") as file:
            file.write(text)

    def test_threads_are_unusual(self):
        self.append("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='sleeper', daemon=True).start()\n")
        self.assert_spawned(self.serve(), SPAWNED + ": this process has threads (sleeper)")

    def test_threads_of_libraries_are_unusual(self):
        self.append(NAMED_THREADS.format(["worker", "cuda00001800007"]))
        self.assert_spawned(self.serve(), SPAWNED + ": threads of C libraries were running (worker)")

    def test_threads_that_a_child_does_without(self):
        self.append(NAMED_THREADS.format(["jemalloc_bg_thd", "cuda00001800007"]))
        self.assert_forked(self.serve())

    @unittest.skipUnless(os.path.exists(IMAGE), "no hostcuda")
    def test_a_device_in_use_is_unusual(self):
        self.append("import ctypes, os\nif '--multiprocessing-fork' not in __import__('sys').argv: ctypes.CDLL('libcuda.so.1').cuInit(0)\n")
        self.assert_spawned(self.serve(), SPAWNED + ": cuInit was called")

    def test_what_changes_meanwhile_is_named(self):
        for order, why in (("env=HF_HUB_OFFLINE:1", "the environment variable HF_HUB_OFFLINE has changed"), ("dp=2", "data_parallel_size is 2")):
            with self.subTest(order):
                open(self.imports, "w", encoding="utf-8").close()
                self.assert_spawned(self.serve(order), f"{SPAWNED}: {why}")

    def test_a_core_that_was_killed_is_spawned(self):
        self.assert_spawned(self.serve(f"kill_core={int(signal.SIGKILL)}"), SPAWNED)

    def test_a_core_that_does_not_answer_is_spawned(self):
        self.append("import medusa_vllm.prefork\nmedusa_vllm.prefork.WAIT = 1\n")
        run = self.serve(f"kill_core={int(signal.SIGSTOP)}")
        self.assert_spawned(run, SPAWNED + ": TimeoutError")

    def test_the_collector_never_rests_with_another_version(self):
        write(os.path.join(self.folder, "site/vllm/version.py"), "__version__ = '0.99.1'\n")
        run = self.serve()
        self.assertEqual((run.found["gc"], run.found["gc_while_importing"]), (True, True), run)

    def test_a_collector_that_the_user_has_switched_off_stays_off(self):
        with open(os.path.join(self.folder, "site/sitecustomize.py"), "r+", encoding="utf-8") as file:
            text = file.read()
            file.seek(0)
            file.write("import gc\ngc.disable()\n" + text)
        self.assertFalse(self.serve().found["gc"])

    def test_a_server_that_starts_no_core_leaves_no_process(self):
        with open(os.path.join(self.folder, "site/standin_server.py"), "a", encoding="utf-8") as file:
            file.write("def main():\n    print(json.dumps({'children': open(f'/proc/self/task/{os.getpid()}/children').read().split()}))\n    return 2\n")
        run = self.serve()
        self.assertEqual((run.code, len(run.found["children"])), (2, 1), run)
        have_ended(*run.found["children"])

    @unittest.skipUnless(os.path.exists(IMAGE), "no hostcuda")
    def test_it_restores(self):
        orders = [f"image={IMAGE}", f"engine={HOST_ENGINE}", "fact=a"]
        artifact = os.path.join(self.folder, "a.medusa")
        captured = self.serve(*orders, before=("medusa-capture", "-o", artifact, "--"), preload=False)
        self.assertEqual(captured.code, 0, captured)
        open(self.imports, "w", encoding="utf-8").close()
        run = self.serve(*orders, before=("medusa-restore", artifact, "--"), preload=False)
        self.assert_forked(run)
        self.assertEqual([(graph["restored"], graph["equal"]) for graph in run.graphs], [(True, True)] * 2, run)
        self.assert_swapped(orders, artifact)

    def assert_swapped(self, orders, artifact):
        """The forked core is an engine of medusa-swap run, and its restored graphs are right after its memory was out; so is a core without an artifact."""
        place = os.path.join(self.folder, "run")
        os.mkdir(place, 0o700)
        open(self.imports, "w", encoding="utf-8").close()
        for more, restored in (("--artifact", artifact), True), ((), False):
            run = self.serve(*orders, "more=sleeps", before=("medusa-swap", "run", "--name", "core", "--pool-bytes", "64M", *more, "--"), preload=False,
                             environment={"XDG_RUNTIME_DIR": place})
            if restored:
                self.assert_forked(run)
            self.assertEqual([(graph["restored"], graph["equal"]) for graph in run.graphs], [(restored, True)] * 2, run)
            self.assertEqual((run.found["processes_out"], run.found["came"]), (1, run.found["went"]), run)
            self.assertGreater(run.found["went"], 0, run)


if __name__ == "__main__":
    unittest.main()
