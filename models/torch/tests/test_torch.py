# SPDX-License-Identifier: Apache-2.0
"""medusa.torch with real PyTorch tensors on a fake device (fakes.py): what is bound, recorded, restored and refused."""
import contextlib
import dataclasses
import functools
import gc
import importlib
import importlib.util
import io
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed: bindings, outputs, facts, graphs and live capture") from missing

import medusa.torch as medusa
from effort import calls_of
from fakes import Cuda, Library
from medusa import _api
from medusa.torch import difference, facts, rng, verify
from medusa.torch.bindings import Bindings
from medusa.torch.live import Recorder
from medusa.torch.verify import Snapshot
from medusa.torch.outputs import Outputs, Unsupported, first_difference, rebuild, tensors_of


class Model(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up = torch.nn.Linear(width, width, bias=False)
        self.tied = torch.nn.Linear(width, width, bias=False)
        self.tied.weight = self.up.weight
        self.register_buffer("table", torch.ones(width), persistent=False)
        self.plain = torch.ones(3)

    def forward(self, x):
        return self.up(x) * self.table


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: tuple
    cache: object = None


class OnFakeDevice(unittest.TestCase):
    """One process: PyTorch without gradients, a device, a C side."""

    def setUp(self):
        torch.manual_seed(1)
        self.no_grad = torch.no_grad()
        self.no_grad.__enter__()
        self.addCleanup(self.no_grad.__exit__, None, None, None)
        self.cuda = Cuda()
        self.device = self.cuda.patch()
        self.addCleanup(self.device.close)

    @contextlib.contextmanager
    def process(self, mode, artifact=None):
        library = Library(mode, artifact)
        with library.patch():
            yield library

    def engine(self, **more):
        self.model, self.kv = Model(), [torch.zeros(2, 8) for _ in range(2)]
        self.inputs = {"x": torch.zeros(4, 8)}
        return medusa.Graphs(bind={"model": self.model, "kv": self.kv, "inputs": self.inputs}, **more)

    def forward(self):
        self.kv[0][0].add_(self.inputs["x"][0])
        return {"logits": self.model(self.inputs["x"]), "row": self.kv[0][1], "count": 3}


class Binding(OnFakeDevice):
    def bind(self, **bind):
        return Bindings(bind, "", 0)

    def test_storages_are_bound_once_by_first_name(self):
        model = Model()
        found = self.bind(model=model)
        self.assertEqual(list(found.names), ["model.table", "model.up.weight", "model.plain"])
        weight = found.names["model.up.weight"]
        self.assertEqual((weight.address, weight.size, weight.role), (model.up.weight.data_ptr(), 256, _api.CONSTANT))

    def test_views_bind_their_storage_whole(self):
        whole = torch.zeros(10, 4)
        found = self.bind(kv={"a": whole[2:4], "b": whole[8:]})
        self.assertEqual([(b.name, b.address, b.size) for b in found], [("kv.a", whole.data_ptr(), 160)])

    def test_scratch_at_the_end_of_a_storage_is_not_bound(self):
        keys, values = torch.zeros(10, 4), torch.zeros(10, 4)
        for bind in ({"kv": [keys, values], "trash": medusa.Scratch([keys[8:]])},
                     {"trash": medusa.Scratch([keys[8:]]), "kv": [keys, values]}):
            found = self.bind(**bind)
            self.assertEqual([(b.name, b.address, b.size) for b in found],
                             [("kv.0", keys.data_ptr(), 128), ("kv.1", values.data_ptr(), 160)])
            self.assertIsNone(found.holding(keys.data_ptr() + 120, 16))
            before = Snapshot(verify._storages(found, 0), 0).take()
            keys.fill_(1)
            before.put_back()
            self.assertEqual((keys[:8].sum().item(), keys[8:].sum().item()), (0, 8))

    def test_scratch_in_the_middle_leaves_two_bindings(self):
        cache = torch.zeros(40)
        found = self.bind(trash=medusa.Scratch(cache[8:16]), cache=cache, view=cache[20:])
        address = cache.data_ptr()
        self.assertEqual([(b.name, b.address - address, b.size) for b in found], [("cache", 0, 32), ("cache.rest", 64, 96)])
        self.assertEqual(found.holding(address + 64, 8).name, "cache.rest")
        self.assertIsNone(found.holding(address + 40, 8))
        before = Snapshot(verify._storages(found, 0), 0).take()
        cache.fill_(1)
        before.put_back()
        self.assertEqual((cache[:8].sum().item(), cache[8:16].sum().item(), cache[16:].sum().item()), (0, 8, 0))

    def test_an_output_behind_scratch_comes_back_as_that_view(self):
        cache = torch.arange(40.0)
        found = self.bind(trash=medusa.Scratch(cache[8:16]), cache=cache)
        packed = Outputs({"tokens": cache[20:24]}, found).packed
        self.assertEqual(rebuild(packed, found, None, None)["tokens"].tolist(), [20, 21, 22, 23])

    def test_what_is_no_memory_is_left_out(self):
        found = self.bind(kv=[torch.zeros(0), torch.zeros(2, device="meta"), torch.zeros(2).to_sparse(), None, 3])
        self.assertEqual(list(found.names), [])

    def test_shared_memory_counts_once(self):
        import numpy

        array = numpy.zeros(64, dtype=numpy.uint8)
        found = self.bind(a=torch.from_numpy(array), b=torch.from_numpy(array[8:16]), c=torch.from_numpy(array[60:]))
        self.assertEqual(list(found.names), ["a"])

    def test_holding(self):
        kv = torch.zeros(16)
        found = self.bind(kv=kv)
        self.assertEqual(found.holding(kv.data_ptr() + 60, 4).name, "kv")
        self.assertIsNone(found.holding(kv.data_ptr() + 60, 8))
        self.assertIsNone(found.holding(kv.data_ptr() - 4, 4))

    def test_moved(self):
        model, kv = Model(), [torch.zeros(4)]
        found = self.bind(model=model, kv=kv)
        self.assertEqual(found.moved(), "")
        model.up.weight.data = torch.ones(8, 8)
        self.assertEqual(found.moved(), "model.up.weight")
        found.look_again()
        self.assertEqual(found.moved(), "")
        kv[0] = torch.zeros(4)
        self.assertEqual(found.moved(), "kv.0")

    def test_resized(self):
        kv = torch.zeros(4)
        found = self.bind(kv=kv)
        kv.untyped_storage().resize_(1 << 20)
        self.assertEqual(found.moved(), "kv")

    def test_looking_for_moves_calls_nothing_for_each_tensor(self):
        def effort(count):
            found = self.bind(model=torch.nn.Sequential(*(Model() for _ in range(count))))
            return calls_of(found.moved)

        self.assertEqual(effort(2), effort(200))


class Results(OnFakeDevice):
    def there_and_back(self, value, **bind):
        bindings = Bindings(bind, "", 0)
        packed = Outputs(value, bindings)
        keep = [(torch.zeros(size, dtype=torch.uint8)) for _, size in packed.regions]
        memory = [(tensor.data_ptr(), len(tensor)) for tensor in keep]
        owner = object()
        self.kept = keep
        return rebuild(json.loads(json.dumps(packed.packed)), bindings, lambda index: memory[index], owner), packed, memory

    def test_layouts(self):
        for tensor in (
            torch.zeros(3, 4, dtype=torch.bfloat16),
            torch.zeros(3, 4)[:, 1:3],
            torch.zeros(2, 3).T,
            torch.tensor(5, dtype=torch.int64),
            torch.zeros(6, dtype=torch.float8_e4m3fn),
            torch.zeros(2, 1, dtype=torch.complex64),
            torch.zeros(1, 4).expand(5, 4),
            torch.zeros(7, dtype=torch.bool)[::2],
            torch.zeros(0, 4),
        ):
            with self.subTest(tensor=tuple(tensor.shape), dtype=tensor.dtype):
                back, packed, memory = self.there_and_back(tensor)
                self.assertEqual((back.dtype, back.shape, back.stride()), (tensor.dtype, tensor.shape, tensor.stride()))
                self.assertEqual([size for _, size in memory], [size for _, size in packed.regions])
                if tensor.numel():
                    self.assertEqual(back.data_ptr(), memory[0][0])
                    self.assertEqual(packed.regions[0][0], tensor.data_ptr())

    def test_bytes_are_those_of_the_view(self):
        _, packed, _ = self.there_and_back(torch.zeros(10, 10)[2:4, 3:5])
        self.assertEqual(packed.regions[0][1], 4 * (10 + 2))

    def test_structure(self):
        cache, x = [torch.zeros(4)], torch.zeros(2)
        back, packed, _ = self.there_and_back(Result(x, (x, None, x[1:]), cache), kv=cache)
        self.assertIs(type(back), Result)
        self.assertIs(back.logits, back.hidden[0])
        self.assertEqual(back.hidden[2].data_ptr() if False else len(packed.regions), 2)
        self.assertIs(back.cache, cache)

    def test_bound_outputs_are_views_of_the_engine(self):
        kv = torch.zeros(4, 8)
        back, packed, _ = self.there_and_back({"row": kv[2]}, kv=kv)
        self.assertEqual(packed.regions, [])
        kv[2] = 5
        self.assertTrue(torch.equal(back["row"], torch.full((8,), 5.0)))
        self.assertEqual(back["row"].data_ptr(), kv[2].data_ptr())

    def test_refusals(self):
        class Odd(torch.Tensor):
            pass

        for value, text in (
            (torch.zeros(2, device="meta"), "output is on meta"),
            ([torch.zeros(2).to_sparse()], r"output\[0\] has layout"),
            ({"a": torch.zeros(2).as_subclass(Odd)}, r"output\['a'\] is a .*Odd"),
            (torch.zeros(2, dtype=torch.complex64).conj(), "output is a conjugate"),
            ([[torch.zeros(2)], object()], r"output\[1\] is a builtins.object"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(Unsupported, text):
                Outputs(value, Bindings({}, "", 0))

    def test_not_bound_here(self):
        kv = [torch.zeros(4)]
        packed = Outputs([kv, kv[0]], Bindings({"kv": kv}, "", 0)).packed
        with self.assertRaisesRegex(Unsupported, "kv, which is not bound here"):
            rebuild(packed, Bindings({}, "", 0), lambda index: (0, 0), None)
        with self.assertRaisesRegex(Unsupported, "binding kv.0, which does not exist in this process"):
            rebuild(packed["list"][1], Bindings({}, "", 0), lambda index: (0, 0), None)

    def test_differences(self):
        a, nan = torch.zeros(3), torch.tensor([1.0, float("nan")])
        self.assertEqual(first_difference(tensors_of([a, nan]), tensors_of([a.clone(), nan.clone()])), "")
        self.assertEqual(first_difference(tensors_of([a, nan]), tensors_of([a, nan + 1])), "[1]")
        self.assertIn("tensors against", first_difference(tensors_of([a]), tensors_of([a, a])))
        self.assertIn("float64", first_difference(tensors_of(a), tensors_of(a.double())))
        self.assertEqual(first_difference(tensors_of(a), tensors_of(-a)), ".", "minus zero has other bits")


class Facts(OnFakeDevice):
    def test_what_changes_is_seen(self):
        def of(model, **more):
            return facts.engine_facts(Bindings({"model": model}, "", 0), more)

        first = of(Model(), seed=1)
        self.assertEqual(first, of(Model(), seed=1))
        self.assertNotEqual(first["constants"], of(Model(16), seed=1)["constants"])
        self.assertNotEqual(first["constants"], of(Model().half(), seed=1)["constants"])
        self.assertEqual(of(Model(), seed=2)["engine.seed"], "2")
        self.assertNotEqual(first["code"], of(torch.nn.Linear(8, 8))["code"])

    def test_settings(self):
        before = facts._settings()
        torch.set_float32_matmul_precision("high")
        self.addCleanup(torch.set_float32_matmul_precision, "highest")
        self.assertNotEqual(before, facts._settings())

    def test_cudnn(self):
        """Told by the file that is loaded; asked for its version only where that can't be found."""
        from unittest import mock

        library = mock.MagicMock()
        library.getCompileVersion.return_value = (9, 19, 0)
        with tempfile.NamedTemporaryFile() as file, mock.patch.object(torch._C, "_cudnn", library, create=True):
            seen = set()
            for text in (b"one", b"two", b"longer"):
                file.seek(0)
                file.write(text)
                file.flush()
                with mock.patch.object(facts, "_loaded_path", lambda name, symbol: file.name):
                    seen.add(facts._cudnn())
            self.assertEqual(len(seen), 3)
            self.assertTrue(all(fact.startswith("9.19.0 ") for fact in seen), seen)
            with mock.patch.object(facts, "_loaded_path", side_effect=OSError):
                with mock.patch.object(torch.backends.cudnn, "version", lambda: 91900):
                    self.assertEqual(facts._cudnn(), "91900")

    def test_path_of_a_loaded_library(self):
        self.assertRegex(os.path.basename(facts._loaded_path("libc.so.6", "strlen")), "^libc")
        with self.assertRaises(OSError):
            facts._loaded_path("libnobody-has-this.so.1", "strlen")

    def test_effort(self):
        """In proportion to the modules, and without reading a source again."""

        def effort(count):
            bindings = Bindings({"model": torch.nn.Sequential(*(Model() for _ in range(count)))}, "", 0)
            facts.engine_facts(bindings, {})
            with mock.patch("builtins.open", side_effect=AssertionError("a file is read again")):
                return calls_of(lambda: facts.engine_facts(bindings, {}))

        facts._file_hashes.clear()
        self.assertLess(effort(200), 11 * effort(20))

    def write(self, folder, helper):
        for name, text in (("engine_under_test", "import helper_under_test as h\nhelp_it = h.help_it\n"
                            "def run(b):\n    return lambda: help_it(b)\n"), ("helper_under_test", helper)):
            with open(os.path.join(folder, name + ".py"), "w", encoding="ascii") as file:
                file.write(text)
            sys.modules.pop(name, None)
        facts._file_hashes.clear()
        importlib.invalidate_caches()
        return facts.function_hash(importlib.import_module("engine_under_test").run(1))

    def test_source_of_a_function(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            sys.path.insert(0, folder)
            stack.callback(sys.path.remove, folder)
            sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
            stack.callback(setattr, sys, "dont_write_bytecode", before)
            first = self.write(folder, "def help_it(b):\n    return b\n")
            self.assertEqual(first, self.write(folder, "def help_it(b):\n    return b\n"))
            self.assertNotEqual(first, self.write(folder, "def help_it(b):\n    return b + 1\n"))

    def test_source_of_a_function_by_its_module(self):
        """`h.help_it(b)`, the usual way to call a function of another file."""
        with self.own_files() as write:
            def of(helper):
                engine = write(engine_of_functions="import helper_of_functions as h\ndef run(b):\n    return lambda: h.help_it(b)\n", helper_of_functions=helper)
                return facts.function_hash(engine.run(1))

            first = of("def help_it(b):\n    return b\n")
            self.assertEqual(first, of("def help_it(b):\n    return b\n"))
            self.assertNotEqual(first, of("def help_it(b):\n    return b + 1\n"))

    @contextlib.contextmanager
    def own_files(self):
        """write(module=source, ...) writes files, and imports the first one anew."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]), mock.patch.object(sys, "dont_write_bytecode", True):
            def write(**sources):
                for name, text in sources.items():
                    with open(os.path.join(folder, name + ".py"), "w", encoding="ascii") as file:
                        file.write(text)
                    sys.modules.pop(name, None)
                facts._file_hashes.clear()
                importlib.invalidate_caches()
                return importlib.import_module(next(iter(sources)))

            yield write

    MODEL = """import torch, helper_a, base_b
from helper_c import part
class Scheme:
    def __init__(self): self.size = 1
class Own(base_b.Base):
    def __init__(self):
        super().__init__()
        self.scheme, self.more = Scheme(), base_b.Part()
    def forward(self, x): return helper_a.act(part(x))
"""
    HELPERS = {"helper_a": "import helper_d\ndef act(x): return helper_d.deep(x)\n", "helper_c": "def part(x): return x\n", "helper_d": "def deep(x): return x\n",
               "base_b": "import torch, part_e\nclass Base(torch.nn.Module): pass\nclass Part(part_e.Inherited): pass\n",
               "given_g": "class Given: pass\n", "part_e": "import method_f\nclass Inherited:\n    @staticmethod\n    def use(x): return method_f.use(x)\n", "method_f": "def use(x): return x\n"}

    def code_of(self, write, packages=(), **other):
        model = write(model_of_a_user=self.MODEL, **{**self.HELPERS, **other}).Own()
        model.given = importlib.import_module("given_g").Given()  # whose class no code names
        return facts.engine_facts(Bindings({"model": model}, "", 0), {}, None, packages)["code"]

    def test_own_files_that_a_model_calls_and_inherits_from(self):
        """A helper in another file than the model's class changes what graphs compute, and no tensor shows it."""
        with self.own_files() as write:
            first = self.code_of(write)
            self.assertEqual(first, self.code_of(write))
            for name, text in self.HELPERS.items():
                self.assertNotEqual(first, self.code_of(write, **{name: text + "# another\n"}), name)
            for name in ("method_f", "helper_c"):  # by its module, and by its name
                self.assertEqual(self.code_of(write, [name]), self.code_of(write, [name], **{name: self.HELPERS[name] + "# another\n"}), "its version is a fact")

    def test_own_files_are_looked_for_in_the_same_order_in_each_process(self):
        """Beyond the limit it matters which functions come first; the order of a set of names differs in each process."""
        many = "".join(f"def f{number}(x): return x\n" for number in range(40))
        source = many + "def run():\n    return lambda: (" + ", ".join(f"f{number}" for number in range(40)) + ")\n"
        script = ("import sys; sys.path.insert(0, sys.argv[1])\nfrom medusa.torch import facts\nimport many_functions\nfacts.MAX_FUNCTIONS = 20\nseen = []\n"
                  "facts.function_values = lambda call, function, names: seen.append(function.__name__) or []\n"
                  "facts.function_hash(many_functions.run())\nprint(seen)\n")
        with self.own_files() as write:
            folder = os.path.dirname(write(many_functions=source).__file__)
            said = {subprocess.run([sys.executable, "-B", "-c", script, folder], check=True, capture_output=True, text=True,
                                   env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2", "3")}
        self.assertEqual(len(said), 1)

    def test_variables_by_which_compilers_choose(self):
        of = facts.compilers
        self.assertEqual(of({}), "none")
        self.assertEqual(of({"TRITON_F32_DEFAULT": "ieee", "TORCHINDUCTOR_EMULATE_PRECISION_CASTS": "1", "PATH": "/bin"}),
                         "TORCHINDUCTOR_EMULATE_PRECISION_CASTS=1 TRITON_F32_DEFAULT=ieee")
        places = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_COMPILE_THREADS", "TRITON_PTXAS_PATH", "CUBLASLT_LOG_LEVEL",
                  "TRITON_CACHE_AUTOTUNING", "TORCH_COMPILE_DEBUG", "FLASHINFER_WORKSPACE_BASE", "TORCHINDUCTOR_FX_GRAPH_CACHE")
        self.assertEqual(of(dict.fromkeys(places, "/somewhere")), "none")
        one, other = (of({"TRITON_OVERRIDE_ARCH": end * 5000}) for end in "ab")
        self.assertNotEqual(one, other)
        self.assertLess(len(one), 100)
        many = {f"TRITON_{number}": "x" * 60 for number in range(100)}  # an artifact takes 4,096 bytes
        self.assertLess(len(of(many)), 4000)
        self.assertNotEqual(of(many), of({**many, "TRITON_99": "y"}))
        with mock.patch.dict(os.environ, TRITON_DEFAULT_FP_FUSION="0"):
            self.assertIn("TRITON_DEFAULT_FP_FUSION=0", facts.engine_facts(Bindings({}, "", 0), {})["compilers"])

    def test_functions_of_all_kinds(self):
        class Call:
            def __call__(self):
                return 1

        kinds = [lambda: 1, functools.partial(self.write, 1), self.write, Call(), torch.nn.Identity(), len]
        for kind in kinds:
            self.assertEqual(len(facts.function_hash(kind)), 24)
        self.assertNotEqual(facts.function_hash(kinds[0]), facts.function_hash(len))


class Live(OnFakeDevice):
    def record(self, forward, warmup=2):
        self.recorder = Recorder(0, None, warmup)
        return self.recorder.run(forward, lambda draws: None)

    def assert_clean(self):
        self.assertIs(self.cuda.current, self.cuda.main)
        self.assertFalse(self.cuda.generator.capturing, "the generator believes to be capturing")
        self.assertEqual(self.cuda.recording_pools, [])
        before = self.cuda.generator.offset
        self.cuda.generator.draw()
        self.assertEqual(self.cuda.generator.offset, before + 4)

    def test_forwards(self):
        seen = []

        def forward():
            seen.append((self.cuda.current.name, self.cuda.current.capturing is not None))
            return torch.ones(1)

        captured = self.record(forward)
        self.assertEqual(seen, [("side", False)] * 2 + [("side", True)])
        self.assertTrue(captured.handle)
        self.assertFalse(captured.draws)
        self.assert_clean()

    def test_workspaces_of_graphs_are_their_own(self):
        for own, backend in ((False, "native"), (True, "native"), (True, "cudaMallocAsync")):
            dropped = own and backend == "native"
            events = []

            def forward():
                events.append("captured" if self.cuda.current.capturing else "warmed up")

            def drop():
                self.assertIsNone(self.cuda.current.capturing)
                events.append("dropped")

            with mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", drop, create=True), mock.patch.object(
                torch.cuda, "get_allocator_backend", lambda: backend  # pylint: disable=cell-var-from-loop
            ):
                recorder = Recorder(0, None, 1, own)
                recorder.run(forward, lambda draws: None)
            self.assertEqual(
                events, ["warmed up", "dropped", "captured", "dropped"] if dropped else ["warmed up", "captured"]
            )

    def test_random_numbers(self):
        self.assertTrue(self.record(lambda: self.cuda.generator.draw()).draws)
        self.assertTrue(self.record(lambda: None, warmup=0).draws, "nobody knows without a warm-up")

    def test_exceptions_pass_and_leave_nothing_open(self):
        for broken in (False, True):
            for error in (ValueError("mine"), KeyboardInterrupt(), RuntimeError("CUDA error: illegal")):
                with self.subTest(error=error, broken=broken):
                    calls = []

                    def forward():
                        calls.append(1)
                        if len(calls) == 3:
                            self.cuda.broken = broken
                            raise error

                    with self.assertRaises(type(error)) as caught:
                        self.record(forward)
                    self.assertIs(caught.exception, error)
                    self.assert_clean()
                    self.recorder.run(lambda: None, lambda draws: None)
                    self.assert_clean()

    def test_exceptions_in_the_warm_up(self):
        def forward():
            raise ValueError("mine")

        with self.assertRaisesRegex(ValueError, "mine"):
            self.record(forward)
        self.assert_clean()

    def test_broken_without_an_exception(self):
        def forward():
            self.cuda.broken = self.cuda.current.capturing is not None

        with self.assertRaisesRegex(RuntimeError, "previous error during capture"):
            self.record(forward)
        self.assert_clean()

    def test_instantiation_fails(self):
        self.cuda.fail_instantiate = True
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            self.record(lambda: None)
        self.assert_clean()

    def test_inside_a_capture(self):
        self.cuda.current.capturing = object()
        with self.assertRaisesRegex(RuntimeError, "while this stream is being captured"):
            self.record(lambda: None)
        self.cuda.current.capturing = None


class Without(OnFakeDevice):
    def test_live(self):
        with self.process("none") as library:
            graphs = self.engine()
            step = graphs.get("decode", 4, self.forward)
            graphs.ready()
            self.assertEqual((step.restored, step.reason), (False, ""))
            self.assertIs(step.replay(), step.outputs)
            self.assertIs(graphs.get("decode", 4, self.forward), step)
            self.assertEqual((library.bound, library.facts, library.labels), ({}, {}, []))
            graphs.close()
            with self.assertRaisesRegex(RuntimeError, "closed"):
                step.replay()
            with self.assertRaisesRegex(RuntimeError, "closed"):
                graphs.get("decode", 4, self.forward)


class Chain(OnFakeDevice):
    """Capture in one process, restore in the next."""

    def capture(self, forward=None, **more):
        with self.process("capture") as library:
            graphs = self.engine(**more)
            for batch in (4, 2):
                graphs.get("decode", batch, forward or self.forward)
            graphs.ready()
        return library

    def restore(self, artifact, forward=None, batch=4, path=None, **more):
        with self.process("restore", artifact) as library:
            graphs = medusa.Graphs(path, **self.changed(**more)) if more else self.engine()
            step = graphs.get("decode", batch, forward or self.forward)
            self.library = library
            return graphs, step

    def changed(self, **options):
        self.model, self.kv = Model(), [torch.zeros(2, 8) for _ in range(2)]
        self.inputs = {"x": torch.zeros(4, 8)}
        bind = {"model": self.model, "kv": self.kv, "inputs": self.inputs}
        return {"bind": bind, **options}

    def test_complete_takes_random_inputs(self):
        for randomize, marks in ((None, ["ready"]), (lambda kind, batch, numbers: None, ["ready", "complete"])):
            with self.process("capture") as library:
                graphs = self.engine(randomize=randomize)
                graphs.complete()
                graphs.close()
            self.assertEqual(library.marks, marks)

    def test_record(self):
        library = self.capture(want=[2, 4])
        self.assertEqual(library.labels, [("decode", 4), ("decode", 2)])
        self.assertEqual(library.wanted, {"decode": [2, 4]})
        self.assertEqual(library.marks, ["ready"])
        self.assertIn("torch", library.facts)
        self.assertEqual({name: role for name, (_, _, role) in library.bound.items()}, {
            "kv.0": _api.STATE, "kv.1": _api.STATE, "inputs.x": _api.INPUT,
            "model.table": _api.CONSTANT, "model.up.weight": _api.CONSTANT, "model.plain": _api.CONSTANT})
        self.assertEqual(list(library.artifact["decode", 4]["outputs"].values()), [128])
        self.assertEqual(library.refused, {})

    def test_restore(self):
        recorded = self.capture()
        with self.process("restore", recorded.artifact) as library:
            library.timeouts = 3
            graphs = self.engine()
            step = graphs.get("decode", 4, self.forward)
            self.assertTrue(step.restored, step.reason)
            self.assertEqual(len(self.cuda.graphs), 2, "only those of the capture")
            out = step.replay()
            self.assertEqual(self.cuda.launched, [(0xE4, 0x57)])
            self.assertEqual((out["logits"].shape, out["count"]), ((4, 8), 3))
            self.assertEqual(out["row"].data_ptr(), self.kv[0][1].data_ptr())
            self.assertEqual(library.facts, recorded.facts)
            self.assertEqual(set(library.bound) - set(recorded.bound), {rng.SEED, rng.OFFSET})
            self.assertFalse(graphs.get("decode", 3, self.forward).restored)

    def test_where_ranks_meet_no_wait_is_cut_and_a_graph_is_asked_for_again_when_it_is_whole(self):
        artifact = self.capture().artifact
        for parted, restored in ((0, True), (2, False)):
            with mock.patch.dict(os.environ, MEDUSA_RANKS_FOLDER="/meet"), self.process("restore", artifact) as library:
                library.parted = parted
                step = self.engine().get("decode", 4, self.forward)
                self.assertEqual((step.restored, library.waits), (restored, [_api.FOREVER] * 2), step.reason)
                self.assertIn("" if restored else "rank 1 has not asked for it", step.reason)

    def test_memory_lives_as_long_as_an_output(self):
        artifact = self.capture().artifact
        with self.process("restore", artifact) as library:
            graphs = self.engine()
            logits = graphs.get("decode", 4, self.forward).replay()["logits"]
            graphs.close()
            del graphs
            gc.collect()
            self.assertEqual(library.released, 0)
            view = logits[1]
            del logits
            gc.collect()
            self.assertEqual(library.released, 0, "a view still lies there")
            del view
            gc.collect()
            self.assertEqual(library.released, 1)

    def test_launch_errors_have_names(self):
        _, step = self.restore(self.capture().artifact)
        step._launch = lambda graph, stream: 700
        with mock.patch("medusa._driver.error_name", lambda code: f"CUDA_ERROR_{code}"):
            with self.assertRaisesRegex(RuntimeError, "CUDA_ERROR_700"):
                step.replay()

    def assert_live(self, step, why):
        self.assertFalse(step.restored)
        self.assertRegex(step.reason, why)
        self.assertIs(step.replay(), step.outputs)

    def test_another_function(self):
        scope = {"run": self.forward}
        exec(compile("def forward():\n    return run()\n", "<other>", "exec"), scope)  # pylint: disable=exec-used
        _, step = self.restore(self.capture().artifact, scope["forward"])
        self.assert_live(step, "the source of the graph's function has changed")

    def test_what_is_captured_live_is_named_in_a_restore(self):
        scope = {"run": self.forward}
        exec(compile("def forward():\n    return run()\n", "<other>", "exec"), scope)  # pylint: disable=exec-used
        artifact = self.capture().artifact
        _, step = self.restore(artifact, scope["forward"])  # the C side has handed it out, and the adapter won't have it
        self.assertFalse(step.restored)
        self.assertEqual(self.library.labels, [("decode", 4)])
        graphs, step = self.restore(artifact)
        self.assertTrue(step.restored)
        self.assertEqual(self.library.labels, [])
        with self.process("restore", artifact) as library:
            graphs, library.split = self.engine(), True
            with self.assertLogs("medusa.torch", "ERROR") as logged:
                self.assertFalse(graphs.get("decode", 7, self.forward).restored)
        self.assertIn("values that graphs pass to each other may be lost: ", logged.output[0])

    def test_another_fact(self):
        artifact = self.capture(fingerprint={"quantization": "none"}).artifact
        _, step = self.restore(artifact, fingerprint={"quantization": "fp8"})
        self.assert_live(step, "engine.quantization: artifact has none, this process fp8")

    def test_another_layout_of_a_binding(self):
        artifact = self.capture().artifact
        with self.process("restore", artifact):
            options = self.changed()
            self.kv[1] = torch.zeros(8, 2)
            self.assert_live(medusa.Graphs(**options).get("decode", 4, self.forward), "binding kv.1: artifact has")

    def test_damaged_notes(self):
        for note, why in (
            (b"", "not recorded by this version"),
            (b"[]", "not recorded by this version"),
            (b"{", "can't be read"),
            (b'{"version":1}', "can't be read"),
            (b'{"version":2}', "not recorded by this version"),
        ):
            artifact = self.capture().artifact
            artifact["decode", 4]["note"] = note
            with self.subTest(note=note):
                self.assert_live(self.restore(artifact)[1], why)

    def test_outputs_that_lie(self):
        artifact = self.capture().artifact
        note = json.loads(artifact["decode", 4]["note"])
        note["outputs"]["dict"][0][1]["tensor"]["shape"] = [400, 8]
        artifact["decode", 4]["note"] = json.dumps(note).encode()
        self.assert_live(self.restore(artifact)[1], "can't be made")

    def test_another_artifact(self):
        artifact = self.capture().artifact
        os.environ["MEDUSA_ARTIFACT"] = os.path.join(tempfile.gettempdir(), "this.medusa")
        self.addCleanup(os.environ.pop, "MEDUSA_ARTIFACT")
        with self.assertLogs("medusa.torch", "WARNING") as logged:
            _, step = self.restore(artifact, path="that.medusa", warmup=1)
        self.assert_live(step, "restores .*this.medusa, not that.medusa")
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(self.library.bound, {})
        _, step = self.restore(artifact, path=os.environ["MEDUSA_ARTIFACT"], warmup=1)
        self.assertTrue(step.restored, step.reason)

    def test_moved_after_binding(self):
        artifact = self.capture().artifact
        with self.process("restore", artifact):
            graphs = self.engine()
            first = graphs.get("decode", 4, self.forward)
            self.assertTrue(first.restored)
            self.model.up.weight.data = torch.ones(8, 8)
            second = graphs.get("decode", 4, self.forward)
            self.assert_live(second, "model.up.weight is not where it was bound")
            self.assertIs(graphs.get("decode", 4, self.forward), second)

    def test_moved_before_a_recording(self):
        with self.process("capture") as library:
            graphs = self.engine()
            self.kv[1] = torch.zeros(2, 8)
            graphs.get("decode", 4, self.forward)
            self.assertEqual(list(library.refused.values()), ["kv.1 is not where it was bound"])

    def test_made_by_the_first_forward(self):
        with self.process("capture") as library:
            graphs = self.engine()

            def forward():
                if len(self.kv) == 2:
                    self.kv.append(torch.zeros(2, 8))
                return self.forward()

            with self.assertLogs("medusa.torch", "WARNING") as logged:
                graphs.get("decode", 4, forward)
            self.assertIn("kv.2 was made by the first forward", logged.output[0])
            self.assertIn("kv.2", library.bound)

    def test_outputs_that_no_restore_could_give(self):
        library = self.capture(lambda: [self.forward(), object()])
        self.assertEqual(set(library.refused.values()), {"output[1] is a builtins.object"})
        self.assertEqual(library.artifact, {})

    def test_exceptions(self):
        with self.process("capture") as library:
            graphs, calls = self.engine(), []

            def forward():
                calls.append(1)
                if len(calls) == 3:
                    raise KeyboardInterrupt
                return self.forward()

            with self.assertRaises(KeyboardInterrupt):
                graphs.get("decode", 4, forward)
            self.assertEqual((library.labels, library.said), ([], {}))
            graphs.get("decode", 4, self.forward)
            self.assertEqual(library.labels, [("decode", 4)])

    def test_two_engines(self):
        with self.process("capture") as library:
            first, second = self.engine(), self.engine(name="draft", fingerprint={"is": "draft"})
            first.get("decode", 4, self.forward)
            second.get("decode", 4, self.forward)
            self.assertEqual(library.labels, [("decode", 4), ("draft.decode", 4)])
            self.assertNotIn("engine.is", library.facts)
        with self.process("restore", library.artifact) as restored:
            first = self.engine()
            self.assertTrue(first.get("decode", 4, self.forward).restored)
            second = self.engine(name="draft", fingerprint={"is": "another"})
            self.assert_live(second.get("decode", 4, self.forward), "engine.is: artifact has draft, this process another")
            self.assertEqual(restored.facts, library.facts)

    def said(self, library):
        return [dict(part) for part in (library.bound, library.facts, library.wanted, library.said, library.refused)]

    def test_one_name_twice(self):
        """A second one must not move what the first one has bound; when that is closed, it may."""
        artifact = self.capture().artifact
        for mode in ("capture", "restore"):
            with self.subTest(mode=mode), self.process(mode, artifact) as library:
                first = self.engine()
                before, kv = self.said(library), self.kv
                with self.assertLogs("medusa.torch", "WARNING"):
                    second = self.engine(want=[4], fingerprint={"other": "x"})
                self.assert_live(second.get("decode", 4, self.forward), "another Graphs with name=''")
                self.assertFalse(second.available("decode", 4))
                self.assertEqual((self.said(library), library.labels), (before, []))
                second.close()
                self.assertEqual(library.released, 0)
                self.assertEqual(library.bound["kv.0"][0], kv[0].data_ptr())
                first.close()
                third = self.engine()
                self.assertEqual(library.bound["kv.0"][0], self.kv[0].data_ptr())
                self.assertEqual(third.get("decode", 4, self.forward).restored, mode == "restore")
                self.assertEqual(library.labels, [("decode", 4)] if mode == "capture" else [])

    def test_one_name_twice_when_the_first_is_gone(self):
        with self.process("restore", self.capture().artifact):
            first = self.engine()
            del first
            gc.collect()
            self.assertTrue(self.engine().get("decode", 4, self.forward).restored)

    def test_names_that_meet(self):
        with self.process("capture") as library:
            first = medusa.Graphs(bind={"draft": {"kv": torch.zeros(2)}})
            before = self.said(library)
            with self.assertLogs("medusa.torch", "WARNING"):
                second = medusa.Graphs(bind={"kv": torch.zeros(2)}, name="draft")
            self.assert_live(second.get("decode", 1, lambda: torch.ones(1)), "another Graphs has bound draft.kv")
            self.assertEqual(self.said(library), before)
            first.close()

    def test_one_name_twice_without_library(self):
        with self.process("none"):
            steps = [self.engine().get("decode", 4, self.forward) for _ in range(2)]
            self.assertEqual([step.reason for step in steps], ["", ""])

    def test_trigger(self):
        artifact = self.capture().artifact

        def stop():
            raise KeyboardInterrupt

        with self.process("restore", artifact) as library:
            graphs = self.engine(trigger=stop)
            library.trigger_callback.pointer(None)
            with self.assertRaises(KeyboardInterrupt):
                graphs.get("decode", 4, self.forward)
            self.assertTrue(graphs.get("decode", 4, self.forward).restored)


class Random(OnFakeDevice):
    def draw(self):
        self.cuda.generator.draw()
        return torch.ones(2)

    def test_bound_and_advanced(self):
        with self.process("capture") as library, mock.patch.object(rng, "find_words", lambda device: (4096, 8192)):
            graphs = self.engine()
            offset = self.cuda.generator.offset
            step = graphs.get("sample", 1, self.draw)
            self.assertEqual(step.increment, 4)
            self.assertEqual(self.cuda.generator.offset, offset + 8, "only the warm-up has drawn")
            self.assertEqual(library.bound[rng.SEED], (4096, 8, _api.INPUT))
            self.assertEqual(library.refused, {})
        with self.process("restore", library.artifact) as restored:
            step = self.engine().get("sample", 1, self.draw)
            self.assertTrue(step.restored, step.reason)
            seed, offset = rng._words[0]
            self.assertEqual(restored.bound[rng.OFFSET], (offset.data_ptr(), 8, _api.INPUT))
            self.cuda.generator.seed, self.cuda.generator.offset = 2**64 - 5, 40
            step.replay()
            self.assertEqual((seed.item(), offset.item(), self.cuda.generator.offset), (-5, 40, 44))

    def test_refused_when_not_found(self):
        def nowhere(device):
            raise rng.NotFound("2 seeds and 0 offsets among 9 words")

        with self.process("capture") as library, mock.patch.object(rng, "find_words", nowhere):
            self.engine().get("sample", 1, self.draw)
            self.assertRegex(list(library.refused.values())[0], "RNG .* not found: 2 seeds")

    def test_refused_when_seen_late(self):
        with self.process("capture") as library:
            step = self.engine().get("sample", 1, lambda: torch.ones(1))
            self.assertEqual(library.refused, {})
            self.cuda.graphs[-1].increment = 4
            step.replay()
            self.assertRegex(list(library.refused.values())[0], "draws random numbers")
            step.replay()
            self.assertEqual(self.cuda.graphs[-1].launches, 2)


class Logging(unittest.TestCase):
    def test_plain(self):
        with self.assertLogs("medusa.torch", "WARNING") as logged:
            logging.getLogger("medusa.torch").warning("graph %s/%d", "\x1b[31m\u202ecaf\u00e9\n\udcff", 8)
        self.assertEqual(logged.records[0].getMessage(), "graph \\x1b[31m\\u202ecaf\u00e9\\n\\udcff/8")


class Recording(OnFakeDevice):
    """What a capture does to graphs once all are made."""

    def setUp(self):
        super().setUp()
        self.replayed = []

    def randomize(self, kind, batch, generator):
        self.replayed.append((kind, batch, len(self.cuda.graphs)))
        self.inputs["x"].copy_(torch.rand(4, 8, generator=generator))
        self.kv[0].fill_(5)

    def launches(self):
        return [graph.launches for graph in self.cuda.graphs]

    def test_first_replay_is_on_valid_inputs(self):
        """The C side tests a graph before its first launch, on what its inputs hold then."""
        with self.process("capture") as library:
            graphs = self.engine(randomize=self.randomize)
            graphs.get("decode", 4, self.forward)
            graphs.ready()
            self.assertEqual((self.launches(), library.marks), ([1], ["ready"]))
        self.assertEqual(self.replayed, [("decode", 4, 1)])
        self.assertEqual(self.inputs["x"].sum().item(), 0, "inputs are put back")
        self.assertNotEqual(self.kv[0].max().item(), 5, "so is state")

    def test_no_replay_before_the_last_graph_is_made(self):
        """Kernels between the first launch of a graph and the last capture count as the engine's own, for the C side."""
        with self.process("capture"):
            graphs = self.engine(randomize=self.randomize)
            graphs.get("decode", 4, self.forward)
            graphs.get("decode", 2, self.forward)
            self.assertEqual((self.launches(), self.replayed), ([0, 0], []))
            graphs.ready()
            self.assertEqual(self.replayed, [("decode", 4, 2), ("decode", 2, 2)])
            graphs.get("decode", 1, self.forward)
            self.assertEqual(self.replayed[2:], [("decode", 1, 3)], "what is made on demand is tested at once")
            graphs.ready()
            self.assertEqual(self.launches(), [1, 1, 1])

    def test_no_replay_of_what_the_engine_has_launched(self):
        with self.process("capture"):
            graphs = self.engine(randomize=self.randomize)
            graphs.get("decode", 4, self.forward).replay()
            graphs.ready()
            self.assertEqual((self.launches(), self.replayed), ([1], []))

    def test_no_replay_without_values(self):
        with self.process("capture"):
            graphs = self.engine()
            graphs.get("decode", 4, self.forward)
            graphs.ready()
            self.assertEqual(self.launches(), [0])

    def test_prepare_is_called_between_warm_up_and_capture(self):
        seen = []
        with self.process("capture"):
            self.engine().get("decode", 4, self.forward, lambda: seen.append(len(self.cuda.graphs)))
        self.assertEqual(seen, [0], "before the graph")


class Verifying(OnFakeDevice):
    """Eager against replays on random inputs; the fake graph computes by calling `again`."""

    def run_verify(self, wrong, races=lambda: 0, **options):
        """wrong: what replays add to one element of their output; races(): what each run adds to another."""
        with self.process("verify") as library:
            rounds = []

            def randomize(kind, batch, generator):
                rounds.append((kind, batch))
                self.inputs["x"].copy_(torch.rand(4, 8, generator=generator))

            graphs = self.engine(randomize=randomize, **options)
            self.inputs["x"].fill_(3)
            before = {"x": self.inputs["x"].clone(), "kv": self.kv[0].clone()}

            def forward():
                out = self.forward()
                out["logits"] = out["logits"].clone()
                out["logits"].view(-1)[0] += races()

                def again():
                    out["logits"].copy_(self.forward()["logits"])
                    out["logits"].view(-1)[0] += races()
                    out["logits"].view(-1)[-1] += wrong

                if self.cuda.current.capturing:
                    self.cuda.graphs[-1].again = again
                return out

            warm_up = graphs.get("decode", 4, forward)
            self.assertFalse(warm_up.restored)
            self.assertEqual(rounds[0], ("decode", 4))
            self.assertTrue(torch.equal(self.inputs["x"], before["x"]))
            self.kv_after = self.kv[0][0, 0].item()
            return library, rounds

    def test_equal(self):
        library, rounds = self.run_verify(0)
        self.assertEqual((library.refused, len(rounds)), ({}, 3))
        self.assertEqual(self.kv_after, 9, "three forwards of warm-up and capture; all else was put back")

    def test_all_snapshots_hold_the_same(self):
        """However much memory is free when they are taken: eager runs take some."""
        free = iter([1 << 30, *([64] * 100)])
        with mock.patch("torch.cuda.mem_get_info", lambda device: (next(free, 64), 1 << 30)):
            library, rounds = self.run_verify(0)
        self.assertEqual((library.refused, len(rounds)), ({}, 3))

    def test_differs_from_eager(self):
        """Other kernels are chosen under capture: that is said, and no reason to refuse."""
        with self.assertLogs("medusa.torch", "WARNING") as logs:
            library, rounds = self.run_verify(1)
        self.assertEqual((library.refused, len(rounds), self.kv_after), ({}, 3, 9))
        self.assertRegex(logs.output[0], r"decode/4: on random inputs live replays differ from eager: output\['logits'\] by at most "
                                         r"[01][.0-9]* \(\d+ ULP\), in 1 elements in all")

    def test_beyond_what_the_user_accepts(self):
        for tolerance in (0.5, "0.5", "64ulp", 0):
            library, rounds = self.run_verify(1, eager_tolerance=tolerance)
            self.assertEqual(len(rounds), 1)
            self.assertRegex(list(library.refused.values())[0], r"^on random inputs a replay differs from eager: output\['logits'\] "
                                                                r".*, beyond eager_tolerance")
        for tolerance in (1.5, "2e0", "4000000000ulp"):
            library, _ = self.run_verify(1, eager_tolerance=tolerance)
            self.assertEqual(library.refused, {})

    def test_tolerance_by_environment(self):
        for text, refused in (("0.5", 1), ("1.5", 0), ("", 0), ("nonsense", 1)):
            with mock.patch.dict(os.environ, MEDUSA_EAGER_TOLERANCE=text):
                library, _ = self.run_verify(1)
            self.assertEqual(len(library.refused), refused, text)
        with self.assertRaisesRegex(ValueError, "eager_tolerance 'much'"):
            self.run_verify(1, eager_tolerance="much")

    def test_other_shapes_are_wrong(self):
        one, other = {"a": torch.ones(2)}, {"a": torch.ones(3)}
        self.assertIn("float32 (2,) against", verify._judge(one, other, difference.Tolerance()).wrong)

    def test_nondeterministic(self):
        turns = itertools.count()
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as report:
            with mock.patch.dict(os.environ, MEDUSA_VERIFY_REPORT=report.name):
                library, rounds = self.run_verify(0, lambda: next(turns))
            lines = [json.loads(line) for line in report]
        self.assertEqual((library.refused, len(rounds)), ({}, 3), "not wrong")
        self.assertEqual([(line["label"], line["batch"], line["verdict"], line["bytes"]) for line in lines],
                         [("decode", 4, "nondeterministic", 0)], "and not equal")
        self.assertRegex(lines[0]["reason"], r"^two live replays on the same random inputs differ: output\['logits'\] by at most 1 ")


class Differences(unittest.TestCase):
    def measured(self, one, other):
        return difference.measure({"t": one}, {"t": other})

    def test_equal(self):
        values = torch.tensor([1.0, float("nan"), -0.0])
        self.assertIsNone(self.measured(values, values.clone()))

    def test_sizes(self):
        one = torch.tensor([1.0, 2.0, 0.0])
        other = torch.tensor([1.0, 2.5, -0.0])
        found = self.measured(one, other)
        self.assertEqual((found.where, found.elements, found.absolute, found.ulps), ("t", 2, 0.5, 1 << 21))
        for dtype, ulps in ((torch.bfloat16, 1), (torch.float16, 8), (torch.float64, 1 << 45)):
            found = self.measured(torch.tensor([1.0], dtype=dtype), torch.tensor([1.0078125], dtype=dtype))
            self.assertEqual((found.ulps, found.absolute), (ulps, 0.0078125), dtype)

    def test_no_numbers(self):
        for odd in (float("nan"), float("inf")):
            found = self.measured(torch.tensor([1.0]), torch.tensor([odd]))
            self.assertEqual(found.absolute, float("inf"))
            self.assertFalse(difference.Tolerance(1e30).holds(found))
            self.assertFalse(difference.Tolerance("999999999999ulp").holds(found))

    def test_integers_and_complex(self):
        found = self.measured(torch.tensor([1, 2, 3]), torch.tensor([1, 2, 7]))
        self.assertEqual((found.elements, found.absolute, found.ulps), (1, 4.0, None))
        self.assertFalse(difference.Tolerance("64ulp").holds(found), "they have none")
        found = self.measured(torch.tensor([1 + 1j]), torch.tensor([1 + 3j]))
        self.assertEqual(found.absolute, 2.0)

    def test_the_largest_of_several(self):
        one = {"a": torch.zeros(4), "b": torch.zeros(4)}
        other = {"a": torch.tensor([0.0, 1.0, 0.0, 0.0]), "b": torch.tensor([3.0, 1.0, 0.0, 0.0])}
        found = difference.measure(one, other)
        self.assertEqual((found.where, found.elements, found.absolute), ("b", 3, 3.0))


class Capacity(OnFakeDevice):
    def test_without_library(self):
        answer = medusa.kv_capacity("key", 1000, 0.9, profile=lambda: None)
        self.assertEqual(answer.blocks, (int((1 << 31) * 0.9) - (1 << 30)) // 1000)
        self.assertEqual((answer.bytes, answer.from_profile), (answer.blocks * 1000, False))
        self.assertEqual(answer.reason, "no Medusa library is preloaded")
        measured = []
        less = medusa.kv_capacity("key", 1000, 0.9, profile=lambda: measured.append(7500), most=lambda: measured[0])
        self.assertEqual((less.bytes, less.blocks), (7000, 7))

    def ask(self, mode, from_profile, reason):
        """The answer of a C side, and how often the forward ran."""
        from unittest import mock

        ran = []

        def answer(key, block_bytes, utilization, callback, most=None):
            if not from_profile:
                callback.pointer(None)
            return _api.Kv(bytes=5000, blocks=5, from_profile=from_profile), reason

        with self.process(mode), mock.patch.object(_api, "present", lambda: True):
            with mock.patch.object(_api, "kv_capacity", answer):
                return medusa.kv_capacity("key", 1000, profile=lambda: ran.append(1)), len(ran)

    def test_reasons(self):
        """Who waits for a profiling forward can read why, in the answer and in the log."""
        answer, ran = self.ask("restore", 1, "")
        self.assertEqual((answer.bytes, answer.from_profile, answer.reason, ran), (5000, True, "", 0))
        for mode in ("restore", "verify"):
            with self.assertLogs("medusa.torch", "WARNING") as logged:
                answer, ran = self.ask(mode, 0, "KV profile: none is stored")
            self.assertEqual((answer.from_profile, answer.reason, ran), (False, "KV profile: none is stored", 1))
            self.assertIn("KV capacity for key 'key' is measured: KV profile: none is stored", logged.output[0])
        answer, ran = self.ask("capture", 0, "stale")
        self.assertEqual(answer.reason, "nothing is restored in this process: its mode is capture")

    def test_what_the_engine_measures_itself_is_told(self):
        """The C side reads the number after the forward."""
        from unittest import mock

        measured, told = [], []

        def answer(key, block_bytes, utilization, callback, most):
            told.append(most.value)
            callback.pointer(None)
            told.append(most.value)
            return _api.Kv(bytes=5000, blocks=5), ""

        with self.process("capture"), mock.patch.object(_api, "present", lambda: True):
            with mock.patch.object(_api, "kv_capacity", answer):
                medusa.kv_capacity("key", 1000, profile=lambda: measured.append(5999), most=lambda: measured[0])
                medusa.kv_capacity("key", 1000, profile=lambda: None, most=lambda: -1)
        self.assertEqual(told, [2**64 - 1, 5999, 2**64 - 1, 0])

    def test_refusals(self):
        from unittest import mock

        def refuse(*request):
            raise _api.Error(_api.INVALID, "medusa_kv_request: block_bytes is 0")

        with self.process("restore"), mock.patch.object(_api, "present", lambda: True):
            with mock.patch.object(_api, "kv_capacity", refuse):
                with self.assertRaisesRegex(RuntimeError, "medusa: medusa_kv_request: block_bytes is 0"):
                    medusa.kv_capacity("key", 0)

    def test_exceptions(self):
        def profile():
            raise ValueError("mine")

        with self.assertRaisesRegex(ValueError, "mine"):
            medusa.kv_capacity("key", 1000, 0.9, profile=profile)
        with self.assertRaisesRegex(RuntimeError, "no stored answer"):
            medusa.kv_capacity("key", 1000)
        with self.assertRaisesRegex(RuntimeError, "no room"):
            medusa.kv_capacity("key", 1 << 40, profile=lambda: None)


class Example(OnFakeDevice):
    """examples/decode.py, the whole program, in the three ways that its head names."""

    def main(self, mode, artifact=None):
        path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "decode.py")
        spec = importlib.util.spec_from_file_location("decode_example", path)
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        said, get = io.StringIO(), medusa.Graphs.get

        def computing(graphs, kind, batch, forward):
            step = get(graphs, kind, batch, forward)
            out = step.outputs
            if step.restored:
                step.replay = lambda: out.copy_(forward())
            else:
                self.cuda.graphs[-1].again = lambda: out.copy_(forward())
            return step

        with self.process(mode, artifact) as library, contextlib.redirect_stdout(said), \
                mock.patch.object(example.medusa.Graphs, "get", computing):
            code = example.main(["--device", "cpu", "--width", "32", "--layers", "2", "--batches", "1,2"])
        return code, said.getvalue(), library

    def test_live(self):
        code, said, _ = self.main("none")
        self.assertEqual(code, 0, said)
        self.assertIn("batch   2: live, equal to eager, (2, 32000)", said)

    def test_captured_and_restored(self):
        code, said, library = self.main("capture")
        self.assertEqual(code, 0, said)
        code, said, _ = self.main("restore", library.artifact)
        self.assertEqual(code, 0, said)
        self.assertIn("batch   1: restored, equal to eager", said)

if __name__ == "__main__":
    unittest.main()
