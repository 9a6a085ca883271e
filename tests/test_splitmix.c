/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds stand in recordings, workloads and results: their numbers stay what they are. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "base/splitmix.h"
#include "models/llama/random.h"
#include "simulator/random.h"

/* The published test vectors of SplitMix64, and the largest seed. */
Test(splitmix, numbers_of_a_seed)
{
	static const struct {
		uint64_t seed, words[3];
	} cases[] = {
	    {0, {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f}},
	    {1234567, {0x599ed017fb08fc85, 0x2c73f08458540fa5, 0x883ebce5a3f27c77}},
	    {UINT64_MAX, {0xe4d971771b652c20, 0xe99ff867dbf682c9, 0x382ff84cb27281e9}},
	};
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		uint64_t state = cases[c].seed;
		struct md_sim_random simulated = {cases[c].seed};
		for (unsigned i = 0; i < 3; i++) {
			uint64_t word = md_random_next(&state);
			cr_assert_eq(word, cases[c].words[i], "seed %" PRIu64 ", number %u is %#" PRIx64, cases[c].seed,
				     i, word);
			cr_assert_eq(md_sim_random_next(&simulated), word, "the simulator's, number %u", i);
		}
	}
}

Test(splitmix, words_of_a_place)
{
	uint64_t word = random_word(42, 3, 7);
	cr_assert_eq(md_random_mix(0), 0, "0 stays");
	cr_assert_eq(md_random_mix(1), 0x5692161d100b05e5, "1 is mixed");
	cr_assert_eq(word, 0x7cb0357504762aef, "word 7 of stream 3 of seed 42 is %#" PRIx64, word);
}
