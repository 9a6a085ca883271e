/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as numbers: their order, spans of what replays leave, and tolerances in units in the last place. */
#include "base/element.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sign, exponent and fraction of the floating-point types; size 0: none. */
static const struct layout {
	const char *name;
	uint8_t size, fraction;
} layouts[MD_ELEMENT_TYPES] = {
    [MD_ELEMENT_UNKNOWN] = {"f32", 4, 23}, [MD_ELEMENT_F32] = {"f32", 4, 23}, [MD_ELEMENT_F16] = {"f16", 2, 10},
    [MD_ELEMENT_BF16] = {"bf16", 2, 7},    [MD_ELEMENT_F64] = {"f64", 8, 52}, [MD_ELEMENT_EXACT] = {"exact", 4, 0},
};

size_t md_element_size(enum md_element_type type)
{
	return layouts[type].size;
}

const char *md_element_name(enum md_element_type type)
{
	return layouts[type].name;
}

/* ---- order ---- */

/* The bits of infinity; values from there on (infinity, NaN) have no place in the order. */
static uint64_t infinity_of(const struct layout *layout)
{
	unsigned bits = 8u * layout->size - 1;
	return (UINT64_C(1) << bits) - (UINT64_C(1) << layout->fraction);
}

bool md_element_order(enum md_element_type type, const uint8_t *bytes, int64_t *order)
{
	const struct layout *layout = &layouts[type];
	uint64_t bits = 0, sign;
	if (type == MD_ELEMENT_EXACT || !layout->size)
		return false;
	sign = UINT64_C(1) << (8u * layout->size - 1);
	memcpy(&bits, bytes, layout->size);
	if ((bits & ~sign) >= infinity_of(layout))
		return false;
	*order = bits & sign ? -(int64_t)(bits & ~sign) : (int64_t)bits;
	return true;
}

static double real_of(enum md_element_type type, int64_t order)
{
	const struct layout *layout = &layouts[type];
	uint64_t size = order < 0 ? (uint64_t)-order : (uint64_t)order;
	uint64_t one = UINT64_C(1) << layout->fraction, exponent = size >> layout->fraction;
	int bias = (1 << (8 * layout->size - layout->fraction - 2)) - 1;
	double value = exponent ? ldexp((double)((size & (one - 1)) | one), (int)exponent - bias - layout->fraction)
				: ldexp((double)size, 1 - bias - layout->fraction);
	return order < 0 ? -value : value;
}

/* True for zero, too. */
static bool is_normal(enum md_element_type type, int64_t order)
{
	uint64_t size = order < 0 ? (uint64_t)-order : (uint64_t)order;
	return !size || size >> layouts[type].fraction;
}

/* ---- spans ---- */

void md_element_span_add(struct md_element_span *span, enum md_element_type type, const uint8_t *first,
			 const uint8_t *bytes)
{
	int64_t order;
	span->varied |= memcmp(first, bytes, md_element_size(type)) != 0;
	if (!md_element_order(type, bytes, &order)) {
		span->odd = true;
		return;
	}
	span->low = !span->any || order < span->low ? order : span->low;
	span->high = !span->any || order > span->high ? order : span->high;
	span->any = true;
}

static uint64_t outside(const struct md_element_span *span, int64_t order)
{
	if (order < span->low)
		return (uint64_t)span->low - (uint64_t)order;
	return order > span->high ? (uint64_t)order - (uint64_t)span->high : 0;
}

bool md_element_span_holds(const struct md_element_span *span, enum md_element_type type, const uint8_t *bytes,
			   uint64_t ulps)
{
	int64_t order;
	double low, high, value;
	if (!span->any || !md_element_order(type, bytes, &order))
		return false;
	low = real_of(type, span->low);
	high = real_of(type, span->high);
	value = real_of(type, order);
	if (value >= low - (high - low) && value <= high + (high - low))
		return true;
	return outside(span, order) <= ulps && is_normal(type, order) &&
	       is_normal(type, order < span->low ? span->low : span->high);
}

uint64_t md_element_span_distance(const struct md_element_span *span, enum md_element_type type, const uint8_t *bytes)
{
	int64_t order;
	return span->any && md_element_order(type, bytes, &order) ? outside(span, order) : UINT64_MAX;
}

/* ---- tolerances ---- */

static bool parse_type(const char *text, enum md_element_type *type)
{
	for (unsigned i = MD_ELEMENT_F32; i < MD_ELEMENT_TYPES; i++)
		if (!strcmp(text, layouts[i].name)) {
			*type = (enum md_element_type)i;
			return true;
		}
	return false;
}

bool md_tolerance_parse(const char *text, struct md_tolerance *out)
{
	struct md_tolerance tolerance = {.given = true, .type = MD_ELEMENT_F32};
	char *end;
	if (*text < '0' || *text > '9')
		return false;
	tolerance.ulps = strtoull(text, &end, 10); /* strtoull turns what is too large into the largest number */
	if (tolerance.ulps > MD_TOLERANCE_ULPS_MAX || (*end && *end != ':'))
		return false;
	if (*end && !parse_type(end + 1, &tolerance.type))
		return false;
	*out = tolerance;
	return true;
}

const char *md_tolerance_print(const struct md_tolerance *tolerance, char text[MD_TOLERANCE_TEXT])
{
	snprintf(text, MD_TOLERANCE_TEXT, "%llu ULP of %s", (unsigned long long)tolerance->ulps,
		 md_element_name(tolerance->type));
	return text;
}
