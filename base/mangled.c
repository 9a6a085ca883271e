/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads parameters from mangled C++ names: only the types at the top level of the list count, what is inside them is
 * skipped.
 */
#include "base/mangled.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define DEPTH_MAX 128
#define ARGS_MAX 64

/* A type in the text. */
struct span {
	const char *from, *to;
};

struct reader {
	const char *at;
	unsigned depth;
	bool bad; /* set at the first thing that is not understood; nothing is read from there on */
};

static void read_type(struct reader *r);
static bool read_name(struct reader *r, const char **args);

static void fail(struct reader *r)
{
	r->bad = true;
	r->at = "";
}

static bool take(struct reader *r, const char *text)
{
	size_t size = strlen(text);
	if (strncmp(r->at, text, size))
		return false;
	r->at += size;
	return true;
}

static void want(struct reader *r, const char *text)
{
	if (!take(r, text))
		fail(r);
}

static bool enter(struct reader *r)
{
	if (r->depth == DEPTH_MAX)
		fail(r);
	r->depth++;
	return !r->bad;
}

static uint64_t read_number(struct reader *r)
{
	uint64_t number = 0;
	while (isdigit((unsigned char)*r->at)) {
		number = number < 100000 ? number * 10 + (uint64_t)(*r->at - '0') : 100000;
		r->at++;
	}
	return number;
}

/* A number in base 36 and "_", as substitutions and template parameters have it. */
static void read_index(struct reader *r)
{
	while (isdigit((unsigned char)*r->at) || isupper((unsigned char)*r->at))
		r->at++;
	want(r, "_");
}

static void read_source_name(struct reader *r)
{
	uint64_t size = read_number(r);
	if (!size || strnlen(r->at, size) < size)
		fail(r);
	else
		r->at += size;
}

static void read_types_until_end(struct reader *r)
{
	while (!r->bad && !take(r, "E")) {
		if (!*r->at)
			fail(r);
		else
			read_type(r);
	}
}

/* ---- template arguments ---- */

static void read_encoding(struct reader *r)
{
	const char *args;
	read_name(r, &args);
	read_types_until_end(r);
}

/* A literal value, or the address of a function; no other expression. */
static void read_literal(struct reader *r)
{
	if (take(r, "_Z")) {
		read_encoding(r);
		return;
	}
	read_type(r);
	while (*r->at && *r->at != 'E')
		r->at++;
	want(r, "E");
}

static void read_arg(struct reader *r)
{
	if (!enter(r))
		return;
	if (take(r, "J")) {
		while (!r->bad && !take(r, "E"))
			read_arg(r);
	} else if (take(r, "XadL")) {
		read_literal(r);
		want(r, "E");
	} else if (take(r, "L")) {
		read_literal(r);
	} else {
		read_type(r);
	}
	r->depth--;
}

static bool read_args(struct reader *r)
{
	if (!take(r, "I"))
		return false;
	while (!r->bad && !take(r, "E"))
		read_arg(r);
	return true;
}

/* ---- names ---- */

/* nvcc's own encoding of a lambda in a template argument: its captures and the function that it is in. */
static void read_device_lambda(struct reader *r, bool has_host)
{
	uint64_t captures = 0;
	for (int i = 0; i < (has_host ? 4 : 1); i++) {
		captures = read_number(r);
		want(r, "_");
	}
	read_type(r); /* of the function */
	read_type(r); /* its name */
	read_number(r);
	want(r, "_");
	if (has_host)
		read_types_until_end(r);
	while (!r->bad && captures--)
		read_type(r);
}

static void read_unnamed(struct reader *r)
{
	bool has_host = take(r, "nvhdl");
	if (has_host || take(r, "nvdl")) {
		read_device_lambda(r, has_host);
		return;
	}
	if (take(r, "l"))
		read_types_until_end(r);
	else
		want(r, "t");
	read_number(r);
	want(r, "_");
}

static void read_unqualified(struct reader *r)
{
	take(r, "L");
	if (isdigit((unsigned char)*r->at))
		read_source_name(r);
	else if (take(r, "U"))
		read_unnamed(r);
	else if (take(r, "cv"))
		read_type(r);
	else if (islower((unsigned char)r->at[0]) && islower((unsigned char)r->at[1]))
		r->at += 2; /* an operator */
	else if ((r->at[0] == 'C' || r->at[0] == 'D') && isdigit((unsigned char)r->at[1]))
		r->at += 2; /* constructor, destructor */
	else
		fail(r);
	while (take(r, "B"))
		read_source_name(r);
}

static void read_substitution(struct reader *r)
{
	if (take(r, "t"))
		read_unqualified(r);
	else if (*r->at && strchr("absiod", *r->at))
		r->at++;
	else
		read_index(r);
}

/* False: the name does not end with template arguments; otherwise they begin at *args. */
static bool read_nested(struct reader *r, const char **args)
{
	bool has_args = false;
	while (take(r, "r") || take(r, "V") || take(r, "K"))
		;
	if (!take(r, "R"))
		take(r, "O");
	while (!r->bad && !take(r, "E")) {
		const char *start = r->at;
		has_args = read_args(r);
		if (has_args)
			*args = start;
		else if (take(r, "S"))
			read_substitution(r);
		else if (take(r, "T"))
			read_index(r);
		else
			read_unqualified(r);
	}
	return has_args;
}

static void read_discriminator(struct reader *r)
{
	if (take(r, "__")) {
		read_number(r);
		want(r, "_");
	} else if (r->at[0] == '_' && isdigit((unsigned char)r->at[1])) {
		r->at += 2;
	}
}

/* A name that is declared inside of a function. */
static bool read_local(struct reader *r, const char **args)
{
	bool has_args = false;
	read_encoding(r);
	if (take(r, "d")) {
		read_number(r);
		want(r, "_");
	}
	if (!take(r, "s"))
		has_args = read_name(r, args);
	read_discriminator(r);
	return has_args;
}

static bool read_name(struct reader *r, const char **args)
{
	bool has_args = false;
	if (!enter(r))
		return false;
	if (take(r, "N")) {
		has_args = read_nested(r, args);
	} else if (take(r, "Z")) {
		has_args = read_local(r, args);
	} else {
		if (take(r, "S"))
			read_substitution(r);
		else
			read_unqualified(r);
		*args = r->at;
		has_args = read_args(r);
	}
	r->depth--;
	return has_args;
}

/* ---- types ---- */

static void read_function(struct reader *r)
{
	take(r, "Y");
	while (!r->bad && !take(r, "E")) {
		if (!take(r, "RE") && !take(r, "OE"))
			read_type(r);
		else
			return;
	}
}

static void read_special(struct reader *r)
{
	if (take(r, "p")) {
		read_type(r);
	} else if (take(r, "F")) {
		read_number(r);
		if (!take(r, "b"))
			want(r, "_");
	} else if (take(r, "v")) {
		read_number(r);
		want(r, "_");
		read_type(r);
	} else if (take(r, "oF")) {
		read_function(r);
	} else if (*r->at && strchr("acdefhinsu", *r->at)) {
		r->at++;
	} else {
		fail(r);
	}
}

static void read_array(struct reader *r)
{
	read_number(r);
	want(r, "_");
	read_type(r);
}

static void read_type_here(struct reader *r)
{
	const char *args;
	if (*r->at && strchr("NZSLU0123456789", *r->at)) {
		read_name(r, &args);
	} else if (take(r, "T")) {
		read_index(r);
		read_args(r);
	} else if (take(r, "F")) {
		read_function(r);
	} else if (take(r, "A")) {
		read_array(r);
	} else if (take(r, "M")) {
		read_type(r);
		read_type(r);
	} else if (take(r, "D")) {
		read_special(r);
	} else if (take(r, "u")) {
		read_source_name(r);
	} else if (islower((unsigned char)*r->at)) {
		r->at++;
	} else {
		fail(r);
	}
}

static void read_type(struct reader *r)
{
	if (!enter(r))
		return;
	while (*r->at && strchr("rVKPROCG", *r->at))
		r->at++;
	read_type_here(r);
	r->depth--;
}

/* ---- what a parameter is ---- */

static bool equals(struct span span, const char *text)
{
	return (size_t)(span.to - span.from) == strlen(text) && !memcmp(span.from, text, strlen(text));
}

/* Types of CUDA, PyTorch and CUTLASS whose bytes are all value, with their sizes; 0: another type. */
static uint8_t size_of_named(struct span span)
{
	static const struct {
		const char *name;
		uint8_t size;
	} known[] = {
	    {"6__half", 2},     {"7__half2", 4},  {"13__nv_bfloat16", 2}, {"14__nv_bfloat162", 4},
	    {"N3c104HalfE", 2}, {"5char2", 2},    {"N3c108BFloat16E", 2}, {"N7cutlass6half_tE", 2},
	    {"6uchar2", 2},     {"5char4", 4},    {"6uchar4", 4},         {"N7cutlass10bfloat16_tE", 2},
	    {"6short2", 4},     {"7ushort2", 4},  {"6short4", 8},         {"7ushort4", 8},
	    {"4int2", 8},       {"5uint2", 8},    {"6float2", 8},         {"4int3", 12},
	    {"5uint3", 12},     {"6float3", 12},  {"4dim3", 12},          {"4int4", 16},
	    {"5uint4", 16},     {"6float4", 16},  {"5long2", 16},         {"6ulong2", 16},
	    {"9longlong2", 16}, {"7double2", 16}, {"10ulonglong2", 16},
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (equals(span, known[i].name))
			return known[i].size;
	return 0;
}

static uint8_t size_of_number(struct span span)
{
	static const char letters[] = "bcahstijlmxyfdnow";
	static const uint8_t sizes[] = {1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 4, 8, 16, 16, 4};
	const char *found = span.to - span.from == 1 ? strchr(letters, *span.from) : NULL;
	if (found)
		return sizes[found - letters];
	if (equals(span, "DF16_") || equals(span, "DF16b") || equals(span, "Dh") || equals(span, "Ds"))
		return 2;
	return equals(span, "Di") ? 4 : size_of_named(span);
}

static struct md_mangled_param judge(struct span type)
{
	uint8_t size;
	while (type.from < type.to && strchr("rVK", *type.from))
		type.from++;
	if (type.from < type.to && (strchr("PRO", *type.from) || equals(type, "Dn")))
		return (struct md_mangled_param){MD_MANGLED_ADDRESS, 8};
	size = size_of_number(type);
	return (struct md_mangled_param){size ? MD_MANGLED_NUMBER : MD_MANGLED_OBJECT, size};
}

/* ---- the list ---- */

struct args { /* the template arguments of the function itself; only types and packs of types matter */
	struct span items[ARGS_MAX];
	uint32_t count;
};

static bool list_args(const char *from, struct args *args)
{
	struct reader r = {.at = from + 1};
	args->count = 0;
	while (!r.bad && !take(&r, "E")) {
		const char *start = r.at;
		if (args->count == ARGS_MAX)
			return false;
		read_arg(&r);
		args->items[args->count++] = (struct span){start, r.at};
	}
	return !r.bad;
}

/* The template argument that the whole type is: T_ is the first, T0_ the second. */
static const struct span *find_arg(const struct args *args, struct span type)
{
	uint64_t index = 0;
	while (type.from < type.to && strchr("rVK", *type.from))
		type.from++;
	ptrdiff_t size = type.to - type.from;
	if (size < 2 || type.from[0] != 'T' || type.from[size - 1] != '_')
		return NULL;
	for (const char *at = type.from + 1; at < type.from + size - 1; at++) {
		if (!isdigit((unsigned char)*at)) /* an index with a letter: read as an object */
			return NULL;
		index = index * 10 + (uint64_t)(*at - '0');
	}
	if (size > 2)
		index = size == 3 ? index + 1 : ARGS_MAX;
	return index < args->count ? &args->items[index] : NULL;
}

struct list {
	const struct args *args;
	struct md_mangled_param *params;
	uint32_t count, found;
};

static void add(struct list *list, struct span type)
{
	const struct span *arg = find_arg(list->args, type);
	if (list->found < list->count)
		list->params[list->found] = judge(arg ? *arg : type);
	list->found++;
}

/* Dp expands to as many parameters as the pack has types. False: it is not known which pack. */
static bool add_pack(struct list *list, struct span type)
{
	const struct span *arg = find_arg(list->args, type);
	struct reader r = {.at = arg ? arg->from : ""};
	if (!take(&r, "J"))
		return false;
	while (!r.bad && !take(&r, "E")) {
		const char *start = r.at;
		read_arg(&r);
		if (!r.bad) /* if reading failed, r.at does not point into the name */
			add(list, (struct span){start, r.at});
	}
	return !r.bad;
}

static bool read_list(struct reader *r, struct list *list)
{
	if (!strcmp(r->at, "v"))
		return !list->count;
	while (!r->bad && *r->at) {
		bool pack = take(r, "Dp");
		const char *start = r->at;
		read_type(r);
		if (r->bad)
			return false;
		if (!pack)
			add(list, (struct span){start, r->at});
		else if (!add_pack(list, (struct span){start, r->at}))
			return false;
	}
	return !r->bad && list->found == list->count;
}

bool md_mangled_params(const char *name, struct md_mangled_param *params, uint32_t count)
{
	struct reader r = {.at = name};
	struct args args = {.count = 0};
	struct list list = {&args, params, count, 0};
	const char *own = NULL;
	if (!take(&r, "_Z"))
		return false;
	/* Only the name of a template is followed by the type that is returned. */
	if (read_name(&r, &own) && (!list_args(own, &args) || !take(&r, "v")))
		return false;
	return !r.bad && *r.at && read_list(&r, &list);
}
