/* SPDX-License-Identifier: Apache-2.0 */
/* Logarithms and powers that are the same, bit for bit, with every C library: those of libm differ in the last bit. */
#ifndef MD_SIMULATOR_EXACT_MATH_H
#define MD_SIMULATOR_EXACT_MATH_H

/*
 * Only operations that IEEE 754 defines exactly are used (and the build keeps the compiler from fusing them); results
 * are within 2e-15 of the true ones, relatively, as long as the exponent is below 30.
 */
double md_sim_log(double x);           /* x > 0, finite */
double md_sim_exp(double x);           /* 0 below -700; infinite above 700 */
double md_sim_pow(double x, double y); /* x >= 0; 0 to any power is 0, except for power 0 */

#endif
