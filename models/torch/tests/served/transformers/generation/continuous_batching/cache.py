# SPDX-License-Identifier: Apache-2.0
"""Stand-in: one tensor of sectors, of which the second one is what padding writes; sized by what is free."""
import os

import torch

WIDTH = 8
SECTOR = 4 * WIDTH * 4  # bytes: four tokens


class PagedAttentionMemoryHandler:
    def __init__(self, settings):
        self.settings, self.available_memory = settings, self.get_available_memory()

    def get_available_memory(self):
        return int(os.environ.get("FREE_MEMORY", 1 << 30))


class PagedAttentionCache:
    def __init__(self, settings):
        self.bytes_per_sector, self.cache_allocators, self.max_batch_tokens = SECTOR, {"full_attention": None}, settings.max_batch_tokens
        self.num_blocks = settings.num_blocks or PagedAttentionMemoryHandler(settings).available_memory // (1 << 20)
        self.cache_tensor = torch.zeros(SECTOR * (2 + self.num_blocks), dtype=torch.uint8)
        self.write_trash_index = 4

    @property
    def tokens(self):
        return self.cache_tensor.view(torch.float32).view(-1, WIDTH)

    def reset(self):
        pass
