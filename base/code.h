/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for telling things apart in few steps: none of them has all the bits of another one. */
#ifndef MD_BASE_CODE_H
#define MD_BASE_CODE_H

#include <stddef.h>

/*
 * If step b takes the things whose number has bit b, then of any two things there is a step that takes the one and
 * leaves the other, and one the other way round. All numbers have half of the bits set; that takes the fewest bits
 * (Sperner, 1928). `count` things need so many bits.
 */
unsigned md_code_width(size_t count);
size_t md_code_first(unsigned width);
size_t md_code_next(size_t code); /* the next greater number with as many bits set */

#endif
