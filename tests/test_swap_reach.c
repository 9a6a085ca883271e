/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that can be seen in the bytes of a parameter, and those that cannot. */
#include "swap/reach.h"

#include <criterion/criterion.h>

Test(swap_reach, an_address_that_is_packed_is_not_shown)
{
	uint64_t words[16] = {1, 0x7f1234560000, 3}, packed[16] = {1, 0x7f1234560000 >> 4, 3};
	cr_assert(md_swap_reach_shows(words, sizeof(words), 0x7f1234560000), "a plain word");
	cr_assert(md_swap_reach_shows((char *)words + 4, sizeof(words) - 4, 0x7f1234560010), "4 bytes off");
	cr_assert_not(md_swap_reach_shows(packed, sizeof(packed), 0x7f1234560000), "shifted");
	cr_assert_not(md_swap_reach_shows(words, sizeof(words), 0x7f1235560000), "another address");
}
