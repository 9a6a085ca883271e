/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a token from logits on the host: the graphs hold no request's temperature or seed. */
#ifndef LLAMA_SERVE_SAMPLER_H
#define LLAMA_SERVE_SAMPLER_H

#include <stdint.h>

struct sampler_choice {
	float temperature; /* > 0 */
	float top_p;       /* (0, 1]: of the likeliest tokens, as few as have this probability together */
	uint64_t seed;
	uint64_t position; /* of the token before */
};

struct sampler_item; /* room for one token of the vocabulary */

/* With top_p 1 the same draw as the kernel's llama_sample. room: sampler_room_bytes(vocabulary). */
int32_t sampler_draw(const float *logits, int32_t vocabulary, const struct sampler_choice *choice,
		     struct sampler_item *room);
uint64_t sampler_room_bytes(int32_t vocabulary);

#endif
