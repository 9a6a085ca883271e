# SPDX-License-Identifier: Apache-2.0
"""medusa.torch.discardable on a tensor that is said to be on a GPU: what the C side is told, and how long the tensor lives."""
import gc
import unittest
import weakref
from unittest import mock

try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed: tensors that are not saved") from missing

from medusa import _api
from medusa.torch import discardable


class Discard(unittest.TestCase):
    def setUp(self):
        self.said = []
        for name in ("swap_discardable", "swap_needed"):
            patch = mock.patch.object(_api, name, lambda *place, name=name: self.said.append((name, *place)))
            patch.start()
            self.addCleanup(patch.stop)

    @staticmethod
    def tensor(**other):
        made = torch.zeros(4, 8, dtype=torch.float16)
        return mock.Mock(wraps=made, spec=torch.Tensor, is_cuda=True, device="cuda:0", shape=made.shape, **other)

    def test_as_a_context(self):
        tensor = self.tensor()
        place = (tensor.data_ptr(), 64)
        with discardable(tensor):
            self.assertEqual(self.said, [("swap_discardable", *place)])
        self.assertEqual(self.said[1:], [("swap_needed", *place)])

    def test_the_tensor_lives_as_long(self):
        tensor = self.tensor()
        alive, held = weakref.ref(tensor), discardable(tensor)
        del tensor
        gc.collect()
        self.assertIsNotNone(alive(), "its memory must not go to another tensor")
        held.close()
        held.close()
        gc.collect()
        self.assertIsNone(alive())
        self.assertEqual([name for name, *_ in self.said], ["swap_discardable", "swap_needed"])

    def test_one_that_is_dropped_is_saved_again(self):
        discardable(self.tensor())
        gc.collect()
        self.assertEqual([name for name, *_ in self.said], ["swap_discardable", "swap_needed"])

    def test_what_cannot_be_said(self):
        for wrong in (torch.zeros(4), self.tensor(is_contiguous=lambda: False), self.tensor(numel=lambda: 0)):
            with self.assertRaisesRegex(ValueError, "medusa.torch.discardable: the tensor is on"):
                discardable(wrong)
        self.assertEqual(self.said, [])


if __name__ == "__main__":
    unittest.main()
