/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as the report of a verify run. What is read is written and read again, the same. */
#include <stdlib.h>
#include <string.h>

#include "format/verify_line.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepted;

static bool same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static void write_again(const struct md_verify_line *line)
{
	struct md_verify_line read;
	struct md_error err = {0};
	char *text;
	size_t size;
	FUZZ_REQUIRE(md_verify_line_write(line, &text, &size, &err) == MD_OK, "%s", err.message);
	FUZZ_REQUIRE(size && text[size - 1] == '\n' && !memchr(text, '\n', size - 1), "not one line");
	text[size - 1] = '\0';
	FUZZ_REQUIRE(md_verify_line_read(text, size - 1, &read, &err) == MD_OK, "%s", err.message);
	FUZZ_REQUIRE(read.verdict == line->verdict && read.batch == line->batch && read.bytes == line->bytes &&
			 same(read.label, line->label) && same(read.reason, line->reason),
		     "another line came back");
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_error err = {0};
	fuzz_accepted = size != 0;
	while (size && fuzz_accepted) {
		const uint8_t *end = memchr(data, '\n', size);
		size_t length = end ? (size_t)(end - data) : size;
		char *text = malloc(length + 1); /* of its own: the reader stays within it */
		struct md_verify_line line;
		FUZZ_REQUIRE(text, "out of memory");
		memcpy(text, data, length);
		text[length] = '\0';
		fuzz_accepted = md_verify_line_read(text, length, &line, &err) == MD_OK;
		FUZZ_REQUIRE(fuzz_accepted || (err.status && *err.message), "refused without saying why");
		if (fuzz_accepted)
			write_again(&line);
		free(text);
		data += length + (end != NULL);
		size -= length + (end != NULL);
	}
	return 0;
}
