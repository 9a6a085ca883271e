/* SPDX-License-Identifier: Apache-2.0 */
/* libmedusa.so, the null library: an engine that is linked with it runs as it always did. */
#include "medusa/medusa.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "format/artifact.h"
#include "kvprofile/kvprofile.h"

#define NOT_RESTORED "nothing is restored: this process runs without medusa-restore"

#define EXPORT __attribute__((visibility("default")))

static __thread struct md_error last_error;

/* Statuses and results share their numbers where both exist; the rest is told as its nearest kin. */
static int fail(enum md_status status)
{
	switch (status) {
	case MD_OK:
		return MEDUSA_OK;
	case MD_ERR_INVALID:
		return MEDUSA_ERR_INVALID;
	case MD_ERR_NO_MEMORY:
	case MD_ERR_DRIVER_MEMORY:
		return MEDUSA_ERR_NO_MEMORY;
	case MD_ERR_NOT_FOUND:
		return MEDUSA_ERR_NOT_FOUND;
	case MD_ERR_UNSUPPORTED:
		return MEDUSA_ERR_UNSUPPORTED;
	case MD_ERR_TIMEOUT:
		return MEDUSA_ERR_TIMEOUT;
	case MD_ERR_MISMATCH:
		return MEDUSA_ERR_MISMATCH;
	default:
		return MEDUSA_ERR_DRIVER;
	}
}

static int refuse(enum md_status status, const char *why)
{
	return fail(md_error_set(&last_error, status, "%s", why));
}

static int accept_call(void)
{
	last_error.message[0] = '\0';
	return MEDUSA_OK;
}

EXPORT enum medusa_mode medusa_mode(void)
{
	return MEDUSA_MODE_NONE;
}

EXPORT const char *medusa_reason(void)
{
	return last_error.message;
}

EXPORT int medusa_bind(const char *name, uint64_t address, size_t bytes, enum medusa_role role)
{
	(void)address;
	if (!name || !*name)
		return refuse(MD_ERR_INVALID, "medusa_bind: the name is empty");
	if (*name == '@')
		return refuse(MD_ERR_INVALID, "medusa_bind: names that begin with @ are Medusa's own");
	if (!bytes || role < MEDUSA_BIND_CONSTANT || role > MEDUSA_BIND_OUTPUT)
		return refuse(MD_ERR_INVALID, "medusa_bind: no bytes, or no such role");
	return accept_call();
}

EXPORT int medusa_fingerprint_add(const char *name, const char *value)
{
	if (!name || !*name || strlen(name) > MD_FACT_NAME_MAX || !value || strlen(value) > MD_FACT_VALUE_MAX)
		return refuse(MD_ERR_INVALID, "medusa_fingerprint_add: no name or value, or one that is too long");
	return accept_call();
}

EXPORT int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec)
{
	(void)batch;
	(void)timeout_ns;
	if (!label || !exec)
		return refuse(MD_ERR_INVALID, "medusa_graph_get: label or exec is NULL");
	return refuse(MD_ERR_NOT_FOUND, NOT_RESTORED);
}

EXPORT int medusa_graph_ready(const char *label, unsigned batch)
{
	(void)label;
	(void)batch;
	return 0;
}

EXPORT int medusa_graph_want(const char *label, const unsigned *batches, size_t count)
{
	if (!label || (!batches && count))
		return refuse(MD_ERR_INVALID, "medusa_graph_want: label or batches is NULL");
	return accept_call();
}

EXPORT int medusa_graph_label(void *exec, const char *label, unsigned batch)
{
	(void)exec;
	(void)batch;
	if (!label || !*label)
		return refuse(MD_ERR_INVALID, "medusa_graph_label: the label is empty");
	return accept_call();
}

EXPORT int medusa_graph_output(void *exec, unsigned index, uint64_t address, size_t bytes)
{
	(void)exec;
	if (index >= MD_OUTPUTS_MAX || !address || !bytes || bytes > UINT64_MAX - address)
		return refuse(MD_ERR_INVALID, "medusa_graph_output: no such index, no address, or no bytes");
	return accept_call();
}

EXPORT int medusa_graph_note(void *exec, const void *data, size_t bytes)
{
	(void)exec;
	if ((bytes && !data) || bytes > MD_NOTE_MAX)
		return refuse(MD_ERR_INVALID, "medusa_graph_note: more than 65536 bytes");
	return accept_call();
}

EXPORT int medusa_graph_refuse(void *exec, const char *why)
{
	(void)exec;
	if (!why || !*why)
		return refuse(MD_ERR_INVALID, "medusa_graph_refuse: the reason is empty");
	return accept_call();
}

EXPORT int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, uint64_t *address, size_t *bytes)
{
	(void)batch;
	(void)index;
	if (!label || !address || !bytes)
		return refuse(MD_ERR_INVALID, "medusa_graph_output_get: label, address or bytes is NULL");
	return refuse(MD_ERR_NOT_FOUND, NOT_RESTORED);
}

EXPORT int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes)
{
	(void)batch;
	if (!label || !data || !bytes)
		return refuse(MD_ERR_INVALID, "medusa_graph_note_get: label, data or bytes is NULL");
	return refuse(MD_ERR_NOT_FOUND, NOT_RESTORED);
}

EXPORT int medusa_trigger(const char *name, int (*run)(void *user), void *user)
{
	(void)user;
	if (!name || !run)
		return refuse(MD_ERR_INVALID, "medusa_trigger: name or run is NULL");
	return accept_call();
}

EXPORT int medusa_mark(const char *name)
{
	return name ? accept_call() : refuse(MD_ERR_INVALID, "medusa_mark: the name is NULL");
}

EXPORT int medusa_stage(const char *name, uint64_t ns)
{
	(void)ns;
	return name ? accept_call() : refuse(MD_ERR_INVALID, "medusa_stage: the name is NULL");
}

EXPORT int medusa_kv_capacity(const struct medusa_kv_request *request, struct medusa_kv *out)
{
	uint64_t start = md_clock_ns();
	struct md_kv kv;
	enum md_status status = md_kvprofile_check(request, out, &last_error);

	if (status == MD_OK)
		status = md_kvprofile_measure(request, &kv, &last_error);
	if (status != MD_OK)
		return fail(status);
	md_kvprofile_to_public(&kv, 0, md_clock_ns() - start, out);
	return accept_call();
}

EXPORT int medusa_stats_read(struct medusa_stats *out)
{
	(void)out;
	return refuse(MD_ERR_UNSUPPORTED, NOT_RESTORED);
}

EXPORT void medusa_release(void)
{
}
