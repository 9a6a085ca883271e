# SPDX-License-Identifier: Apache-2.0
"""The memory of pieces, on a model of PyTorch's allocator: best fit, its segments, how it splits and merges blocks."""
import contextlib
import os
import random
import sys
import types
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../../torch")]

from medusa_vllm import arena  # noqa: E402

POOL, LEAST, SMALL, GRAIN = (0, 7), 512, 1 << 20, 2 << 20


class Block:
    def __init__(self, address, size):
        self.address, self.size, self.free = address, size, True


class Segment:
    def __init__(self, address, size, pool, small):
        self.address, self.size, self.pool, self.small = address, size, pool, small
        self.blocks = [Block(address, size)]


class Held:
    """A tensor: its memory is given back with it."""

    def __init__(self, allocator, size):
        self.allocator, self.block, self.size = allocator, allocator.take(size), size

    def data_ptr(self):
        return self.block.address

    def __del__(self):
        self.allocator.give(self.block)


class Allocator:
    """c10's CUDACachingAllocator for one stream, as far as it decides what lies where."""

    def __init__(self, places, workspace=32 << 20):
        self.segments, self.pool, self.places, self.workspace_size = [], None, places, workspace
        self.workspace, self.expandable, self.backend = None, False, "native"

    def take(self, size):
        size = max(LEAST, -(-size // LEAST) * LEAST)
        small = size <= SMALL
        free = [(block.size, block.address, block, segment) for segment in self.segments for block in segment.blocks
                if block.free and block.size >= size and segment.small == small and segment.pool == self.pool]
        if not free:
            self.grow(size, small)
            return self.take(size)
        _, _, block, segment = min(free, key=lambda each: each[:2])
        left = block.size - size
        if left >= LEAST if small else left > SMALL:
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(block.address + size, left))
            block.size = size
        block.free = False
        return block

    def grow(self, size, small):
        bytes_ = GRAIN if small else 20 << 20 if size < 10 << 20 else -(-size // GRAIN) * GRAIN
        self.segments.append(Segment(self.places(bytes_), bytes_, self.pool, small))

    def give(self, block):
        block.free = True
        for segment in self.segments:
            if block in segment.blocks:
                merged = []
                for each in segment.blocks:
                    if merged and merged[-1].free and each.free:
                        merged[-1].size += each.size
                    else:
                        merged.append(each)
                segment.blocks = merged

    def snapshot(self):
        return [{"address": segment.address, "total_size": segment.size, "segment_pool_id": segment.pool, "is_expandable": self.expandable,
                 "segment_type": "small" if segment.small else "large",
                 "blocks": [{"address": block.address, "size": block.size, "state": "inactive" if block.free else "active_allocated"}
                            for block in segment.blocks]} for segment in self.segments]

    # ---- what the plug-in calls ----

    def begin(self, _device, pool):
        assert self.pool is None
        self.pool = pool

    def end(self, _device, pool):
        assert self.pool == pool
        self.pool = None

    def multiply(self, *_, **_more):
        self.workspace = self.workspace or Held(self, self.workspace_size)

    def clear(self):
        self.workspace = None

    @contextlib.contextmanager
    def patch(self):
        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (arena, "_bytes", lambda size: Held(self, size)),
                (arena.outputs, "over", lambda address, size, *_: types.SimpleNamespace(data_ptr=lambda: address, numel=lambda: size)),
                (torch, "mm", self.multiply), (torch, "ones", lambda *_, **_more: None),
                (torch._C, "_cuda_clearCublasWorkspaces", self.clear),
                (torch._C, "_cuda_beginAllocateCurrentThreadToPool", self.begin), (torch._C, "_cuda_endAllocateToPool", self.end),
                (torch.cuda, "memory_snapshot", self.snapshot), (torch.cuda, "get_allocator_backend", lambda: self.backend),
                (torch.cuda, "current_device", lambda: 0), (torch.cuda, "stream", lambda stream: contextlib.nullcontext()),
            ):
                stack.enter_context(mock.patch.object(owner, name, value, create=True))
            yield


def upwards():
    """Segments side by side, as drivers place them."""
    end = [1 << 40]

    def place(size):
        end[0] += size
        return end[0] - size

    return place


def downwards():
    end = [1 << 41]

    def place(size):
        end[0] -= size
        return end[0]

    return place


class Filling(unittest.TestCase):
    def filled(self, places=upwards, large=60 << 20, small=9 << 20, **options):
        allocator = Allocator(places(), **options)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(allocator.patch())
        made = arena.Arena(POOL, None)
        made.fill(large, small)
        return allocator, made

    def test_all_of_it_is_named_and_free_behind_its_guard(self):
        allocator, made = self.filled()
        named = {tensor.data_ptr(): tensor.numel() for tensor in made.tensors}
        segments = [segment for segment in allocator.segments if segment.address in named]
        self.assertEqual([named[segment.address] for segment in segments], [segment.size for segment in segments])
        for segment in segments:
            self.assertEqual([block.free for block in segment.blocks], [False, True])
        self.assertEqual(len(allocator.segments), len(segments) + 1, "the workspace's place is apart")
        self.assertGreater(sum(segment.size for segment in segments if segment.small), 9 << 20)
        self.assertEqual(made.outgrown(), 0)

    def replay(self, allocator, made, seed):
        """Requests as pieces make them; where each of them lies."""
        numbers, held, found = random.Random(seed), [], []
        allocator.clear()  # as captures of full graphs do
        made.take_workspace()
        allocator.begin(0, POOL)
        try:
            for _ in range(1000):
                if held and numbers.random() < 0.5:
                    held.pop(numbers.randrange(len(held)))
                size = int(2 ** numbers.uniform(9, 25))
                live = sum(each.size for each in held if (each.size > SMALL) == (size > SMALL))
                if live + size <= (60 << 20 if size > SMALL else 9 << 20):
                    held.append(Held(allocator, size))
                    found.append(self.place_of(made, held[-1]))
        finally:
            allocator.end(0, POOL)
        return found

    @staticmethod
    def place_of(made, held):
        for number, tensor in enumerate(made.tensors):
            offset = held.data_ptr() - tensor.data_ptr()
            if 0 <= offset and offset + held.size <= tensor.numel():
                return number, offset
        return "nowhere", held.size

    def test_what_pieces_take_lies_in_it_and_never_at_a_border(self):
        for seed in range(2):
            for workspace in (32 << 20, 8519680, 1 << 20, 1 << 17):
                allocator, made = self.filled(workspace=workspace)
                found = self.replay(allocator, made, seed)
                self.assertGreater(len(found), 300)
                self.assertNotIn("nowhere", {place for place, _ in found}, f"seed {seed}, workspace {workspace}")
                self.assertGreater(min(offset for _, offset in found), 0)
                self.assertEqual(made.outgrown(), 0)

    def test_each_capture_has_the_same_names_and_offsets(self):
        self.assertEqual(self.replay(*self.filled(upwards), 3), self.replay(*self.filled(downwards), 3))

    def test_the_workspace_lies_apart_also_after_it_was_dropped(self):
        allocator, made = self.filled()
        self.assertIsNone(allocator.workspace)
        for _ in range(2):
            made.take_workspace()
            self.assertEqual(self.place_of(made, allocator.workspace)[0], "nowhere")
            self.assertTrue(any(begin <= allocator.workspace.data_ptr() < begin + size for begin, size in made.unbound()))
            self.assertEqual(made.outgrown(), 0)

    def test_what_is_taken_later_is_counted(self):
        allocator, made = self.filled()
        allocator.begin(0, POOL)
        kept = Held(allocator, 300 << 20)
        self.assertEqual(made.outgrown(), kept.size)
        allocator.end(0, POOL)

    def test_what_is_not_known_is_refused(self):
        for change, reason in (
            (lambda allocator: setattr(allocator, "backend", "cudaMallocAsync"), "cudaMallocAsync"),
            (lambda allocator: setattr(allocator, "expandable", True), "expandable segments"),
            (lambda allocator: allocator.segments.append(Segment(1 << 30, GRAIN, POOL, True)), "in use already"),
        ):
            allocator = Allocator(upwards())
            change(allocator)
            with allocator.patch(), self.assertRaisesRegex(arena.Unfit, reason):
                arena.Arena(POOL, None).fill(1 << 20, 1 << 20)


class Measuring(unittest.TestCase):
    def test_the_most_of_each_kind(self):
        stats = [dict(zip(("large", "small"), pair)) for pair in ((5, 1), (25, 2), (5, 1), (15, 9))]
        told = iter([{f"requested_bytes.{kind}_pool.{what}": value for kind, value in each.items() for what in ("current", "peak")}
                     for each in stats])
        with mock.patch.object(torch.cuda, "memory_stats", lambda: next(told)), \
                mock.patch.object(torch.cuda, "reset_peak_memory_stats", lambda: None), \
                mock.patch.object(torch.cuda, "synchronize", lambda: None):
            self.assertEqual(arena.most_at_once([lambda: None] * 2), (20, 8))


if __name__ == "__main__":
    unittest.main()
