/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that the restore subject and the artifact made for it agree on. */
#ifndef TESTS_RESTORE_SUBJECT_H
#define TESTS_RESTORE_SUBJECT_H

#include <stdint.h>

#define LABEL "step"
#define GRAPHS 3                /* batch 1, 2, 3 */
#define WIDTH 64u               /* floats of one batch row */
#define FLOATS (GRAPHS * WIDTH) /* of each buffer */
#define BYTES (FLOATS * 4u)
#define OUTPUT_BYTES (3u * BYTES) /* scaled, copied, gathered */
#define TABLE_FLOATS 16u
#define ITERATIONS 5

static inline float weight_at(uint32_t i)
{
	return 0.5f + (float)(i % 7u);
}

static inline float table_at(uint32_t i)
{
	return 1.0f / (float)(1u + i);
}

#define BIAS 0.25f

#endif
