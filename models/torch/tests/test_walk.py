# SPDX-License-Identifier: Apache-2.0
"""medusa/_walk.py: every tensor of an engine's objects is found, once, under a name that does not change."""
import collections
import threading
import unittest

from effort import calls_of
from medusa._walk import Constant, Input, Output, State, moved_slot, walk_bindings


class Tensor:
    """Nothing but itself."""


class Module:
    """Built as torch.nn.Module is."""

    def __init__(self, **attributes):
        self._parameters, self._buffers, self._modules = {}, {}, {}
        for name, value in attributes.items():
            kind = "_modules" if isinstance(value, Module) else "_parameters" if isinstance(value, Tensor) else None
            (getattr(self, kind) if kind else self.__dict__)[name] = value


class Layer:
    """As in a static cache."""

    def __init__(self):
        self.keys, self.values, self.length = Tensor(), Tensor(), 8


class Cache:
    def __init__(self, layers):
        self.layers = [Layer() for _ in range(layers)]


def walk(prefix="", **bind):
    return walk_bindings(bind, lambda value: isinstance(value, Tensor), prefix)


def names(seen):
    return [(found.name, found.role) for found in seen.tensors]


class Names(unittest.TestCase):
    def test_roles_by_default(self):
        seen = walk(model=Module(w=Tensor()), kv=[Tensor()], inputs={"tokens": Tensor()}, outputs=Tensor(), input=Tensor())
        self.assertEqual(
            names(seen),
            [("kv.0", State), ("inputs.tokens", Input), ("outputs", Output), ("input", Input), ("model.w", Constant)],
        )

    def test_roles_by_wrapper(self):
        seen = walk(a=Input([Tensor()]), b=Constant({"x": State(Tensor()), "y": Tensor()}))
        self.assertEqual(names(seen), [("a.0", Input), ("b.x", State), ("b.y", Constant)])

    def test_objects_of_pytorch_that_hold_tensors(self):
        """A BlockMask of FlexAttention, a PackedSequence: the engine's own; a hook's handle is not."""
        mask = type("BlockMask", (), {"__module__": "torch.nn.attention.flex_attention"})()
        mask.indices, mask.full, mask.size = Tensor(), None, (128, 128)
        packed = collections.namedtuple("PackedSequence", "data sizes", module="torch.nn.utils.rnn")(Tensor(), 3)
        handle = type("Handle", (), {"__module__": "torch.utils.hooks"})()
        handle.held = {"inner": Tensor()}
        seen = walk(mask=Constant(mask), packed=packed, handle=handle)
        self.assertEqual(names(seen), [("mask.indices", Constant), ("packed.0", State)])

    def test_modules(self):
        inner = Module(weight=Tensor(), cache=[Tensor()])
        outer = Module(layers=Module(first=inner), weight=Tensor())
        outer._buffers["table"] = Tensor()
        self.assertEqual(
            [name for name, _ in names(walk(model=outer))],
            ["model.weight", "model.table", "model.layers.first.weight", "model.layers.first.cache.0"],
        )
        self.assertEqual(walk(model=outer).modules, [outer, outer._modules["layers"], inner])

    def test_objects(self):
        self.assertEqual(
            [name for name, _ in names(walk(kv=Cache(2)))],
            ["kv.layers.0.keys", "kv.layers.0.values", "kv.layers.1.keys", "kv.layers.1.values"],
        )

    def test_prefix_and_keys(self):
        self.assertEqual(names(walk("a", kv={8: Tensor(), (1, 2): Tensor()})), [("a.kv.8", State), ("a.kv.key1", State)])

    def test_keys_of_all_kinds(self):
        """Artifacts name these: no way to find them quicker may change one."""
        keys = ["a", 8, True, (1, 2), None, b"q", 2.5]
        self.assertEqual(
            [name for name, _ in names(walk(kv={key: Tensor() for key in keys}))],
            ["kv.a", "kv.8", "kv.True", "kv.key3", "kv.key4", "kv.key5", "kv.key6"],
        )

    def test_containers_of_all_kinds(self):
        class Made(dict):
            """Answers in its own way, or not at all."""

            def __getitem__(self, key):
                if key == "absent":
                    raise KeyError(key)
                return dict.__getitem__(self, key)

        class Listed(list):
            pass

        made, listed = Made(absent=Tensor(), here=Tensor()), Listed([Tensor()])
        made.attribute = listed.attribute = Tensor()
        pair = collections.namedtuple("pair", "x y")(Tensor(), Tensor())
        ordered = collections.OrderedDict(o=Tensor())
        self.assertEqual(
            [name for name, _ in names(walk(kv=[made, listed, pair, ordered, {Tensor()}, [State(Tensor())]]))],
            ["kv.0.here", "kv.0.attribute", "kv.1.0", "kv.1.attribute", "kv.2.0", "kv.2.1", "kv.3.o", "kv.5.0"],
        )

    def test_modules_of_a_framework(self):
        """A framework's objects are left alone, but for its modules; hooks count when there are any."""
        Foreign = type("Linear", (Module,), {"__module__": "torch.nn"})
        Plain = type("device", (Layer,), {"__module__": "torch"})
        module = Foreign(weight=Tensor(), _forward_hooks=collections.OrderedDict(), device=Plain())
        self.assertEqual([name for name, _ in names(walk(model=[module]))], ["model.0.weight"])
        module._forward_hooks[3] = Layer()
        self.assertEqual(
            [name for name, _ in names(walk(model=module))],
            ["model.weight", "model._forward_hooks.3.keys", "model._forward_hooks.3.values"],
        )

    def test_effort(self):
        """Flags and unused hooks, of which PyTorch's modules have a dozen each, are left by their type alone."""

        def model(layers, hooks):
            def layer():
                flags = {f"_hooks{at}": collections.OrderedDict() for at in range(hooks)}
                return Module(w=Tensor(), on=True, **flags)

            return Module(**{f"layer{at}": layer() for at in range(layers)})

        def effort(layers, hooks):
            walked = model(layers, hooks)
            return calls_of(lambda: self.assertEqual(len(walk(model=walked).tensors), layers))

        self.assertEqual(effort(50, 1), effort(50, 12))
        self.assertLess(effort(500, 12), 11 * effort(50, 12), "in proportion to the modules")

    def test_roles_come_before_modules(self):
        """A cache that hangs in a layer too is state, wherever bind= lists it."""
        cache = Cache(1)
        seen = walk(model=Module(w=Tensor(), cache=cache), kv=cache)
        self.assertEqual(
            names(seen), [("kv.layers.0.keys", State), ("kv.layers.0.values", State), ("model.w", Constant)]
        )

    def test_circles_and_plumbing(self):
        ring = Layer()
        ring.me, ring.lock, ring.call, ring.kind, ring.thread = ring, threading, len, Layer, threading.Lock()
        self.assertEqual(len(walk(kv=ring).tensors), 2)

    def test_depth(self):
        deep = [Tensor()]
        for _ in range(1000):
            deep = [deep]
        self.assertEqual(walk(kv=deep).tensors, [])

    def test_objects_by_name(self):
        cache = Cache(1)
        self.assertEqual(walk(kv=cache).objects[id(cache)], ("kv", cache))


class Moves(unittest.TestCase):
    def setUp(self):
        self.cache, self.model, self.inputs = Cache(2), Module(w=Tensor(), inner=Module(w=Tensor())), {"x": Tensor()}
        self.bind = {"model": self.model, "kv": self.cache, "inputs": self.inputs}
        self.seen = walk_bindings(self.bind, lambda value: isinstance(value, Tensor))

    def test_nothing(self):
        self.cache.layers[0].length = 9  # no tensor
        self.assertEqual(moved_slot(self.seen), "")

    def test_attribute(self):
        self.cache.layers[1].keys = Tensor()
        self.assertEqual(moved_slot(self.seen), "kv.layers.1.keys")

    def test_parameter(self):
        self.model._modules["inner"]._parameters["w"] = Tensor()
        self.assertEqual(moved_slot(self.seen), "model.inner.w")

    def test_whole_parts(self):
        self.cache.layers = [Layer(), Layer()]
        self.assertEqual(moved_slot(self.seen), "kv.layers")
        self.cache.layers.clear()
        self.bind["inputs"] = {"x": Tensor()}
        self.assertIn(moved_slot(self.seen), ("kv.layers", "inputs"))

    def test_gone(self):
        del self.inputs["x"]
        self.assertEqual(moved_slot(self.seen), "inputs.x")
        self.inputs["x"] = None
        self.assertEqual(moved_slot(self.seen), "inputs.x")


if __name__ == "__main__":
    unittest.main()
