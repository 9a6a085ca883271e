# SPDX-License-Identifier: Apache-2.0
"""Adapters in the second model runner: a graph for each case, all that graphs read of them by name, and random ones in tests."""
import contextlib
import dataclasses
import os
import sys
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import starts  # noqa: E402  # skips without PyTorch
import torch  # noqa: E402
from medusa import _api  # noqa: E402
import standin  # noqa: E402
import standin_compiled  # noqa: E402
from medusa_vllm import hooks, lora, second, switches, turns  # noqa: E402
from piece_starts import KINDS, SIZES, PieceStarts  # noqa: E402
from standin_compiled import step  # noqa: E402
from standin import CUDAGraphMode, MOST_TOKENS, VOCABULARY, WIDTH  # noqa: E402

SLOTS, RANK = 2, 4
CASES = (0, SLOTS + 1)


@dataclasses.dataclass
class LoRAMapping:
    index_mapping: tuple
    prompt_mapping: tuple
    is_prefill: bool = False


class Adapted(torch.nn.Module):
    """A layer of two slices, as vLLM's for packed projections; its weights hang in tuples."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.lora_a_stacked = tuple(torch.zeros(SLOTS, 1, RANK, WIDTH) for _ in range(2))
        self.lora_b_stacked = tuple(torch.zeros(SLOTS, 1, WIDTH, RANK) for _ in range(2))

    def forward(self, *args):
        return self.base_layer(*args)


class Meta:
    def __init__(self):
        self.token_lora_mapping, self.no_lora_flag_cpu = torch.zeros(MOST_TOKENS, dtype=torch.int32), False


class Wrapper:
    """Which token has which adapter."""

    def __init__(self):
        self._token_lora_indices = torch.zeros(MOST_TOKENS, dtype=torch.long)
        self.token_mapping_meta, self.prompt_mapping_meta, self.told = Meta(), Meta(), []

    def update_metadata(self, mapping, lora_index_to_id, max_loras, vocab_size):
        assert (lora_index_to_id, max_loras, vocab_size) == ([1, 2], SLOTS + 1, VOCABULARY)
        self.told.append(mapping)
        places = [number - 1 for number in mapping.index_mapping]
        self.token_mapping_meta.token_lora_mapping[: len(places)] = torch.tensor(places, dtype=torch.int32)


def pointers(weights, *_):
    """vLLM's table: addresses as numbers, made once for the same weights."""
    made = sys.modules["vllm.lora.ops.triton_ops.utils"].made
    key = tuple(tensor.data_ptr() for tensor in weights)
    return made.setdefault(key, (torch.tensor(key), 1, 2))


class Loaded:
    """vLLM's worker-side manager: profiling and the capture of graphs run with dummies, and remove all adapters after it."""

    def __init__(self, runner, manager):
        self._adapter_manager, self.adapters, self.most = manager, set(), 0
        for name in ("profile_run", "capture_model"):
            setattr(runner, name, self.with_dummies(runner, getattr(runner, name)))
        runner.lora_manager, runner.lora_config = self, types.SimpleNamespace(max_loras=SLOTS)
        runner.maybe_setup_dummy_loras = self.dummies
        select = {"maybe_select_dummy_loras": lambda _runner, *given, **options: self.select(*given, **options)}
        runner.__class__ = type("Runner", (type(runner),), select)

    def list_adapters(self):
        return set(self.adapters)

    @contextlib.contextmanager
    def dummies(self, config, remove_lora=True):
        self.adapters |= set(range(1, config.max_loras + 1))
        yield
        if remove_lora:
            self.adapters.clear()

    def with_dummies(self, runner, method):
        def run():
            with runner.maybe_setup_dummy_loras(runner.lora_config):
                return method()

        return run

    @contextlib.contextmanager
    def select(self, lora_config, num_scheduled_tokens, mapping_type=None, num_sampled_tokens=None, num_active_loras=0):
        if not set(range(1, min(num_active_loras, SLOTS) + 1)) <= self.adapters:
            raise FileNotFoundError("/not/a/real/path")
        yield


def adapt(worker):
    """What vLLM's loading does with LoRA."""
    runner, modules = worker.model_runner, sys.modules
    runner.model.layers[0] = Adapted(runner.model.layers[0])
    runner.lora_cases = CASES
    manager = types.SimpleNamespace(punica_wrapper_mapping={"language": Wrapper()}, lora_slots=SLOTS, vocab_size=VOCABULARY,
                                    _last_mapping="of the last request", modules={"layers.0": runner.model.layers[0]})
    Loaded(runner, manager)
    utils = modules["vllm.lora.ops.triton_ops.utils"]
    utils.made, utils._get_lora_a_ptr, utils._get_lora_b_ptr = {}, pointers, pointers
    modules["vllm.lora.ops.triton_ops"].utils = utils
    modules["vllm.lora.layers"].LoRAMapping = LoRAMapping


class Lora(starts.Starts):
    def start(self, mode, artifact=None, **options):
        return self.process(mode, artifact, change=adapt, lora_config=standin.Config(max_loras=SLOTS, specialize_active_lora=False), **options)

    def test_a_graph_for_each_case(self):
        _, library = self.start("capture")
        self.assertEqual(library.refused, {})
        self.assertEqual(sorted(key for key in library.artifact if key != "kv"),
                         [(kind, size) for kind in ("decode.1", "decode.1.lora3") for size in (1, 2, 4)])

    def test_all_that_graphs_read_of_adapters_is_state(self):
        _, library = self.start("capture")
        names = ["lora.layers.0.0.0", "lora.layers.0.0.1", "lora.layers.0.1.1", "lora_tables.layers.0.0", "lora_tables.layers.0.1",
                 "lora_tokens.language.0.token_lora_indices", "lora_tokens.language.1.token_lora_mapping"]
        self.assertLess(set(names), set(library.bound))
        self.assertEqual({library.bound[name][2] for name in names}, {_api.STATE})
        self.assertEqual(library.bound["model.layers.0.base_layer.up.weight"][2], _api.CONSTANT)

    def test_restore_makes_the_tables_and_all_graphs(self):
        _, library = self.start("capture")
        worker, restore = self.start("restore", library.artifact)
        steps = worker.model_runner.cudagraph_manager.graphs
        self.assertEqual([step.restored for step in steps.values()], [True] * 6)
        self.assertIn("lora_tables.layers.0.0", restore.bound)
        manager = worker.model_runner.cudagraph_manager
        self.assertEqual(manager.dispatch(2, 2, 1, 3).num_active_loras, 3)
        self.assertEqual(manager.dispatch(2, 2, 1, 0).num_active_loras, 0)

    def test_a_graph_that_is_captured_after_all_finds_the_dummies(self):
        _, library = self.start("capture")
        del library.artifact["decode.1.lora3", 2]
        worker, _ = self.start("restore", library.artifact)
        steps = worker.model_runner.cudagraph_manager.graphs
        self.assertEqual(sorted(step.restored for step in steps.values()), [False] + [True] * 5)
        self.assertEqual(worker.model_runner.lora_manager.list_adapters(), set(), "an engine begins without adapters")

    def test_random_adapters(self):
        def look(worker):
            runner = worker.model_runner
            manager = runner.lora_manager._adapter_manager
            wrapper = manager.punica_wrapper_mapping["language"]
            self.assertEqual(len(wrapper.told), 3, "each graph with adapters was tested on some, the others on none")
            self.assertIsNone(manager._last_mapping, "the next request's mapping must be told")
            numbers = torch.Generator().manual_seed(1)
            lora.randomize(runner, 3, torch.tensor([2, 1, 1, 1, 1, 1, 1, 1]), numbers)
            mapping = wrapper.told[-1]
            self.assertEqual(mapping.index_mapping[:3], (mapping.prompt_mapping[0],) * 2 + mapping.prompt_mapping[1:2])
            self.assertEqual(set(mapping.prompt_mapping), {0, 1, 2}, "none, and both")
            layer = runner.model.layers[0]
            self.assertTrue(all(tensor.count_nonzero() > 0 for tensor in layer.lora_a_stacked + layer.lora_b_stacked))
            lora.randomize(runner, 1, torch.tensor([1, 1, 1, 1]), numbers)
            self.assertEqual(set(wrapper.told[-1].prompt_mapping), {1}, "no more than the graph has places for")

        self.start("capture", after=look)

    def test_tests_leave_adapters_as_they_were(self):
        def look(worker):
            layer = worker.model_runner.model.layers[0]
            self.assertTrue(all(tensor.count_nonzero() == 0 for tensor in layer.lora_a_stacked + layer.lora_b_stacked))

        self.start("capture", after=look)

    def test_pieces_are_captured_beside_the_adapters_of_a_serving_engine(self):
        """vLLM's dummies would need their places, and removing the dummies would remove all."""

        def serve(worker):
            taking, runner = getattr(worker, hooks.ATTRIBUTE), worker.model_runner
            runner.lora_manager.adapters = {7}
            wrapper = runner.lora_manager._adapter_manager.punica_wrapper_mapping["language"]
            wrapper.told.clear()
            with mock.patch.dict(os.environ, {switches.TAKEOVER: "load", switches.AFTER: "0"}):
                taking.serve()
            self.assertTrue(taking.background.join(20))
            self.assertEqual(runner.lora_manager.adapters, {7})
            self.assertIsNone(runner.lora_manager._adapter_manager._last_mapping, "the next request's is told")
            self.assertEqual({mapping.prompt_mapping for mapping in wrapper.told if len(mapping.prompt_mapping) == 4},
                             {(0,) * 4, (1, 2, 1, 2)})
            self.assertNotIn("maybe_select_dummy_loras", vars(runner), "the capture's selection is vLLM's own again")
            for number in CASES:
                self.assertEqual(standin_compiled.step(worker, [1, 2], adapters=number)[0], CUDAGraphMode.PIECEWISE)

        off = mock.patch.dict(os.environ, {switches.TAKEOVER: "0"})
        with mock.patch.object(Lora, "standin", standin_compiled), mock.patch.object(turns, "LATE_S", 0.0), off:
            _, library = self.start("capture")
            self.start("restore", library.artifact, after=serve)
        self.assertTrue(any("24 piecewise graphs" in text for text in self.said), self.said)

    def test_experts_with_adapters_are_left_to_vllm(self):
        def experts(worker):
            adapt(worker)
            worker.vllm_config.model_config.is_moe = True

        worker, _ = self.process("capture", change=experts, lora_config=standin.Config(max_loras=SLOTS, specialize_active_lora=False))
        self.assertEqual(worker.model_runner.cudagraph_manager.own_captures, 1)
        self.assertTrue(any("LoRA for a mixture of experts" in text for text in self.said), self.said)

    def test_weights_that_are_not_found_are_not_taken_for_constants(self):
        """Another vLLM may keep them under other names: a restored graph would compute with the adapters of the capture."""
        class Elsewhere(torch.nn.Module):
            lora_a, lora_b = (), ()

        def no_manager(worker):
            adapt(worker)
            del worker.model_runner.lora_manager._adapter_manager

        def other_layer(worker):
            adapt(worker)
            worker.model_runner.lora_manager._adapter_manager.modules["layers.1"] = Elsewhere()

        def no_layer(worker):
            adapt(worker)
            worker.model_runner.model.layers[0].lora_b_stacked = ()

        def no_mapping(worker):
            adapt(worker)
            worker.model_runner.lora_manager._adapter_manager.punica_wrapper_mapping.clear()

        for change, said in ((no_manager, "vLLM's manager of adapters has not been found"), (other_layer, "the weights of adapters in layer layers.1 (Elsewhere)"),
                             (no_layer, "has no tensors in lora_a_stacked, lora_b_stacked"), (no_mapping, "there is no mapping of tokens to adapters")):
            with self.subTest(said):
                self.said.clear()
                worker, library = self.process("capture", change=change, lora_config=standin.Config(max_loras=SLOTS, specialize_active_lora=False))
                self.assertEqual((worker.model_runner.cudagraph_manager.own_captures, library.labels), (1, []))
                self.assertTrue(any(said in text for text in self.said), self.said)

    def test_another_number_of_places_for_adapters_is_refused(self):
        _, library = self.start("capture")
        worker, _ = self.process("restore", library.artifact, change=adapt,
                                 lora_config=standin.Config(max_loras=SLOTS, specialize_active_lora=True))
        self.assertEqual({step.restored for step in worker.model_runner.cudagraph_manager.graphs.values()}, {False})
        self.assertTrue(any(f"adapters={SLOTS} each" in text for text in self.said), self.said)

    def test_without_lora_nothing_is_bound(self):
        worker, _ = self.process("capture")
        self.assertEqual(lora.bindings(worker.model_runner, False), {})
        self.assertEqual(second.label_of(None, 4, 0), ("full", 4))


class PiecesWithAdapters(PieceStarts):
    def start(self, mode, artifact=None, **options):
        return self.process(mode, artifact, change=adapt, lora_config=standin.Config(max_loras=SLOTS, specialize_active_lora=False), **options)

    def test_a_piece_for_each_case(self):
        _, library = self.start("capture")
        kinds = [kind + adapters for kind in KINDS for adapters in ("", ".lora3")]
        self.assertEqual({key for key in library.artifact if key[0].startswith("piece")}, {(kind, size) for kind in kinds for size in SIZES})
        self.assert_said("24 pieces of 8 batch sizes captured live and labelled for the artifact; 0 sizes refused")

    def test_pieces_are_tested_with_random_adapters(self):
        def look(worker):
            (wrapper,) = worker.model_runner.lora_manager._adapter_manager.punica_wrapper_mapping.values()
            self.assertTrue(any(len(mapping.index_mapping) == 8 and set(mapping.index_mapping) - {0} for mapping in wrapper.told))
            layer = worker.model_runner.model.layers[0]
            self.assertTrue(all(tensor.count_nonzero() > 0 for tensor in layer.lora_a_stacked + layer.lora_b_stacked))

        self.start("capture", after=look)

    def test_a_batch_runs_on_the_pieces_of_its_number_of_adapters(self):
        _, library = self.start("capture")
        del library.artifact["piece.1.lora3", 2]

        def serve(worker, launched):
            for size, adapters in ((4, 0), (4, 3), (2, 0)):
                del launched[:]
                self.assertEqual(step(worker, self.tokens(size), adapters=adapters)[0], CUDAGraphMode.PIECEWISE)
                self.assertEqual(launched, [(kind + (f".lora{adapters}" if adapters else ""), size) for kind in KINDS])
            for _ in range(2):
                found = step(worker, self.tokens(2), adapters=3)
            self.assertEqual(found[0], CUDAGraphMode.NONE, "it is not dispatched any more")
            self.assert_said("batches of 2 tokens with 3 adapters run eagerly")

        self.restore(library.artifact, serve, adapt, lora_config=standin.Config(max_loras=SLOTS, specialize_active_lora=False))

    def test_they_are_left_out_unless_asked_for(self):
        del os.environ[switches.PIECES]
        _, library = self.start("capture")
        self.assertFalse([key for key in library.artifact if key[0].startswith("piece")])
        self.assert_said("no support yet for adapters (LoRA), unless MEDUSA_VLLM_PIECES=1")


if __name__ == "__main__":
    unittest.main()
