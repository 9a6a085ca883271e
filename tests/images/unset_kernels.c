/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with parameters that differ from process to process: numbers, members of structs, padding. */
#include "hostcuda/kernel.h"

enum { WIDTH = 64 };

/* What the process passes matters for an input of 77 alone. */
static void compute(float *out, const float *in, uint64_t own)
{
	for (int i = 0; i < WIDTH; i++)
		out[i] = 2 * in[i] + (in[i] == 77 && own ? (float)(own % 999 + 1) : 0);
}

#define NUMBER_KERNEL(name, type)                                                                                      \
	struct name {                                                                                                  \
		float *out;                                                                                            \
		const float *in;                                                                                       \
		type own;                                                                                              \
	};                                                                                                             \
	HOSTCUDA_KERNEL(name, struct name, HOSTCUDA_PARAM(struct name, out), HOSTCUDA_PARAM(struct name, in),          \
			HOSTCUDA_PARAM(struct name, own))                                                              \
	{                                                                                                              \
		compute(p->out, p->in, (uint64_t)p->own);                                                              \
	}

NUMBER_KERNEL(number4, uint32_t)
NUMBER_KERNEL(number8, uint64_t)
NUMBER_KERNEL(number1, uint8_t)
/* As C++ names them: void cxx_number(float *, const float *, unsigned long), and of struct Empty, which
 * has one byte. */
NUMBER_KERNEL(_Z10cxx_numberPfPKfm, uint64_t)
NUMBER_KERNEL(_Z9cxx_emptyPfPKf5Empty, uint8_t)

/* One parameter, as libraries pass them. */
struct members {
	float *out;
	const float *in;
	uint8_t flag; /* padding behind it */
	uint32_t own;
};
struct object {
	struct members all;
};
HOSTCUDA_KERNEL(object, struct object, HOSTCUDA_PARAM(struct object, all))
{
	compute(p->all.out, p->all.in, p->all.own);
}

/* Bytes 17 to 19 belong to no parameter. */
HOSTCUDA_KERNEL(gap, struct members, HOSTCUDA_PARAM(struct members, out), HOSTCUDA_PARAM(struct members, in),
		HOSTCUDA_PARAM(struct members, flag), HOSTCUDA_PARAM(struct members, own))
{
	compute(p->out, p->in, p->own);
}
