/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers with the same count of set bits, in ascending order. */
#include "base/code.h"

unsigned md_code_width(size_t count)
{
	unsigned bits = 1;
	for (size_t codes = 1; codes < count; bits++) /* codes: the binomial coefficient of bits over bits / 2 */
		codes = bits % 2 ? codes * 2 : codes * (bits + 1) / (bits / 2 + 1);
	return bits;
}

size_t md_code_first(unsigned width)
{
	return ((size_t)1 << (width + 1) / 2) - 1;
}

size_t md_code_next(size_t code)
{
	size_t lowest = code & -code, carried = code + lowest;
	return carried | ((code ^ carried) / lowest >> 2);
}
