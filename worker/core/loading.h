/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a client that waits for its model what is going on, in the stream that the answer will come in. */
#ifndef MD_WORKER_CORE_LOADING_H
#define MD_WORKER_CORE_LOADING_H

#include "worker/core/worker.h"

/*
 * Begins the answer with status 200, and says each second in choices[0].delta.reasoning_content what the model's engine
 * does, until md_loading_end. Nothing happens unless the model's configuration wants it and the request is for a stream
 * of a chat whose model is not ready.
 */
void md_loading_begin(struct md_worker_job *job);
void md_loading_end(struct md_worker_job *job);

#endif
