/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's answer is, as its head says: whether the worker can read it. */
#ifndef MD_WORKER_CORE_ANSWER_KIND_H
#define MD_WORKER_CORE_ANSWER_KIND_H

#include "http/head.h"

enum md_answer_kind {
	MD_ANSWER_OPAQUE, /* anything else, and all that is encoded */
	MD_ANSWER_JSON,
	MD_ANSWER_EVENTS, /* text/event-stream */
};

enum md_answer_kind md_answer_kind(const struct md_http_head *head);
/* The value of the first Content-Encoding that is another one than identity; NULL: the body is what it says it is. */
const char *md_answer_encoding(const struct md_http_head *head);

#endif
