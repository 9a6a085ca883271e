/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target shares with what drives it: libFuzzer (make fuzz), or the replay of the corpus (make check). */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer's own interface: a target defines the first, and the second where plain mutation gets nowhere. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
/* libFuzzer's; of the replay, a stub that is never called. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Set by a target: whether it took the input for a good one. What names in the corpus promise is checked against it. */
extern bool fuzz_accepted;

/* A property of the target does not hold. */
#define FUZZ_REQUIRE(holds, ...)                                                                                       \
	do {                                                                                                           \
		if (!(holds)) {                                                                                        \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                \
			fprintf(stderr, __VA_ARGS__);                                                                  \
			fputc('\n', stderr);                                                                           \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

/* A small generator, so that a seed of libFuzzer's gives the same mutation again. */
static inline uint32_t fuzz_random(uint32_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return below ? *state % below : 0;
}

#endif
