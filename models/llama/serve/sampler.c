/* SPDX-License-Identifier: Apache-2.0 */
/* The Gumbel trick with the counter-based generator of the kernels: a draw depends on nothing but seed and position. */
#include "models/llama/serve/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "models/llama/random.h"

struct sampler_item {
	float logit;
	int32_t token;
};

uint64_t sampler_room_bytes(int32_t vocabulary)
{
	return (uint64_t)vocabulary * sizeof(struct sampler_item);
}

static int likelier_first(const void *a, const void *b)
{
	const struct sampler_item *left = a, *right = b;
	if (left->logit != right->logit)
		return left->logit > right->logit ? -1 : 1;
	return (left->token > right->token) - (left->token < right->token);
}

static void put_likelier_first(const float *logits, int32_t vocabulary, struct sampler_item *room)
{
	for (int32_t i = 0; i < vocabulary; i++)
		room[i] = (struct sampler_item){logits[i], i};
	qsort(room, (size_t)vocabulary, sizeof(*room), likelier_first);
}

/* How many of the likeliest tokens have the probability top_p together. */
static int32_t nucleus(const struct sampler_item *room, int32_t vocabulary, const struct sampler_choice *choice)
{
	double total = 0, sum = 0;
	int32_t count = 0;
	for (int32_t i = 0; i < vocabulary; i++)
		total += exp(((double)room[i].logit - room[0].logit) / choice->temperature);
	while (count < vocabulary && (!count || sum < (double)choice->top_p * total)) {
		sum += exp(((double)room[count].logit - room[0].logit) / choice->temperature);
		count++;
	}
	return count;
}

static float score_of(float logit, int32_t token, const struct sampler_choice *choice)
{
	uint64_t word = random_word(choice->seed, (uint64_t)(uint32_t)choice->position, (uint64_t)token);
	return logit / choice->temperature - logf(-logf(random_unit(word)));
}

int32_t sampler_draw(const float *logits, int32_t vocabulary, const struct sampler_choice *choice,
		     struct sampler_item *room)
{
	int32_t count = vocabulary, next = 0;
	bool all = choice->top_p >= 1;
	float best = -INFINITY;
	if (!all) {
		put_likelier_first(logits, vocabulary, room);
		count = nucleus(room, vocabulary, choice);
		next = room[0].token;
	}
	for (int32_t i = 0; i < count; i++) {
		int32_t token = all ? i : room[i].token;
		float score = score_of(logits[token], token, choice);
		if (score > best) {
			best = score;
			next = token;
		}
	}
	return next;
}
