/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the functions of medusa.h in all libraries (capture, restore, swap, null): checks arguments, turns
 * statuses into results, and keeps the reason that medusa_reason() gives. So an engine is told the same by each library.
 */
#ifndef MD_API_API_H
#define MD_API_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"
#include "medusa/medusa.h"

/* ---- api_result.c ---- */

/* A MEDUSA_* result; every status has one. */
int md_api_result(enum md_status status);

/* Each sets this thread's reason and returns a result. */
int md_api_ok(void);
int md_api_ok_but(const char *remark); /* it worked, and the caller may ask why it took long */
int md_api_fail(const struct md_error *err);
int md_api_refuse(enum md_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* md_api_ok() or md_api_fail(err), by status. */
int md_api_answer(enum md_status status, const struct md_error *err);

const char *md_api_reason(void);

/* ---- api_check.c ---- */

/*
 * One for each function that can be called wrongly: MD_OK, or MD_ERR_INVALID with function, argument and what is wrong
 * with it. What an argument refers to (a graph, a binding) is the library's to look up.
 */
enum md_status md_api_check_bind(const char *name, uint64_t address, size_t bytes, enum medusa_role role,
				 struct md_error *err);
enum md_status md_api_check_fact(const char *name, const char *value, struct md_error *err);
enum md_status md_api_check_get(const char *label, void *const *exec, struct md_error *err);
enum md_status md_api_check_want(const char *label, const unsigned *batches, size_t count, struct md_error *err);
enum md_status md_api_check_label(const char *label, struct md_error *err);
enum md_status md_api_check_output(unsigned index, uint64_t address, size_t bytes, struct md_error *err);
enum md_status md_api_check_note(const void *data, size_t bytes, struct md_error *err);
enum md_status md_api_check_refuse(const char *why, struct md_error *err);
enum md_status md_api_check_memory(const char *function, uint64_t address, size_t bytes, struct md_error *err);
enum md_status md_api_check_output_get(const char *label, const medusa_deviceptr *address, const size_t *bytes,
				       struct md_error *err);
enum md_status md_api_check_note_get(const char *label, const void *const *data, const size_t *bytes,
				     struct md_error *err);
enum md_status md_api_check_trigger(const char *name, int (*run)(void *user), struct md_error *err);
enum md_status md_api_check_mark(const char *name, struct md_error *err);
enum md_status md_api_check_stage(const char *name, struct md_error *err);
enum md_status md_api_check_stats(const struct medusa_stats *out, struct md_error *err);

#endif
