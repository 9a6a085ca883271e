/* SPDX-License-Identifier: Apache-2.0 */
/* A property of every valid artifact: printed, read and printed again it gives the same text. */
#ifndef TESTS_FUZZ_TWIN_H
#define TESTS_FUZZ_TWIN_H

#include <string.h>

#include "format/artifact/artifact.h"
#include "tests/fuzz/fuzz.h"

static inline char *twin_print(const struct md_artifact *artifact, size_t *size)
{
	char *text = NULL;
	struct md_error err = {0};
	FILE *out = open_memstream(&text, size);
	FUZZ_REQUIRE(out, "no memory for a text");
	FUZZ_REQUIRE(md_artifact_print_text(artifact, out, &err) == MD_OK, "cannot be printed: %s", err.message);
	fclose(out);
	return text;
}

static inline void twin_check(const struct md_artifact *artifact)
{
	struct md_artifact again;
	struct md_error err = {0};
	size_t sizes[2];
	char *texts[2] = {twin_print(artifact, &sizes[0])};
	FILE *in = fmemopen(texts[0], sizes[0], "r");
	FUZZ_REQUIRE(in, "no memory for a text");
	FUZZ_REQUIRE(md_artifact_parse_text(in, &again, &err) == MD_OK, "its own text is refused: %s", err.message);
	fclose(in);
	texts[1] = twin_print(&again, &sizes[1]);
	FUZZ_REQUIRE(sizes[0] == sizes[1] && !memcmp(texts[0], texts[1], sizes[0]), "its text reads as another one");
	md_artifact_finish(&again);
	free(texts[0]);
	free(texts[1]);
}

#endif
