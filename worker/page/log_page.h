/* SPDX-License-Identifier: Apache-2.0 */
/* GET /logs: the last of what engines have printed, as llama-swap has it. */
#ifndef MD_WORKER_PAGE_LOG_PAGE_H
#define MD_WORKER_PAGE_LOG_PAGE_H

#include "worker/core/model_rows.h"

/*
 * 100 KiB at most, of the logs that were written last: of each of them the end, the one that was written last behind the others. On
 * a thread; directory: where logs are. False: out of memory.
 */
bool md_log_page_print(const struct md_model_rows *rows, const char *directory, FILE *out);

#endif
