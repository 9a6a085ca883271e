/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of a buffer as numbers: order, distance in units in the last place, and the tolerance that a user names. */
#ifndef MD_BASE_ELEMENT_H
#define MD_BASE_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values are those of medusa.h's MEDUSA_TYPE_*, and those that an artifact records. */
enum md_element_type {
	MD_ELEMENT_UNKNOWN = 0,
	MD_ELEMENT_F32 = 1,
	MD_ELEMENT_F16 = 2,
	MD_ELEMENT_BF16 = 3,
	MD_ELEMENT_F64 = 4,
	MD_ELEMENT_EXACT = 5, /* integers, flags: a value is right or wrong, never near */
};
#define MD_ELEMENT_TYPES 6u
#define MD_ELEMENT_BYTES_MAX 8u

/* Bytes of an element. An unknown type counts as f32; exact elements are compared 4 bytes at a time. */
size_t md_element_size(enum md_element_type type);
const char *md_element_name(enum md_element_type type); /* "f32" ... */

/*
 * The position of a value among all values of its type, where neighbours differ by 1. False: the value cannot be
 * ordered (the type is exact, or the value is infinite or not a number).
 */
bool md_element_order(enum md_element_type type, const uint8_t *bytes, int64_t *order);

/* The values of one element after several replays. */
struct md_element_span {
	int64_t low, high; /* orders */
	bool any, varied;  /* any: low and high are set. varied: values differed, so two NaNs count too */
	bool odd;          /* some value had no order */
};

/* first: the element as the first replay left it; bytes: as this one did. */
void md_element_span_add(struct md_element_span *span, enum md_element_type type, const uint8_t *first,
			 const uint8_t *bytes);

/*
 * Whether more replays could leave this value: it lies inside the span widened by its own width on either side, or at
 * most ulps from it. Subnormal values get no ulps, because small integers of unknown type look like subnormal floats.
 */
bool md_element_span_holds(const struct md_element_span *span, enum md_element_type type, const uint8_t *bytes,
			   uint64_t ulps);
/* The distance from the span, in units in the last place; UINT64_MAX when it cannot be computed. */
uint64_t md_element_span_distance(const struct md_element_span *span, enum md_element_type type, const uint8_t *bytes);

/* ---- what a user accepts of graphs that are not deterministic ---- */

struct md_tolerance {
	bool given;
	uint64_t ulps;
	/* counts for buffers whose type the engine does not state; F32 unless the user names another */
	enum md_element_type type;
};

#define MD_TOLERANCE_ULPS_MAX (UINT64_C(1) << 62)
#define MD_TOLERANCE_TEXT 64

/* "ULPS" or "ULPS:TYPE", as in "64:bf16". False: it is neither. */
bool md_tolerance_parse(const char *text, struct md_tolerance *out);
/* "64 ULP of bf16" */
const char *md_tolerance_print(const struct md_tolerance *tolerance, char text[MD_TOLERANCE_TEXT]);

#endif
