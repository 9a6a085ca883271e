/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted for whoever pays: of a model, an API key and a minute. */
#ifndef MD_WORKER_ACCOUNTING_USAGE_H
#define MD_WORKER_ACCOUNTING_USAGE_H

#include <stdint.h>

enum md_usage_kind {
	MD_USAGE_REQUESTS, /* answers of engines that have ended */
	MD_USAGE_UNTOLD, /* of these, those in which the engine did not say how many tokens they have, or a count that can't be */
	MD_USAGE_PROMPT,     /* tokens */
	MD_USAGE_COMPLETION, /* tokens */
	MD_USAGE_GPU_NS,     /* of the model's engine; requests that run at once share it */
	MD_USAGE_BYTES,      /* of answers */
	MD_USAGE_LOADS,      /* the model's engine was started or swapped in; for the request that it was for */
	MD_USAGE_LOADED,     /* bytes of device memory that came so */
	MD_USAGE_KINDS,
};

/* Names of columns, and of keys in JSON. */
#define MD_USAGE_NAMES                                                                                                 \
	{                                                                                                              \
		"requests", "untold", "prompt_tokens", "completion_tokens", "gpu_ns", "answer_bytes", "loads",         \
		    "loaded_bytes"                                                                                     \
	}

struct md_usage {
	uint64_t of[MD_USAGE_KINDS];
};

#define MD_USAGE_KEY_BYTES 72u /* of the name of an API key, with its NUL */

#endif
