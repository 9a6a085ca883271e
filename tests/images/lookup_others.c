/* SPDX-License-Identifier: Apache-2.0 */
/* An image beside lookup_kernels, with a table that variables there point to. */
#include "base/export.h"
#include "hostcuda/kernel.h"

MD_EXPORT float lookup_other[64] = {1, 2, 3, 4};

struct lookup_unused {
	int32_t n;
};

HOSTCUDA_KERNEL(lookup_unused, struct lookup_unused, HOSTCUDA_PARAM(struct lookup_unused, n))
{
	lookup_other[0] = (float)p->n;
}
