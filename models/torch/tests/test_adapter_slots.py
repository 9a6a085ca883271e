# SPDX-License-Identifier: Apache-2.0
"""medusa.torch.AdapterSlots on the CPU: against PEFT's own results where PEFT is installed, and what is refused."""
import json
import os
import tempfile
import unittest

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed: adapters in slots") from missing

try:
    import peft
    import safetensors.torch
    import transformers
except ImportError:
    peft = None

from medusa.torch import AdapterSlots


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.up, self.down, self.lm_head = torch.nn.Linear(6, 10), torch.nn.Linear(10, 6), torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.lm_head(self.down(self.up(x).relu()))


def pair(layer, rank, inputs, outputs, seed):
    torch.manual_seed(seed)
    return {f"base_model.model.{layer}.lora_A.weight": torch.randn(rank, inputs), f"base_model.model.{layer}.lora_B.weight": torch.randn(outputs, rank)}


@unittest.skipUnless(peft, "PEFT, transformers and safetensors are not installed: adapters of their files")
class Folders(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.net = Net()
        self.plain = Net()

    def write(self, name, tensors, **config):
        folder = os.path.join(self.folder.name, name)
        os.makedirs(folder, exist_ok=True)
        safetensors.torch.save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 6, **config}, file)
        return folder

    def wanted(self, x, tensors, scale):
        """In one piece: W + scale * b a."""
        merged = Net()
        for layer in "up", "down":
            if f"base_model.model.{layer}.lora_A.weight" in tensors:
                a, b = (tensors[f"base_model.model.{layer}.lora_{half}.weight"] for half in "AB")
                getattr(merged, layer).weight.data += scale * b @ a
        return merged(x)

    def test_rows_of_several_adapters(self):
        both, one = {**pair("up", 2, 6, 10, 1), **pair("down", 2, 10, 6, 2)}, pair("down", 3, 10, 6, 3)
        slots = AdapterSlots(self.net, slots=2, max_rank=4, rows=8)
        places = {name: tensor.data_ptr() for name, tensor in slots.tensors().items()}
        slots.load("both", self.write("both", both))
        slots.load("one", self.write("one", one, r=3, lora_alpha=2, use_rslora=True))
        slots.load("third", self.write("third", pair("up", 1, 6, 10, 9), r=4, rank_pattern={"up": 1}, alpha_pattern={"up": 5}))
        x = torch.randn(5, 6)
        for names in (["both", None, "one", "both", None], ["one", "third"], [None], ["third", "both", "both"], ["one"]):
            slots.select(names)
            got = self.net(x)
            for row, name in enumerate(names + [None] * (5 - len(names))):
                wanted = {"both": lambda r: self.wanted(r, both, 3.0), "one": lambda r: self.wanted(r, one, 2 / 3**0.5),
                          "third": lambda r: self.wanted(r, pair("up", 1, 6, 10, 9), 5.0), None: self.plain}[name](x[row:row + 1])
                torch.testing.assert_close(got[row:row + 1], wanted, rtol=1e-4, atol=1e-4)
        slots.select([None])
        self.assertTrue(torch.equal(self.net(x), self.plain(x)), "rows without an adapter are those of the model alone")
        self.assertEqual(places, {name: tensor.data_ptr() for name, tensor in slots.tensors().items()})
        self.assertEqual(slots.names(), ["both", "one", "third"])
        slots.unload("one")
        slots.load("one", self.write("one", both))
        slots.select(["one"])
        torch.testing.assert_close(self.net(x[:1]), self.wanted(x[:1], both, 3.0), rtol=1e-4, atol=1e-4)
        slots.close()
        self.assertIs(type(self.net.up), torch.nn.Linear)
        self.assertTrue(torch.equal(self.net(x), self.plain(x)))

    def test_a_slot_has_nothing_of_the_one_before(self):
        slots = AdapterSlots(self.net, slots=1, max_rank=4)
        slots.load("wide", self.write("wide", {**pair("up", 4, 6, 10, 1), **pair("down", 4, 10, 6, 2)}, r=4))
        slots.load("narrow", self.write("narrow", pair("up", 1, 6, 10, 5), r=1))
        slots.select(["wide"])
        slots.select(["narrow"])
        x = torch.randn(1, 6)
        torch.testing.assert_close(self.net(x), self.wanted(x, pair("up", 1, 6, 10, 5), 6.0), rtol=1e-4, atol=1e-4)

    def test_what_is_refused(self):
        slots = AdapterSlots(self.net, slots=1, max_rank=2, rows=2, targets=["up", "down"])
        good = pair("up", 2, 6, 10, 1)
        key_a, key_b = good
        broken = {key_a: good[key_a].clone(), key_b: good[key_b]}
        broken[key_a][1, 3] = float("nan")
        for tensors, config, why in (
                (pair("up", 3, 6, 10, 1), {"r": 3}, "layer up: the rank is 3, and max_rank 2"),
                (pair("up", 2, 7, 10, 1), {}, "layer up: lora_A has shape"), (pair("other", 2, 6, 10, 1), {}, "changes other, which is no layer"),
                (pair("lm_head", 2, 6, 4, 1), {}, "changes lm_head, which is no layer"), ({key_a: good[key_a]}, {}, "layer up has lora_A alone"),
                (broken, {}, "no finite number"), (good, {"use_dora": True}, "use_dora is True"), (good, {"bias": "all"}, "bias is 'all'"),
                (good, {"modules_to_save": ["lm_head"]}, "modules_to_save"),
                (good, {"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"), (good, {"use_next_idea": True}, "use_next_idea is True"), (good, {"peft_type": "IA3"}, "only LORA is served"),
                (good, {"r": 5}, "states rank 5 for layer up"), ({"x.lora_magnitude_vector": torch.ones(3)}, {}, "neither lora_A nor lora_B"),
                (good, {"lora_alpha": float("inf")}, "no finite number")):
            with self.assertRaisesRegex(ValueError, why):
                slots.load("x", self.write("x", tensors, **config))
            self.assertEqual(slots.names(), [])
        folder = self.write("x", good)
        with open(os.path.join(folder, "adapter_model.safetensors"), "r+b") as file:
            file.truncate(40)
        with self.assertRaises(Exception):
            slots.load("x", folder)
        slots.load("x", self.write("x", good))
        slots.load("y", self.write("y", good))
        for call, what, why in ((slots.load, ("x", folder), "loaded already"), (slots.load, ("", folder), "no name"), (slots.load, ("z",), "changes nothing"),
                                (slots.select, ([None] * 3,), "3 rows were given, and there are 2"), (slots.select, (["x", "y"],), "2 adapters were given for 1"),
                                (slots.select, (["z"],), "'z' is not loaded; loaded are x, y"), (slots.unload, ("z",), "'z' is not loaded")):
            with self.assertRaisesRegex((ValueError, KeyError), why):
                call(*what)
        slots.select(["x"])
        with self.assertRaisesRegex(ValueError, "'x' is selected"):
            slots.unload("x")
        for wrong in ({"slots": 0}, {"slots": 1, "rows": 0}, {"slots": 1, "targets": ["nothing"]}):
            with self.assertRaises(ValueError):
                AdapterSlots(Net(), **wrong)

    def test_as_peft_computes(self):
        torch.manual_seed(1)
        config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                          vocab_size=50)
        base = transformers.LlamaForCausalLM(config).eval()
        model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False), "a")
        model.add_adapter("b", peft.LoraConfig(r=8, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "gate_proj"], init_lora_weights=False))
        model.eval()
        tokens = torch.randint(0, 50, (3, 7))
        wanted = {}
        for name in "a", "b":
            model.set_adapter(name)
            wanted[name] = model(tokens).logits
            model.save_pretrained(os.path.join(self.folder.name, "saved"), selected_adapters=[name])
        with model.disable_adapter():
            wanted[None] = model(tokens).logits
        folders = {name: os.path.join(self.folder.name, "saved", name) for name in "ab"}
        for source in (folders, {"a": None, "b": None}):
            slots = AdapterSlots(model, slots=2, max_rank=8, rows=4)
            for name, folder in source.items():
                slots.load(name, folder)
            slots.select(["b", None, "a"])
            got = model(tokens).logits
            for row, name in enumerate(["b", None, "a"]):
                torch.testing.assert_close(got[row], wanted[name][row], rtol=1e-3, atol=1e-4)
            slots.close()


if __name__ == "__main__":
    unittest.main()
