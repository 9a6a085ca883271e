/* SPDX-License-Identifier: Apache-2.0 */
/* Distributions that keep every value; percentiles by nearest rank. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "simulator/simulator.h"

bool md_sim_samples_add(struct md_sim_samples *samples, double value)
{
	if (!MD_ARRAY_GROW(samples->values, samples->count, samples->capacity))
		return false;
	samples->values[samples->count++] = value;
	samples->sorted = false;
	return true;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

double md_sim_samples_percentile(struct md_sim_samples *samples, double p)
{
	if (!samples->count)
		return 0;
	if (!samples->sorted)
		qsort(samples->values, samples->count, sizeof(double), ascending);
	samples->sorted = true;
	double rank = ceil(p * (double)samples->count / 100);
	if (!(rank > 1))
		return samples->values[0];
	return samples->values[rank >= (double)samples->count ? samples->count - 1 : (size_t)rank - 1];
}

double md_sim_samples_mean(const struct md_sim_samples *samples)
{
	double sum = 0;
	for (size_t i = 0; i < samples->count; i++)
		sum += samples->values[i];
	return samples->count ? sum / (double)samples->count : 0;
}

void md_sim_samples_finish(struct md_sim_samples *samples)
{
	free(samples->values);
	*samples = (struct md_sim_samples){0};
}
