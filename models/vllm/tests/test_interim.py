# SPDX-License-Identifier: Apache-2.0
"""What a restored start leaves for later, on PyTorch's own modules and torch.compile."""
import gc
import os
import sys
import types
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../../torch")]

from medusa_vllm import interim  # noqa: E402


class Operation(torch.nn.Module):
    """As vLLM's CustomOp chooses how it computes."""

    def __init__(self, compiled=True, enabled=False):
        super().__init__()
        self._forward_method = self.forward_cuda if enabled else self.forward_native
        if compiled and not enabled:
            self._forward_method = torch.compile(self.forward_native, backend="eager")

    def forward(self, x):
        return self._forward_method(x)

    def forward_native(self, x):
        return x + 1

    def forward_cuda(self, x):
        return x + 2


class SiluAndMul(Operation):
    pass


class Other(Operation):
    pass


class Compiling(torch.nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.do_not_compile, self.parts = False, torch.nn.ModuleList(parts)


def results(model):
    return [int(part(torch.zeros(()))) for part in model.parts]


class Waiting(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.compiler = types.ModuleType(interim.COMPILER)

        def trigger_inductor_lazy_init(device=None):
            self.calls.append(device)

        self.compiler.trigger_inductor_lazy_init = trigger_inductor_lazy_init
        packages = {name: types.ModuleType(name) for name in ("vllm", "vllm.compilation")}
        for name, module in {**packages, interim.COMPILER: self.compiler}.items():
            self.addCleanup(sys.modules.pop, name)  # and no others: PyTorch's compilers are not imported twice
            sys.modules[name] = module

    def test_operations_compute_without_a_compiler(self):
        model = Compiling(SiluAndMul(), Other(), Other(compiled=False), SiluAndMul(enabled=True))
        before = [part._forward_method for part in model.parts]
        waiting = interim.Interim()
        waiting.begin(model)
        with torch.compiler.set_stance("fail_on_recompile"):
            self.assertEqual(results(model), [2, 1, 1, 2], "a kernel of its own where one is known, else PyTorch's operations")
        self.assertTrue(model.do_not_compile)
        self.assertTrue(waiting.end())
        self.assertEqual([part._forward_method for part in model.parts], before)
        self.assertFalse(model.do_not_compile)
        self.assertFalse(waiting.end())

    def test_compiled_results_are_those_of_before(self):
        model = Compiling(SiluAndMul(), Other())
        waiting = interim.Interim()
        waiting.begin(model)
        waiting.end()
        self.assertEqual(results(model), [1, 1])

    def test_inductor_is_initialized_when_something_is_compiled(self):
        waiting = interim.Interim()
        waiting.begin(Compiling())
        self.compiler.trigger_inductor_lazy_init("cuda:0")
        self.assertEqual(self.calls, [])
        self.compiler.trigger_inductor_lazy_init(device="cuda:2")
        waiting.end()
        self.assertEqual(self.calls, ["cuda:0", "cuda:2"])
        self.compiler.trigger_inductor_lazy_init("cuda:1")
        self.assertEqual(self.calls, ["cuda:0", "cuda:2", "cuda:1"])
        waiting.end()
        self.assertEqual(self.calls, ["cuda:0", "cuda:2", "cuda:1"])

    def test_what_is_loaded_needs_no_inductor(self):
        original = self.compiler.trigger_inductor_lazy_init
        waiting, model = interim.Interim(), Compiling()
        waiting.begin(model)
        self.assertEqual(waiting.waiting, [model])
        self.compiler.trigger_inductor_lazy_init("cuda:0")
        self.assertTrue(waiting.end(inductor=False))
        self.assertEqual((self.calls, waiting.waiting), ([], []))
        self.assertIs(self.compiler.trigger_inductor_lazy_init, original)

    def test_as_ever_where_nothing_compiles_or_vllm_is_another(self):
        model = Compiling()
        model.do_not_compile = True  # --enforce-eager
        waiting = interim.Interim()
        waiting.begin(model)
        self.compiler.trigger_inductor_lazy_init(1)
        self.assertFalse(waiting.end())
        self.assertTrue(model.do_not_compile)
        self.compiler.trigger_inductor_lazy_init = lambda device, more: self.calls.append((device, more))
        waiting = interim.Interim()
        waiting.begin(Compiling())
        self.compiler.trigger_inductor_lazy_init(2, 3)
        del self.compiler.trigger_inductor_lazy_init
        waiting = interim.Interim()
        waiting.begin(Compiling())
        self.assertTrue(waiting.end())
        self.assertEqual(self.calls, [1, (2, 3)])

    def test_imports_are_spared(self):
        kept = [[] for _ in range(1000)]
        before = gc.get_freeze_count()
        try:
            interim.spare_imports()
            self.assertGreater(gc.get_freeze_count(), before + len(kept))
        finally:
            gc.unfreeze()


if __name__ == "__main__":
    unittest.main()
