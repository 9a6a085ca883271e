/* SPDX-License-Identifier: Apache-2.0 */
/* All memory that a request needs is taken when it is made: nothing can fail for lack of it while it runs. */
#include "models/llama/serve/serve_request.h"

#include <stdlib.h>
#include <string.h>

struct serve_request *serve_request_create(const int32_t *prompt, size_t prompt_count, size_t max_tokens,
					   int block_size)
{
	struct serve_request *request = calloc(1, sizeof(*request));
	size_t total = prompt_count + max_tokens;
	if (!request)
		return NULL;
	request->prompt_count = request->count = prompt_count;
	request->max_tokens = max_tokens;
	request->top_p = 1;
	request->slot = request->adapter_slot = -1;
	request->block_room = total / (size_t)block_size + 1;
	request->tokens = malloc(total * sizeof(*request->tokens));
	request->blocks = malloc(request->block_room * sizeof(*request->blocks));
	if (!request->tokens || !request->blocks) {
		serve_request_destroy(request);
		return NULL;
	}
	memcpy(request->tokens, prompt, prompt_count * sizeof(*prompt));
	return request;
}

void serve_request_destroy(struct serve_request *request)
{
	if (!request)
		return;
	free(request->tokens);
	free(request->blocks);
	free(request);
}
