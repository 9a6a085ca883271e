/* SPDX-License-Identifier: Apache-2.0 */
/* Logarithm and exponential by their series, after an exact reduction of the argument. */
#include "simulator/exact_math.h"

#include <math.h> /* frexp, ldexp, rint and sqrt are exact everywhere */

#define LN2_HIGH 0x1.62e42fefa3800p-1 /* the product with an exponent is exact */
#define LN2_LOW 0x1.ef35793c76730p-45
#define ROOT_HALF 0.70710678118654752440
#define LOG_TERMS 13 /* s^2 is at most 0.0295, so the next term is below 1e-19 */
#define EXP_TERMS 14 /* |r| is at most 0.347 */

double md_sim_log(double x)
{
	int exponent;
	double mantissa = frexp(x, &exponent), sum = 0, s, square;
	if (mantissa < ROOT_HALF) {
		mantissa *= 2;
		exponent--;
	}
	s = (mantissa - 1) / (mantissa + 1); /* ln m = 2 (s + s^3/3 + s^5/5 + ...) */
	square = s * s;
	for (int i = LOG_TERMS; i > 0; i--)
		sum = square * (1.0 / (2 * i + 1) + sum);
	return exponent * LN2_HIGH + (exponent * LN2_LOW + 2 * (s + s * sum));
}

double md_sim_exp(double x)
{
	double whole, rest, sum = 1;
	if (x < -700)
		return 0;
	if (x > 700)
		return INFINITY;
	whole = rint(x / (LN2_HIGH + LN2_LOW));
	rest = (x - whole * LN2_HIGH) - whole * LN2_LOW;
	for (int i = EXP_TERMS; i > 0; i--)
		sum = 1 + sum * rest / i;
	return ldexp(sum, (int)whole);
}

double md_sim_pow(double x, double y)
{
	if (y == 0 || x == 1)
		return 1;
	return x > 0 ? md_sim_exp(y * md_sim_log(x)) : 0;
}
