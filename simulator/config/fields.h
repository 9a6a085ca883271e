/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a configuration, described by a table: names, units, bounds, and where values are stored. */
#ifndef MD_SIMULATOR_CONFIG_FIELDS_H
#define MD_SIMULATOR_CONFIG_FIELDS_H

#include "base/units.h"
#include "simulator/config/yaml.h"

enum md_sim_field_type {
	MD_SIM_TEXT,   /* char *, owned */
	MD_SIM_BYTES,  /* uint64_t; "1.34GB", "512MiB" */
	MD_SIM_TIME,   /* uint64_t, ns; "25ms", "48s" */
	MD_SIM_SPEED,  /* double, bytes a second; "12GB/s" */
	MD_SIM_NUMBER, /* double; "0.4", "98%" */
	MD_SIM_COUNT,  /* uint32_t */
	MD_SIM_COUNTS, /* struct md_sim_counts; "20", "20..50" */
	MD_SIM_RATE,   /* struct md_units_range, a minute; "12/min", "5..30/min", "0.2/s" */
	MD_SIM_FLAG,   /* int; "true", "false" */
	MD_SIM_CHOICE, /* int: the index in choices */
	MD_SIM_NESTED, /* uint32_t: index of the YAML node, which the caller reads */
};

struct md_sim_counts {
	uint32_t low, high;
};

/*
 * low and high bound a NUMBER or COUNT; if both are 0, any value from 0 on is allowed. For other kinds high is the
 * maximum; 0: none.
 */
struct md_sim_field {
	const char *name;
	enum md_sim_field_type type;
	size_t offset; /* in the struct that is filled */
	bool required;
	double low, high;
	const char *const *choices; /* NULL-terminated */
};

#define MD_SIM_FIELD(word, kind, at, ...)                                                                              \
	{                                                                                                              \
		.name = (word), .type = (kind), .offset = (at), __VA_ARGS__                                            \
	}

#define MD_SIM_FIELDS_MAX 64

struct md_sim_fields {
	const struct md_sim_yaml *yaml;
	const struct md_sim_field *fields;
	size_t count; /* <= MD_SIM_FIELDS_MAX */
};

#define MD_SIM_FIELDS(file, table)                                                                                     \
	((struct md_sim_fields){.yaml = (file), .fields = (table), .count = sizeof(table) / sizeof((table)[0])})

/*
 * Fills *out from a mapping. Fields that are missing are left unchanged; bits of *seen (by index in the table) say
 * which were there. A text that *out has already is freed. path ("gpus[0]", or "") appears in messages. Unknown fields,
 * duplicate fields, and values without their unit are errors.
 */
enum md_status md_sim_fields_read(const struct md_sim_fields *fields, uint32_t node, const char *path, void *out,
				  uint64_t *seen, struct md_error *err);

/* MD_ERR_CORRUPT for the first required field that is not in seen. */
enum md_status md_sim_fields_require(const struct md_sim_fields *fields, uint32_t node, const char *path, uint64_t seen,
				     struct md_error *err);

/* "file:line: path.field: message". Returns MD_ERR_CORRUPT. field may be NULL. */
enum md_status md_sim_fields_refuse(const struct md_sim_yaml *yaml, uint32_t node, const char *path, const char *field,
				    struct md_error *err, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
