/* SPDX-License-Identifier: Apache-2.0 */
/* Brings tensors of a file into device memory: several threads read, convert and copy, each through memory of its own. */
#ifndef LLAMA_LOADER_H
#define LLAMA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"
#include "models/llama/gguf.h"

/* A tensor, and the device memory where its elements become bfloat16, two bytes each. */
struct loader_part {
	const struct gguf_tensor *tensor;
	CUdeviceptr target;
};

struct loader_report {
	unsigned threads;     /* that were there; 0: nothing was loaded */
	bool page_locked;     /* the staging memory */
	size_t staging_bytes; /* all of it, which is gone when the load ends */
	uint64_t file_bytes, device_bytes, ns;
};

/* Processors that this process may use, at most 8: other programs run beside the engine. */
unsigned loader_default_threads(void);

/*
 * Reads the parts, in their order, in pieces of at most 4 MiB of device memory. gguf is of a file. context is current in
 * the calling thread, which is one of the `threads` (at least 1). Nothing is taken from device memory. At the end all is
 * copied, and threads, streams and staging memory are gone. The first error ends the load, and names the tensor;
 * MD_ERR_TRUNCATED: the file has become shorter.
 */
enum md_status loader_run(const struct gguf *gguf, const struct loader_part *parts, size_t count, CUcontext context,
			  unsigned threads, struct loader_report *report, struct md_error *err);

#endif
