# SPDX-License-Identifier: Apache-2.0
"""medusa/_configuration.py: settings that end up in a graph change the text; where a process runs does not."""
import dataclasses
import enum
import functools
import os
import subprocess
import sys
import unittest

from effort import calls_of
from medusa._configuration import describe, function_values, module_settings

SCALE = 2.0


class Kind(enum.Enum):
    FAST = 1


class ModelConfig:
    """As in transformers: plain attributes, some of them private, some of them no settings."""

    def __init__(self, **attributes):
        self.__dict__.update(eps=1e-5, act="silu", _attn_implementation="sdpa", _name_or_path="/models/a", **attributes)

    def to_dict(self):
        return dict(self.__dict__)


@dataclasses.dataclass
class Window:
    size: int = 4
    kinds: tuple = (Kind.FAST, None)


class Module:
    """Built as torch.nn.Module is."""

    def __init__(self, **attributes):
        self._parameters, self._forward_hooks, self.training = {"w": object()}, {id(self): object()}, False
        self.__dict__.update(attributes)


def settings_of(*modules):
    return module_settings(modules)


class Configuration(unittest.TestCase):
    def test_what_changes_is_seen(self):
        first = settings_of(Module(eps=1e-5, config=ModelConfig(), window=Window()), Module(act=len))
        same = settings_of(Module(eps=1e-5, config=ModelConfig(), window=Window()), Module(act=len))
        self.assertEqual(first, same)
        self.assertEqual(len(next(iter(first.values()))), 2)
        for other in (
            [Module(eps=1e-6, config=ModelConfig(), window=Window()), Module(act=len)],
            [Module(eps=1e-5, config=ModelConfig(layers={"a": [1, 2]}), window=Window()), Module(act=len)],
            [Module(eps=1e-5, config=ModelConfig(), window=Window(8)), Module(act=len)],
            [Module(eps=1e-5, config=ModelConfig(), window=Window()), Module(act=max)],
            [Module(act=len), Module(eps=1e-5, config=ModelConfig(), window=Window())],
            [Module(eps=1e-5, config=ModelConfig(), window=Window(), training=True), Module(act=len)],
            [Module(eps=1e-5, config=ModelConfig(), window=Window(), _private=7), Module(act=len)],
        ):
            with self.subTest(other=vars(other[0])):
                self.assertNotEqual(first, settings_of(*other))

    def test_private_settings_and_paths(self):
        """Of a configuration, which attention it chose counts, and the folder of the checkpoint does not."""
        first = ModelConfig()
        for name, value, counts in (
            ("_attn_implementation", "eager", True),
            ("_name_or_path", "/models/b", False),
            ("cache", "/tmp/b", True),
            ("eps", 1e-6, True),
        ):
            other = ModelConfig()
            setattr(other, name, value)
            with self.subTest(name=name):
                (self.assertNotEqual if counts else self.assertEqual)(describe(first), describe(other))
        first.cache, other = "/tmp/a", ModelConfig()
        other.cache = "/tmp/b"
        self.assertEqual(describe(first), describe(other))

    def test_equal_in_every_process(self):
        """No addresses, no order of sets."""
        code = (
            "from test_configuration import *\n"
            "print(settings_of(Module(s={'b', 'a', 'c'}, o=object(), f=describe, p=functools.partial(max, 1, key=len),"
            "d={'x': {1, 2}}, c=ModelConfig(o=object(), k=Kind.FAST), w=Window(), m=Module().__init__)))"
        )
        seen = set()
        for seed in ("1", "2", "3"):
            environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=os.pathsep.join(sys.path))
            seen.add(subprocess.check_output([sys.executable, "-c", code], env=environment))
        self.assertEqual(len(seen), 1, seen)

    def test_attributes_that_are_no_settings(self):
        one, other = Module(compiled=False, eps=1), Module(compiled=True, eps=1)
        third = Module(compiled=False, eps=2)

        def is_setting(name, value):
            return name != "compiled"

        self.assertEqual(module_settings([one], is_setting), module_settings([other], is_setting))
        self.assertNotEqual(module_settings([one], is_setting), module_settings([third], is_setting))
        self.assertNotEqual(module_settings([one]), module_settings([other]))

    def test_recursion_ends(self):
        config = ModelConfig()
        config.self = config
        loop = [1]
        loop.append(loop)
        config.loop = loop
        self.assertTrue(describe(config))

    def test_effort(self):
        """A configuration that all modules share is described once, and not once for each."""
        config = ModelConfig(**{f"setting_{i}": list(range(20)) for i in range(100)})

        def effort(count):
            modules = [Module(config=config, eps=1e-5, size=i, act=len) for i in range(count)]
            return calls_of(lambda: module_settings(modules))

        self.assertLess(effort(1000) - effort(500), 500 * 50)

    def test_values_of_functions(self):
        def values(call, function, names=()):
            return function_values(call, function, set(names))

        def make(scale):
            return lambda x, eps=1e-5, *, flag=True: x * scale

        self.assertEqual(values(make(2), make(2)), values(make(2), make(2)))
        self.assertNotEqual(values(make(2), make(2)), values(make(3), make(3)))
        partial = functools.partial(make(2), 7, flag=False)
        self.assertNotEqual(values(partial, make(2)), values(functools.partial(make(2), 8, flag=False), make(2)))
        self.assertIn("SCALE=2.0", values(make(2), make(2), {"SCALE", "unittest", "missing"}))
        self.assertEqual(values(len, None), [])


if __name__ == "__main__":
    unittest.main()
