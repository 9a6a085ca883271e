/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the body of a request to /v1/completions or /v1/chat/completions. */
#ifndef LLAMA_SERVE_API_REQUEST_H
#define LLAMA_SERVE_API_REQUEST_H

#include "models/llama/adapters/store.h"
#include "models/llama/serve/vocabulary.h"

#define API_STOPS_MAX 16u

/* An answer that says what is wrong. */
struct api_error {
	unsigned status;
	const char *type, *code; /* static; code NULL: none */
	char param[32];          /* "": none */
	char message[256];
};

struct api_model {
	const char *name;
	struct vocabulary vocabulary;
	size_t context;                    /* positions of one sequence */
	float temperature;                 /* of requests that state none */
	const struct lora_store *adapters; /* NULL: none */
};

struct api_request {
	bool chat, stream, include_usage, ignore_end, token_ids, seeded;
	struct token_list prompt;        /* not empty */
	const struct lora_name *adapter; /* the store's, valid until it changes; NULL: the base model */
	size_t max_tokens;               /* > 0; fits the context */
	float temperature, top_p;
	uint64_t seed;
	char *stops[API_STOPS_MAX];
	size_t stop_count;
};

/* False: error says why. Unknown keys are ignored. request is initialized in any case. */
bool api_request_parse(const char *body, size_t size, bool chat, const struct api_model *model,
		       struct api_request *request, struct api_error *error);
void api_request_finish(struct api_request *request);

#endif
