/* SPDX-License-Identifier: Apache-2.0 */
/* Gamma variates by the method of Marsaglia and Tsang (ACM TOMS 26, 2000), from the generator and exact operations. */
#include "simulator/random.h"

#include <math.h>

/* A standard normal variate by the polar method; the second one is dropped, so that no state is kept. */
static double draw_normal(struct md_sim_random *random)
{
	for (;;) {
		double x = 2 * md_sim_random_part(random) - 1, y = 2 * md_sim_random_part(random) - 1;
		double square = x * x + y * y;
		if (square > 0 && square < 1)
			return x * sqrt(-2 * md_sim_log(square) / square);
	}
}

/* shape >= 1, scale 1 */
static double draw_gamma(struct md_sim_random *random, double shape)
{
	double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double normal = draw_normal(random), root = 1 + c * normal, cube = root * root * root;
		double part = 1 - md_sim_random_part(random);
		if (root > 0 && md_sim_log(part) < normal * normal / 2 + d - d * cube + d * md_sim_log(cube))
			return d * cube;
	}
}

double md_sim_random_gamma(struct md_sim_random *random, double mean, double cov)
{
	double shape = 1 / (cov * cov), scale = mean / shape;
	if (shape >= 1)
		return scale * draw_gamma(random, shape);
	/* a smaller shape: a variate of shape + 1 times U^(1 / shape) */
	double larger = draw_gamma(random, shape + 1);
	return scale * larger * md_sim_pow(1 - md_sim_random_part(random), 1 / shape);
}
