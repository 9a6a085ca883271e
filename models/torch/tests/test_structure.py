# SPDX-License-Identifier: Apache-2.0
"""medusa/_structure.py: nested results go through JSON and come back the same; what can't is refused by name."""
import collections
import dataclasses
import json
import math
import unittest

from medusa._structure import Unsupported, pack, unpack

Pair = collections.namedtuple("Pair", "first second")


class Leaf:
    """Stands for a tensor."""

    def __init__(self, index):
        self.index = index


@dataclasses.dataclass
class Result:
    logits: object
    cache: object = None
    count: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Ordered(collections.OrderedDict):
    """Like transformers' ModelOutput: a dictionary and a dataclass in one."""

    logits: object = None
    hidden: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


def leaf(value, path):
    return {"tensor": value.index, "path": path} if isinstance(value, Leaf) else None


def there_and_back(value):
    return unpack(json.loads(json.dumps(pack(value, leaf))), lambda packed: f"<{packed['tensor']}>")


class Structures(unittest.TestCase):
    def test_plain(self):
        for value in (None, True, 0, -7, 2.5, "text", [], (), {}, math.inf, [1, (2, {"a": None})], {1: 2, True: 3}):
            with self.subTest(value=value):
                back = there_and_back(value)
                self.assertEqual(back, value)
                self.assertIs(type(back), type(value))

    def test_keys_keep_their_type(self):
        self.assertEqual(there_and_back({8: "int", "8": "str"}), {8: "int", "8": "str"})

    def test_tensors(self):
        self.assertEqual(there_and_back(Leaf(3)), "<3>")
        self.assertEqual(there_and_back([Leaf(0), {"k": (Leaf(1),)}]), ["<0>", {"k": ("<1>",)}])

    def test_named_tuple(self):
        back = there_and_back(Pair(Leaf(0), [1]))
        self.assertEqual(back, Pair("<0>", [1]))
        self.assertIs(type(back), Pair)

    def test_dataclass(self):
        value = Result(Leaf(0), cache=(Leaf(1),))
        value.count = 5
        back = there_and_back(value)
        self.assertIs(type(back), Result)
        self.assertEqual((back.logits, back.cache, back.count), ("<0>", ("<1>",), 5))

    def test_dataclass_that_is_a_dictionary(self):
        back = there_and_back(Ordered(logits=Leaf(0)))
        self.assertIs(type(back), Ordered)
        self.assertEqual((dict(back), back.logits, back.hidden), ({"logits": "<0>"}, "<0>", None))

    def test_path_of_a_tensor(self):
        seen = []

        def note(value, path):
            return seen.append(path) or {} if isinstance(value, Leaf) else None

        pack({"a": [Pair(1, Result(Leaf(0)))]}, note)
        self.assertEqual(seen, ["['a'][0].second.logits"])


class Refusals(unittest.TestCase):
    def assert_refused(self, value, text):
        with self.assertRaisesRegex(Unsupported, text):
            pack(value, leaf)

    def test_objects(self):
        self.assert_refused([1, {"cache": object()}], r"output\[1\]\['cache'\] is a builtins.object")
        self.assert_refused({1, 2}, "output is a builtins.set")
        self.assert_refused(1j, "output is a builtins.complex")

    def test_keys(self):
        self.assert_refused({(1, 2): 3}, "a key is of type tuple")

    def test_local_classes(self):
        local = dataclasses.make_dataclass("Local", ["x"])
        self.assert_refused(local(1), "class Local can't be found by its name")

    def test_classes_of_another_program(self):
        for packed in (
            {"class": ["not_imported_here", "Result"], "fields": []},
            {"class": ["os", "system"], "fields": []},
            {"class": ["subprocess", "Popen"], "fields": [["args", {"value": "true"}]]},
            {"class": ["subprocess", "Popen"], "namedtuple": [{"value": "true"}]},
        ):
            with self.subTest(packed=packed), self.assertRaisesRegex(Unsupported, "does not exist in this process"):
                unpack(packed, lambda packed: packed)


if __name__ == "__main__":
    unittest.main()
