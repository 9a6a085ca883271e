/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as an artifact, whole and in parts as a cold start reads it; both agree, and so
 * does the text. */
#include <string.h>
#include <unistd.h>

#include "format/artifact/artifact.h"
#include "tests/fuzz/consumers.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mend.h"
#include "tests/fuzz/twin.h"

bool fuzz_accepted;

/* Images are read for restore one by one, out of the file. */
static bool read_images(const struct md_artifact_file *file, const struct md_artifact *artifact)
{
	struct md_error err = {0};
	bool all = true;
	for (uint32_t i = 0; i < artifact->image_count && all; i++) {
		const struct md_image *image = &artifact->images[i];
		if (!image->frame.stored)
			continue;
		void *data = malloc(image->size ? image->size : 1);
		if (!data)
			return false;
		all = md_artifact_read_image(file, artifact, i, data, &err) == MD_OK;
		FUZZ_REQUIRE(all || *err.message, "an image was refused without saying why");
		free(data);
	}
	return all;
}

/* Caches are read by themselves, too, block by block. */
static bool read_caches(const char *path)
{
	struct md_cache_source *source = NULL;
	struct md_error err = {0};
	const struct md_caches none = {0}, *caches = &none;
	bool all = md_cache_source_open(path, &source, &err) == MD_OK;
	all = all && (!source || md_cache_source_index(source, NULL, &caches, &err) == MD_OK);
	FUZZ_REQUIRE(all || (err.status && *err.message), "the caches were refused without saying why");
	for (uint32_t i = 0; i < caches->block_count && all; i++) {
		uint8_t *stored = malloc(caches->blocks[i].stored + 1), *raw = malloc(caches->blocks[i].raw);
		all = stored && raw && md_cache_source_read(source, i, stored, raw, &err) == MD_OK;
		FUZZ_REQUIRE(all || *err.message, "a block was refused without saying why");
		free(stored);
		free(raw);
	}
	md_cache_source_close(source);
	return all;
}

static bool read_in_parts(const char *path)
{
	struct md_artifact_file *file;
	struct md_artifact artifact;
	struct md_error err = {0};
	if (md_artifact_open(path, &file, &artifact, &err) != MD_OK) {
		FUZZ_REQUIRE(err.status && *err.message, "opening failed without saying why");
		return false;
	}
	bool good = md_artifact_read_graphs(file, &artifact, &err) == MD_OK;
	good = good && read_images(file, &artifact);
	md_artifact_close(file);
	md_artifact_finish(&artifact);
	return good && read_caches(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_artifact artifact;
	struct md_artifact_sizes sizes;
	struct md_error err = {0};
	fuzz_accepted = md_artifact_parse(data, size, &artifact, &sizes, &err) == MD_OK;
	FUZZ_REQUIRE(fuzz_accepted || (err.status && *err.message), "refused without saying why");
	FUZZ_REQUIRE(read_in_parts(fuzz_as_file(data, size)) == fuzz_accepted,
		     "read in parts it is %s, as a whole %s: %s", fuzz_accepted ? "bad" : "good",
		     fuzz_accepted ? "good" : "bad", err.message);
	if (!fuzz_accepted)
		return 0;
	FUZZ_REQUIRE(md_artifact_check(&artifact, &err) == MD_OK, "read, but bad: %s", err.message);
	twin_check(&artifact);
	consumers_of_artifact(&artifact, &sizes);
	md_artifact_finish(&artifact);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mend_mutate(&mend_artifact, data, size, max_size, seed);
}
