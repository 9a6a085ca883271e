/* SPDX-License-Identifier: Apache-2.0 */
/* Values with their units: bytes, times, speeds and rates. */
#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 40

struct unit {
	const char *name;
	double factor;
};

static const struct unit bytes_units[] = {
    {"B", 1},     {"kB", 1e3},     {"KB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {NULL, 0},
};
static const struct unit time_units[] = {{"ns", 1},     {"us", 1e3},   {"ms", 1e6}, {"s", 1e9},
					 {"min", 6e10}, {"h", 3.6e12}, {NULL, 0}};
static const struct unit rate_units[] = {{"/s", 60}, {"/min", 1}, {"/h", 1.0 / 60}, {NULL, 0}};

/* A plain decimal number: no sign, no "inf", no hexadecimal. *end points behind it and behind blanks. */
static bool take_number(const char *text, double *number, const char **end)
{
	char digits[NUMBER_BYTES_MAX + 1];
	size_t length = strspn(text, "0123456789.");
	const char *points = memchr(text, '.', length);
	if (length == 0 || length > NUMBER_BYTES_MAX ||
	    (points && (length == 1 || memchr(points + 1, '.', length - (size_t)(points + 1 - text)))))
		return false;
	memcpy(digits, text, length);
	digits[length] = '\0';
	*number = strtod(digits, NULL);
	*end = text + length + strspn(text + length, " ");
	return true;
}

static double find_unit(const struct unit *units, const char *name)
{
	while (units->name && strcmp(units->name, name))
		units++;
	return units->factor;
}

static const char *parse(const char *text, const struct unit *units, const char *missing, double *value)
{
	const char *end;
	double number, factor;
	if (!take_number(text, &number, &end))
		return missing;
	factor = find_unit(units, end);
	if (factor == 0 && !(number == 0 && *end == '\0')) /* zero needs no unit */
		return missing;
	*value = number * factor;
	return *value < 9e18 ? NULL : "far too much";
}

static const char *parse_integer(const char *text, const struct unit *units, const char *missing, uint64_t *value)
{
	double exact;
	const char *wrong = parse(text, units, missing, &exact);
	if (!wrong)
		*value = (uint64_t)llround(exact);
	return wrong;
}

const char *md_units_bytes(const char *text, uint64_t *bytes)
{
	return parse_integer(text, bytes_units, "bytes with a unit are expected, such as 1.34GB or 512MiB", bytes);
}

const char *md_units_time(const char *text, uint64_t *ns)
{
	return parse_integer(text, time_units, "a time with a unit is expected, such as 25ms or 48s", ns);
}

const char *md_units_speed(const char *text, double *bytes_per_s)
{
	static const char missing[] = "a speed with a unit is expected, such as 12GB/s";
	char amount[NUMBER_BYTES_MAX + 8];
	size_t length = strlen(text);
	if (length < 2 || length >= sizeof(amount) || strcmp(text + length - 2, "/s"))
		return strcmp(text, "0") == 0 ? (*bytes_per_s = 0, NULL) : missing;
	memcpy(amount, text, length - 2);
	amount[length - 2] = '\0';
	return parse(amount, bytes_units, missing, bytes_per_s);
}

const char *md_units_rate(const char *text, struct md_units_range *per_min)
{
	static const char missing[] = "a rate with a unit is expected, such as 12/min or 5..30/min";
	const char *dots = strstr(text, "..");
	char low[NUMBER_BYTES_MAX + 1];
	const char *end, *wrong = parse(dots ? dots + 2 : text, rate_units, missing, &per_min->high);
	size_t length;
	per_min->low = per_min->high;
	if (wrong || !dots)
		return wrong;
	length = (size_t)(dots - text);
	if (length == 0 || length > NUMBER_BYTES_MAX)
		return missing;
	memcpy(low, text, length);
	low[length] = '\0';
	if (!take_number(low, &per_min->low, &end) || *end)
		return missing;
	end = dots + 2 + strspn(dots + 2, "0123456789. ");
	per_min->low *= *end ? find_unit(rate_units, end) : 1;
	return per_min->low <= per_min->high ? NULL : "the first rate is greater than the second";
}

const char *md_units_number(const char *text, double *number)
{
	const char *end;
	bool taken = take_number(text, number, &end);
	if (taken && (*end == 'e' || *end == 'E'))
		return "a number without an exponent is expected, such as 4000000 or 0.98";
	if (!taken || (*end && strcmp(end, "%")))
		return "a number is expected, such as 4, 0.98 or 98%";
	if (*end)
		*number /= 100;
	return NULL;
}
