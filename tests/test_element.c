/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as numbers: neighbours, spans that replays leave, what ULPS reach, and tolerances as text. */
#include "base/element.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static int64_t order_of(enum md_element_type type, const void *bytes)
{
	int64_t order = INT64_MIN;
	cr_assert(md_element_order(type, bytes, &order), "%s has an order", md_element_name(type));
	return order;
}

Test(element, neighbours_differ_by_one)
{
	float f[] = {1.0f, nextafterf(1.0f, 2.0f), -1.0f, nextafterf(-1.0f, 0.0f), 0.0f, -0.0f, 1e-45f};
	double d[] = {1.0, nextafter(1.0, 2.0), -5.0};
	uint16_t half[] = {0x3c00, 0x3c01}, brain[] = {0x3f80, 0x3f81};
	cr_assert_eq(order_of(MD_ELEMENT_F32, &f[1]) - order_of(MD_ELEMENT_F32, &f[0]), 1);
	cr_assert_eq(order_of(MD_ELEMENT_F32, &f[3]) - order_of(MD_ELEMENT_F32, &f[2]), 1);
	cr_assert_eq(order_of(MD_ELEMENT_F32, &f[4]), order_of(MD_ELEMENT_F32, &f[5]), "both zeros");
	cr_assert_eq(order_of(MD_ELEMENT_F32, &f[6]), 1, "the smallest one is next to zero");
	cr_assert_eq(order_of(MD_ELEMENT_F64, &d[1]) - order_of(MD_ELEMENT_F64, &d[0]), 1);
	cr_assert_lt(order_of(MD_ELEMENT_F64, &d[2]), 0);
	cr_assert_eq(order_of(MD_ELEMENT_F16, &half[1]) - order_of(MD_ELEMENT_F16, &half[0]), 1);
	cr_assert_eq(order_of(MD_ELEMENT_BF16, &brain[1]) - order_of(MD_ELEMENT_BF16, &brain[0]), 1);
}

Test(element, should_fail_values_without_order)
{
	float f[] = {INFINITY, -INFINITY, NAN};
	uint16_t half = 0x7c00, brain = 0xff80;
	uint32_t number = 7;
	int64_t order;
	for (size_t i = 0; i < 3; i++)
		cr_assert_not(md_element_order(MD_ELEMENT_F32, (const uint8_t *)&f[i], &order), "%f", (double)f[i]);
	cr_assert_not(md_element_order(MD_ELEMENT_F16, (const uint8_t *)&half, &order), "infinity");
	cr_assert_not(md_element_order(MD_ELEMENT_BF16, (const uint8_t *)&brain, &order), "minus infinity");
	cr_assert_not(md_element_order(MD_ELEMENT_EXACT, (const uint8_t *)&number, &order), "an integer");
}

static struct md_element_span span_of(enum md_element_type type, const void *values, size_t count)
{
	struct md_element_span span = {0};
	size_t size = md_element_size(type);
	for (size_t i = 0; i < count; i++)
		md_element_span_add(&span, type, values, (const uint8_t *)values + i * size);
	return span;
}

static bool holds(const struct md_element_span *span, enum md_element_type type, const void *value, uint64_t ulps)
{
	return md_element_span_holds(span, type, value, ulps);
}

Test(element, a_span_is_widened_by_its_own_width)
{
	const float values[] = {10.0f, 11.0f, 10.5f};
	struct md_element_span span = span_of(MD_ELEMENT_F32, values, 3);
	cr_assert(span.varied);
	cr_assert(holds(&span, MD_ELEMENT_F32, &(float){10.2f}, 0), "inside");
	cr_assert(holds(&span, MD_ELEMENT_F32, &(float){9.0f}, 0), "one width below");
	cr_assert(holds(&span, MD_ELEMENT_F32, &(float){12.0f}, 0), "one width above");
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &(float){12.1f}, 0), "beyond");
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &(float){8.9f}, 1000), "and too many ULPS away");
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &(float){NAN}, UINT64_MAX), "not a number");
}

/* A sum that cancels has values on both sides of zero, between which lie most values of the type. */
Test(element, should_fail_large_values_beside_a_span_over_zero)
{
	const float values[] = {-1e-9f, 1e-9f};
	struct md_element_span span = span_of(MD_ELEMENT_F32, values, 2);
	cr_assert(holds(&span, MD_ELEMENT_F32, &(float){2.5e-9f}, 0));
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &(float){1e-3f}, 0), "a million times as large");
}

Test(element, ulps_reach_from_the_ends)
{
	const float values[] = {1.0f, 1.0f};
	struct md_element_span span = span_of(MD_ELEMENT_F32, values, 2);
	float above = 1.0f;
	cr_assert_not(span.varied);
	for (int i = 0; i < 4; i++)
		above = nextafterf(above, 2.0f);
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &above, 3));
	cr_assert(holds(&span, MD_ELEMENT_F32, &above, 4));
	cr_assert_eq(md_element_span_distance(&span, MD_ELEMENT_F32, (const uint8_t *)&above), 4);
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &(float){-1.0f}, 1u << 30), "the sign is far away");
}

Test(element, should_fail_small_integers_that_are_one_apart)
{
	const uint32_t values[] = {41, 41};
	struct md_element_span span = span_of(MD_ELEMENT_F32, values, 2);
	cr_assert_not(holds(&span, MD_ELEMENT_F32, &(uint32_t){42}, 1000), "a counter taken for f32");
	span = span_of(MD_ELEMENT_EXACT, values, 2);
	cr_assert_not(holds(&span, MD_ELEMENT_EXACT, &(uint32_t){41}, 1000), "exact: equal bytes are the caller's");
}

Test(element, each_type_has_its_width)
{
	const uint16_t halves[] = {0x3c00, 0x3e00}; /* 1, 1.5 */
	const uint16_t brains[] = {0x3f80, 0x4000}; /* 1, 2 */
	const double doubles[] = {-3.0, 1e300};
	struct md_element_span span = span_of(MD_ELEMENT_F16, halves, 2);
	cr_assert(holds(&span, MD_ELEMENT_F16, &(uint16_t){0x4000}, 0), "2 is a width above 1.5");
	cr_assert_not(holds(&span, MD_ELEMENT_F16, &(uint16_t){0x4001}, 0));
	span = span_of(MD_ELEMENT_BF16, brains, 2);
	cr_assert(holds(&span, MD_ELEMENT_BF16, &(uint16_t){0x0000}, 0), "0 is a width below 1");
	cr_assert_not(holds(&span, MD_ELEMENT_BF16, &(uint16_t){0xbf80}, 0));
	span = span_of(MD_ELEMENT_F64, doubles, 2);
	cr_assert(holds(&span, MD_ELEMENT_F64, &(double){-1e299}, 0));
	cr_assert_not(holds(&span, MD_ELEMENT_F64, &(double){-1.1e300}, 0));
}

Test(element, tolerances_as_text)
{
	static const struct {
		const char *text;
		bool good;
		uint64_t ulps;
		enum md_element_type type;
	} cases[] = {
	    {"0", true, 0, MD_ELEMENT_F32},
	    {"64", true, 64, MD_ELEMENT_F32},
	    {"4:bf16", true, 4, MD_ELEMENT_BF16},
	    {"9:f64", true, 9, MD_ELEMENT_F64},
	    {"1:f16", true, 1, MD_ELEMENT_F16},
	    {"0:exact", true, 0, MD_ELEMENT_EXACT},
	    {"", false, 0, 0},
	    {"-1", false, 0, 0},
	    {"64:", false, 0, 0},
	    {"64:int", false, 0, 0},
	    {"64x", false, 0, 0},
	    {":f32", false, 0, 0},
	    {" 4", false, 0, 0},
	    {"99999999999999999999", false, 0, 0},
	};
	char text[MD_TOLERANCE_TEXT];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_tolerance tolerance = {0};
		cr_assert_eq(md_tolerance_parse(cases[i].text, &tolerance), cases[i].good, "\"%s\"", cases[i].text);
		cr_assert_eq(tolerance.given, cases[i].good, "\"%s\"", cases[i].text);
		cr_assert(tolerance.ulps == cases[i].ulps && tolerance.type == (cases[i].good ? cases[i].type : 0),
			  "\"%s\"", cases[i].text);
	}
	cr_assert_str_eq(md_tolerance_print(&(struct md_tolerance){true, 4, MD_ELEMENT_BF16}, text), "4 ULP of bf16");
}
