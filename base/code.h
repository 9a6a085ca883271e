/* SPDX-License-Identifier: Apache-2.0 */
/* Codes that tell things apart in few steps: no code's set bits include all set bits of another code. */
#ifndef MD_BASE_CODE_H
#define MD_BASE_CODE_H

#include <stddef.h>

/*
 * Step b takes the things whose code has bit b. Then for any two things there is a step that takes the first and leaves
 * the second, and a step that does the opposite. Every code has half of its bits set, because that needs the fewest
 * bits (Sperner, 1928). Returns the number of bits that `count` things need.
 */
unsigned md_code_width(size_t count);
size_t md_code_first(unsigned width);
size_t md_code_next(size_t code); /* the next greater number with as many bits set */

#endif
