/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that break what runs them once a word in private memory is not what it was. */
#include <signal.h>
#include <unistd.h>

#include "hostcuda/kernel.h"

struct faulty {
	float *out;
	const float *in;
	const volatile uint64_t *key;
	int32_t n, kind;
};

/* Kinds as in tests/subjects/faulty_subject.c. out = 2 * in, if nothing happens. */
HOSTCUDA_KERNEL(faulty, struct faulty, HOSTCUDA_PARAM(struct faulty, out), HOSTCUDA_PARAM(struct faulty, in),
		HOSTCUDA_PARAM(struct faulty, key), HOSTCUDA_PARAM(struct faulty, n),
		HOSTCUDA_PARAM(struct faulty, kind))
{
	const volatile float *from = p->in;
	if (p->kind == 1)
		from = (const volatile float *)(uintptr_t)((uintptr_t)p->in ^ *p->key ^ 0x123456789abcdef0);
	while (p->kind == 2 && *p->key != 0x123456789abcdef0)
		usleep(1000);
	if (p->kind == 3 && *p->key != 0x123456789abcdef0)
		raise(SIGKILL);
	if (p->kind == 4)
		usleep(100000);
	for (int32_t i = 0; i < p->n; i++)
		p->out[i] = 2 * from[i];
}
