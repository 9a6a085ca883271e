/* SPDX-License-Identifier: Apache-2.0 */
/* libmedusa.so, the null library: an engine that is linked with it runs as it always did. */
#include "api/api.h"
#include "base/clock.h"
#include "kvprofile/kvprofile.h"

#define NOT_RESTORED "nothing is restored: this process runs without medusa-restore"

static int not_restored(enum md_status checked, const struct md_error *err)
{
	return checked == MD_OK ? md_api_refuse(MD_ERR_NOT_FOUND, NOT_RESTORED) : md_api_fail(err);
}

MD_EXPORT enum medusa_mode medusa_mode(void)
{
	return MEDUSA_MODE_NONE;
}

MD_EXPORT const char *medusa_reason(void)
{
	return md_api_reason();
}

MD_EXPORT int medusa_bind(const char *name, medusa_deviceptr address, size_t bytes, enum medusa_role role)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_bind(name, address, bytes, role, &err), &err);
}

MD_EXPORT int medusa_fingerprint_add(const char *name, const char *value)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_fact(name, value, &err), &err);
}

MD_EXPORT int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec)
{
	struct md_error err = {0};
	(void)batch;
	(void)timeout_ns;
	return not_restored(md_api_check_get(label, exec, &err), &err);
}

MD_EXPORT int medusa_graph_ready(const char *label, unsigned batch)
{
	(void)label;
	(void)batch;
	return 0;
}

MD_EXPORT int medusa_graph_want(const char *label, const unsigned *batches, size_t count)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_want(label, batches, count, &err), &err);
}

MD_EXPORT int medusa_graph_label(void *exec, const char *label, unsigned batch)
{
	struct md_error err = {0};
	(void)exec;
	(void)batch;
	return md_api_answer(md_api_check_label(label, &err), &err);
}

MD_EXPORT int medusa_graph_output(void *exec, unsigned index, medusa_deviceptr address, size_t bytes)
{
	struct md_error err = {0};
	(void)exec;
	return md_api_answer(md_api_check_output(index, address, bytes, &err), &err);
}

MD_EXPORT int medusa_graph_note(void *exec, const void *data, size_t bytes)
{
	struct md_error err = {0};
	(void)exec;
	return md_api_answer(md_api_check_note(data, bytes, &err), &err);
}

MD_EXPORT int medusa_graph_refuse(void *exec, const char *why)
{
	struct md_error err = {0};
	(void)exec;
	return md_api_answer(md_api_check_refuse(why, &err), &err);
}

MD_EXPORT int medusa_graph_scratch(medusa_deviceptr address, size_t bytes)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_memory("medusa_graph_scratch", address, bytes, &err), &err);
}

MD_EXPORT int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, medusa_deviceptr *address,
				      size_t *bytes)
{
	struct md_error err = {0};
	(void)batch;
	(void)index;
	return not_restored(md_api_check_output_get(label, address, bytes, &err), &err);
}

MD_EXPORT int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes)
{
	struct md_error err = {0};
	(void)batch;
	return not_restored(md_api_check_note_get(label, data, bytes, &err), &err);
}

MD_EXPORT int medusa_trigger(const char *name, int (*run)(void *user), void *user)
{
	struct md_error err = {0};
	(void)user;
	return md_api_answer(md_api_check_trigger(name, run, &err), &err);
}

MD_EXPORT int medusa_mark(const char *name)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_mark(name, &err), &err);
}

MD_EXPORT int medusa_stage(const char *name, uint64_t ns)
{
	struct md_error err = {0};
	(void)ns;
	return md_api_answer(md_api_check_stage(name, &err), &err);
}

MD_EXPORT int medusa_kv_capacity(const struct medusa_kv_request *request, struct medusa_kv *out)
{
	uint64_t start = md_clock_ns();
	struct md_error err = {0};
	struct md_kv kv;
	enum md_status status = md_kvprofile_check(request, out, &err);
	if (status == MD_OK)
		status = md_kvprofile_measure(request, &kv, &err);
	if (status == MD_OK)
		md_kvprofile_to_public(&kv, 0, md_clock_ns() - start, out);
	return md_api_answer(status, &err);
}

MD_EXPORT int medusa_stats_read(struct medusa_stats *out)
{
	struct md_error err = {0};
	return not_restored(md_api_check_stats(out, &err), &err);
}

MD_EXPORT void medusa_release(void)
{
}
