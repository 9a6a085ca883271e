/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as an artifact's text twin. What is read is a valid artifact, which prints and reads again. */
#include "format/artifact/artifact.h"
#include "tests/fuzz/consumers.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/twin.h"

bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	fuzz_accepted = false;
	FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	if (!in)
		return 0;
	fuzz_accepted = md_artifact_parse_text(in, &artifact, &err) == MD_OK;
	fclose(in);
	FUZZ_REQUIRE(fuzz_accepted || (err.status && *err.message), "refused without saying why");
	if (!fuzz_accepted)
		return 0;
	FUZZ_REQUIRE(md_artifact_check(&artifact, &err) == MD_OK, "read, but bad: %s", err.message);
	twin_check(&artifact);
	consumers_of_artifact(&artifact, &(struct md_artifact_sizes){0});
	md_artifact_finish(&artifact);
	return 0;
}
