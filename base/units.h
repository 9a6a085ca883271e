/* SPDX-License-Identifier: Apache-2.0 */
/* Values that people write with units: bytes, times, speeds and rates. */
#ifndef MD_BASE_UNITS_H
#define MD_BASE_UNITS_H

#include <stdint.h>

struct md_units_range {
	double low, high;
};

/* Each returns NULL, or what is wrong with the text. Zero needs no unit, all else does. */
const char *md_units_bytes(const char *text, uint64_t *bytes);               /* "1.34GB", "512MiB" */
const char *md_units_time(const char *text, uint64_t *ns);                   /* "25ms", "48s" */
const char *md_units_speed(const char *text, double *bytes_per_s);           /* "12GB/s" */
const char *md_units_rate(const char *text, struct md_units_range *per_min); /* "12/min", "5..30/min", "0.2/s" */
const char *md_units_number(const char *text, double *number);               /* "4", "0.98", "98%" */

#endif
