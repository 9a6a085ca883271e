/* SPDX-License-Identifier: Apache-2.0 */
/* One request for tokens, on its way from the thread that speaks HTTP to the thread that runs the model, and back. */
#ifndef LLAMA_SERVE_SERVE_REQUEST_H
#define LLAMA_SERVE_SERVE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lora_weights;

enum serve_finish {
	SERVE_RUNNING,
	SERVE_STOP,      /* the model ended its text */
	SERVE_LENGTH,    /* max_tokens, or the context is full */
	SERVE_CANCELLED, /* the client is gone, or needs no more */
	SERVE_FAILED,    /* the device failed */
};

struct serve_request {
	/* set before it is submitted */
	size_t prompt_count, max_tokens; /* max_tokens > 0; both together fit the context */
	float temperature;               /* 0: the likeliest token */
	float top_p;                     /* 1: all tokens */
	uint64_t seed;
	bool ignore_end;                    /* goes on after the token that ends a text */
	const struct lora_weights *adapter; /* NULL: none; the owner keeps it */
	void *owner;
	/* The prompt's, then those that were made. The engine's thread writes one before it counts it in `told`. */
	int32_t *tokens;

	/* set by the HTTP thread, read between two steps */
	atomic_bool cancelled;
	atomic_bool held; /* the client reads too slowly: no token is made meanwhile */

	/* set by the engine's thread, read at any time */
	atomic_bool running; /* it has a place in the batch */

	/* guarded by the mailbox */
	size_t told; /* tokens that were made */
	enum serve_finish finish;
	bool in_news;
	struct serve_request *next_news, *next_arrived;

	/* of the engine's thread */
	struct serve_request *next; /* waiting */
	bool resting;               /* `held`, for one step */
	size_t count;               /* of tokens */
	size_t computed;            /* of them are in the KV cache */
	size_t reused;              /* of the prompt were there already */
	int slot;                   /* row of the block table */
	int adapter_slot;           /* of the device's pool; -1: none */
	int *blocks;
	size_t block_count, block_room;
	size_t named; /* blocks whose contents have a name */
	uint64_t name;
};

/* block_size: positions of a KV block. NULL: out of memory. */
struct serve_request *serve_request_create(const int32_t *prompt, size_t prompt_count, size_t max_tokens,
					   int block_size);
void serve_request_destroy(struct serve_request *request); /* NULL is fine */

#endif
