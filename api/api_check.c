/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what an engine passes to the functions of medusa.h. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "api/api.h"
#include "format/artifact/artifact.h"

#define WHY_MAX 1024 /* bytes of a reason that the engine gives */

#define INVALID(err, ...) md_error_set(err, MD_ERR_INVALID, __VA_ARGS__)

/* Names are told apart from "none", so they are not empty. */
static enum md_status check_name(const char *function, const char *what, const char *name, struct md_error *err)
{
	if (!name || !*name)
		return INVALID(err, "%s: %s is %s", function, what, name ? "empty" : "NULL");
	return MD_OK;
}

static bool is_range(uint64_t address, size_t bytes)
{
	return address && bytes && bytes <= UINT64_MAX - address;
}

enum md_status md_api_check_bind(const char *name, uint64_t address, size_t bytes, enum medusa_role role,
				 struct md_error *err)
{
	MD_FORWARD(check_name("medusa_bind", "name", name, err));
	if (*name == '@')
		return INVALID(err, "medusa_bind(%s): names that begin with @ are Medusa's own", name);
	if (!is_range(address, bytes))
		return INVALID(err, "medusa_bind(%s): there is no memory of %zu bytes at %#" PRIx64, name, bytes,
			       address);
	if (role < MEDUSA_BIND_CONSTANT || role > MEDUSA_BIND_OUTPUT)
		return INVALID(err, "medusa_bind(%s): role %d is none of enum medusa_role", name, (int)role);
	return MD_OK;
}

enum md_status md_api_check_fact(const char *name, const char *value, struct md_error *err)
{
	MD_FORWARD(check_name("medusa_fingerprint_add", "name", name, err));
	if (strlen(name) > MD_FACT_NAME_MAX)
		return INVALID(err, "medusa_fingerprint_add: name has %zu bytes; at most %d are taken", strlen(name),
			       MD_FACT_NAME_MAX);
	if (!value)
		return INVALID(err, "medusa_fingerprint_add(%s): value is NULL", name);
	if (strlen(value) > MD_FACT_VALUE_MAX)
		return INVALID(err, "medusa_fingerprint_add(%s): value has %zu bytes; at most %d are taken", name,
			       strlen(value), MD_FACT_VALUE_MAX);
	return MD_OK;
}

enum md_status md_api_check_get(const char *label, void *const *exec, struct md_error *err)
{
	MD_FORWARD(check_name("medusa_graph_get", "label", label, err));
	return exec ? MD_OK : INVALID(err, "medusa_graph_get(%s): exec is NULL", label);
}

enum md_status md_api_check_want(const char *label, const unsigned *batches, size_t count, struct md_error *err)
{
	MD_FORWARD(check_name("medusa_graph_want", "label", label, err));
	if (count && !batches)
		return INVALID(err, "medusa_graph_want(%s): batches is NULL, count is %zu", label, count);
	return MD_OK;
}

enum md_status md_api_check_label(const char *label, struct md_error *err)
{
	return check_name("medusa_graph_label", "label", label, err);
}

enum md_status md_api_check_output(unsigned index, uint64_t address, size_t bytes, struct md_error *err)
{
	if (index >= MD_OUTPUTS_MAX)
		return INVALID(err, "medusa_graph_output: index is %u; it must be below %d", index, MD_OUTPUTS_MAX);
	if (!is_range(address, bytes))
		return INVALID(err, "medusa_graph_output: there is no memory of %zu bytes at %#" PRIx64, bytes,
			       address);
	return MD_OK;
}

enum md_status md_api_check_note(const void *data, size_t bytes, struct md_error *err)
{
	if (bytes && !data)
		return INVALID(err, "medusa_graph_note: data is NULL, bytes is %zu", bytes);
	if (bytes > MD_NOTE_MAX)
		return INVALID(err, "medusa_graph_note: %zu bytes; at most %u are taken", bytes, (unsigned)MD_NOTE_MAX);
	return MD_OK;
}

enum md_status md_api_check_refuse(const char *why, struct md_error *err)
{
	MD_FORWARD(check_name("medusa_graph_refuse", "why", why, err));
	if (strlen(why) > WHY_MAX)
		return INVALID(err, "medusa_graph_refuse: why has %zu bytes; at most %d are taken", strlen(why),
			       WHY_MAX);
	return MD_OK;
}

enum md_status md_api_check_memory(const char *function, uint64_t address, size_t bytes, struct md_error *err)
{
	if (!is_range(address, bytes))
		return INVALID(err, "%s: there is no memory of %zu bytes at %#" PRIx64, function, bytes, address);
	return MD_OK;
}

enum md_status md_api_check_output_get(const char *label, const medusa_deviceptr *address, const size_t *bytes,
				       struct md_error *err)
{
	MD_FORWARD(check_name("medusa_graph_output_get", "label", label, err));
	if (!address || !bytes)
		return INVALID(err, "medusa_graph_output_get(%s): %s is NULL", label, address ? "bytes" : "address");
	return MD_OK;
}

enum md_status md_api_check_note_get(const char *label, const void *const *data, const size_t *bytes,
				     struct md_error *err)
{
	MD_FORWARD(check_name("medusa_graph_note_get", "label", label, err));
	if (!data || !bytes)
		return INVALID(err, "medusa_graph_note_get(%s): %s is NULL", label, data ? "bytes" : "data");
	return MD_OK;
}

enum md_status md_api_check_trigger(const char *name, int (*run)(void *user), struct md_error *err)
{
	MD_FORWARD(check_name("medusa_trigger", "name", name, err));
	return run ? MD_OK : INVALID(err, "medusa_trigger(%s): run is NULL", name);
}

enum md_status md_api_check_mark(const char *name, struct md_error *err)
{
	return check_name("medusa_mark", "name", name, err);
}

enum md_status md_api_check_stage(const char *name, struct md_error *err)
{
	return check_name("medusa_stage", "name", name, err);
}

enum md_status md_api_check_stats(const struct medusa_stats *out, struct md_error *err)
{
	if (!out)
		return INVALID(err, "medusa_stats_read: out is NULL");
	if (out->size < sizeof(out->size))
		return INVALID(err, "medusa_stats_read: out->size is %zu; set it to sizeof(struct medusa_stats)",
			       out->size);
	return MD_OK;
}
