/* SPDX-License-Identifier: Apache-2.0 */
/* Mutation behind the checksums: a file is opened into its uncompressed parts, one changes, and it is closed again. */
#ifndef TESTS_FUZZ_MEND_H
#define TESTS_FUZZ_MEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define MEND_PARTS_MAX 16
#define MEND_RAW_MAX (256u << 10) /* bytes of a part; a larger one stays as it is stored */

struct mend_part { /* a trace's frame, an artifact's section */
	struct md_buf raw;
	bool packed;     /* raw is to be compressed */
	uint8_t row[64]; /* an artifact's row of the section table; sizes, place and checksum are made anew */
	uint32_t lie;    /* added to the announced raw size */
};

struct mend_file {
	uint8_t head[64];
	struct mend_part parts[MEND_PARTS_MAX];
	uint32_t count;
};

struct mend_format { /* open: false when the bytes are no such file; close: writes a file, of any size */
	bool (*open)(const uint8_t *data, size_t size, struct mend_file *file);
	void (*close)(struct mend_file *file, struct md_buf *out);
	size_t head_bytes;
};
extern const struct mend_format mend_trace, mend_artifact;

/* For a target's LLVMFuzzerCustomMutator. */
size_t mend_mutate(const struct mend_format *format, uint8_t *data, size_t size, size_t max_size, uint32_t seed);

/* Changes something in a buffer of msgpack items and leaves all of them well-formed; false when there is nothing. */
bool mend_items(struct md_buf *buf, uint32_t *random);

/* Writes the digests of the blocks of caches anew, so that what was done to them is not noticed at once. */
void mend_blocks(struct mend_file *file);

#endif
