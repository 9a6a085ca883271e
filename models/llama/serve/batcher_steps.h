/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the batcher that use the device. */
#ifndef LLAMA_SERVE_BATCHER_STEPS_H
#define LLAMA_SERVE_BATCHER_STEPS_H

#include "models/llama/serve/batcher.h"

/* Writes the request's blocks from number `first` on into its row of the block table. */
enum md_status batcher_upload_blocks(struct batcher *batcher, const struct serve_request *request, size_t first,
				     struct md_error *err);
/* The next piece of a prompt; after the last one, its first token. */
enum md_status batcher_prefill(struct batcher *batcher, struct serve_request *request, struct md_error *err);
/* One token for each of batcher->rows. */
enum md_status batcher_decode(struct batcher *batcher, struct md_error *err);

/* In batcher.c: the request leaves, and its client is told. */
void batcher_end(struct batcher *batcher, struct serve_request *request, enum serve_finish finish);
/* The request begins anew later, with the tokens that it has: with its blocks' contents, if nobody needs them meanwhile. */
void batcher_preempt(struct batcher *batcher, struct serve_request *request);

/* In batcher_adapters.c: who waits gets a slot for its adapter, as far as there are some. */
void batcher_take_slots(struct batcher *batcher);
void batcher_leave_slot(struct batcher *batcher, struct serve_request *request);
bool batcher_has_adapter(const struct batcher *batcher, const struct serve_request *request);
/* A piece of an adapter on its way to the device; *worked is set if there was one. */
enum md_status batcher_copy_adapter(struct batcher *batcher, bool *worked, struct md_error *err);

#endif
