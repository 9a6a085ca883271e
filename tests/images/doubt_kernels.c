/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel with a word that may be a stale pointer, and may be used in several ways. */
#include "hostcuda/kernel.h"

struct doubt {
	float *out;
	const float *in, *table;
	float *word;
	int32_t n, kind;
};

/* Kinds as in tests/subjects/doubt_subject.c. */
HOSTCUDA_KERNEL(doubt, struct doubt, HOSTCUDA_PARAM(struct doubt, out), HOSTCUDA_PARAM(struct doubt, in),
		HOSTCUDA_PARAM(struct doubt, table), HOSTCUDA_PARAM(struct doubt, word),
		HOSTCUDA_PARAM(struct doubt, n), HOSTCUDA_PARAM(struct doubt, kind))
{
	for (int32_t i = 0; i < p->n; i++) {
		float more = 0;
		if (p->kind == 1)
			more = p->word[i % 8];
		if (p->kind == 2)
			more = p->word ? 1 : 0;
		if (p->kind == 3 && p->word)
			more = p->word[0];
		if (p->kind == 4)
			(void)*(const volatile float *)p->word;
		if (p->kind == 5)
			p->word[0] = 3;
		p->out[i] = p->in[i] + p->table[i % 8] + more;
	}
}
