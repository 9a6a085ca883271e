/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of a process in which NCCL works is full of addresses of NCCL's memory, and so is what C++ leaves unset in a
 * struct. A graph is not to be refused for these, nor may one with a real address be replayed alone.
 */
#include "capture/record/unset_words.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/kernels.h"
#include "driver/cuda_driver.h"

#define KERNELS 4096  /* of which launches are counted */
#define LAUNCHES 256  /* that are looked at, of each kernel outside of graphs */
#define WORDS_BITS 13 /* a parameter block has at most 65,536 bytes */

static atomic_bool watching;
static _Atomic uint16_t looked[KERNELS];
static struct md_map unset MD_CAPTURE_GUARDED; /* kernel and word -> 1 */

static uint64_t key_of(uint32_t kernel, size_t offset)
{
	return ((uint64_t)kernel << WORDS_BITS | offset / 8) + 1;
}

void md_capture_unset_words_watch(void)
{
	atomic_store(&watching, true);
}

static void note_word(uint32_t kernel, size_t offset, uint64_t word) MD_CAPTURE_HELD
{
	uint64_t key = key_of(kernel, offset);
	if (!word || md_map_get(&unset, key, NULL) || md_interval_find(&md_capture.live, word))
		return;
	md_map_put(&unset, key, 1); /* out of memory: a graph is refused that could have been restored */
}

/* bytes: of one parameter, at `offset` of the block. */
static void note_bytes(uint32_t kernel, const uint8_t *bytes, size_t size, size_t offset) MD_CAPTURE_HELD
{
	for (size_t at = -offset & 7; at + 8 <= size; at += 8) {
		uint64_t word;
		memcpy(&word, bytes + at, sizeof(word));
		note_word(kernel, offset + at, word);
	}
}

/* One of params and block, which has `size` bytes, is NULL. */
static void note(uint32_t kernel, const struct md_kernel *known, void **params, const uint8_t *block,
		 size_t size) MD_CAPTURE_HELD
{
	uint8_t *kinds = malloc(known->param_count + (size_t)1);
	if (!kinds)
		return;
	md_kernel_param_kinds(known, kinds);
	for (uint32_t i = 0; i < known->param_count; i++) {
		const struct md_param *param = &known->params[i];
		size_t there = params ? param->size : param->offset < size ? size - param->offset : 0;
		if (kinds[i] == MD_PARAM_STRUCT && there) /* a block may end within its last parameter */
			note_bytes(kernel, params ? params[i] : block + param->offset,
				   there < param->size ? there : param->size, param->offset);
	}
	free(kinds);
}

void md_capture_unset_words_note_block(uint32_t kernel, const struct md_kernel *known, const uint8_t *block,
				       size_t size)
{
	if (atomic_load(&watching))
		note(kernel, known, NULL, block, size);
}

void md_capture_unset_words_note(struct md_capture_layout layout, void **params, void **extra)
{
	if (!atomic_load_explicit(&watching, memory_order_relaxed) || layout.kernel >= KERNELS ||
	    atomic_load_explicit(&looked[layout.kernel], memory_order_relaxed) >= LAUNCHES)
		return;
	atomic_fetch_add_explicit(&looked[layout.kernel], 1, memory_order_relaxed);
	md_capture_lock();
	const struct md_kernel *known = md_capture_kernel_get(layout.kernel);
	size_t size = 0;
	const uint8_t *block = params || !extra ? NULL : md_cuda_extra_block(extra, &size);
	if (known && (params || block))
		note(layout.kernel, known, params, block, size);
	md_capture_unlock();
}

bool md_capture_unset_words_has(uint32_t kernel, size_t offset)
{
	return unset.used && md_map_get(&unset, key_of(kernel, offset), NULL);
}
