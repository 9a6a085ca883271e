/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of an order to medusa-swap, and what it has answered. */
#ifndef MD_WORKER_ENGINE_SWAP_ORDER_H
#define MD_WORKER_ENGINE_SWAP_ORDER_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MD_SWAP_ORDER_WORDS 10

/* Who is meant, and how. */
struct md_swap_order {
	const char *command; /* path of medusa-swap */
	const char *name;    /* of an engine of medusa-swap run; NULL: the tree of `pid`, by the driver's checkpoints */
	pid_t pid;
	bool neighbours;     /* "in": over links of other GPUs, too; with a name only */
	uint64_t deadline_s; /* of "out": for the end of the engine's work */
	char texts[2][24];   /* set by md_swap_order_words */
};

/* Words that live as long as the order; verb: "out" or "in". */
void md_swap_order_words(struct md_swap_order *order, const char *verb, char *words[MD_SWAP_ORDER_WORDS]);

/* A file in memory that gets what the order prints; -1: there is none, so `log` is to get it. */
int md_swap_order_answer(void);
/*
 * Why medusa-swap, which has ended with this status, has failed for the model: a sentence without its end. What the order printed
 * is added to the log `output` (-1: none), and `answer` is closed (-1 is fine).
 */
void md_swap_order_failed(const char *verb, const char *model, int status, int answer, int output, char *why,
			  size_t size);

#endif
