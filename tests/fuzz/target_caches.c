/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as an artifact whose caches are unpacked: every file of a folder is there, whole, or none is. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mend.h"
#include "tools/cache_tree.h"
#include "tools/cache_write.h"

#define BYTES_MAX (32u << 20) /* that are unpacked: more would only take longer */

bool fuzz_accepted;

/* ---- what there is on the disk ---- */

static uint64_t there;

static int count(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info, (void)walk;
	FUZZ_REQUIRE(!strstr(path, MD_CACHE_STAGING), "a folder of unpacking is left: %s", path);
	FUZZ_REQUIRE(kind == FTW_F || kind == FTW_D, "%s is no file", path);
	there += kind == FTW_F;
	return 0;
}

static int drop(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info, (void)kind, (void)walk;
	return remove(path);
}

static uint64_t count_files(const char *root)
{
	there = 0;
	FUZZ_REQUIRE(nftw(root, count, 16, FTW_PHYS) == 0, "%s cannot be walked", root);
	return there;
}

static void check_files(const char *root, const struct md_cache_folder *folder)
{
	for (uint32_t i = 0; i < folder->file_count; i++) {
		struct md_file_bytes bytes;
		struct md_error err = {0};
		char path[MD_CACHE_PATH_MAX + 128];
		snprintf(path, sizeof(path), "%s/%s", root, folder->files[i].path);
		if (strlen(path) > 4000)
			continue;
		FUZZ_REQUIRE(md_file_read(path, BYTES_MAX, &bytes, &err) == MD_OK, "%s", err.message);
		struct md_hash hash = md_hash_bytes(bytes.data, bytes.size);
		FUZZ_REQUIRE(md_hash_equal(&hash, &folder->files[i].hash), "%s has other bytes", path);
		md_file_release(&bytes);
	}
}

/* ---- unpacking ---- */

static bool unpack(const struct md_cache_source *source, const struct md_caches *caches, uint32_t folder)
{
	const char *place = getenv("TMPDIR");
	char above[512], root[520];
	struct md_cache_written written;
	struct md_error err = {0};
	int fd;
	snprintf(above, sizeof(above), "%s/medusa-fuzz-caches-XXXXXX", place && *place ? place : "/tmp");
	FUZZ_REQUIRE(mkdtemp(above), "no folder in %s", above);
	snprintf(root, sizeof(root), "%s/in", above);
	FUZZ_REQUIRE(md_cache_tree_open(root, &fd, &err) == MD_OK, "%s", err.message);
	bool good = md_cache_write(source, caches, folder, fd, &written, &err) == MD_OK;
	uint64_t inside = count_files(root);
	FUZZ_REQUIRE(count_files(above) == inside, "a file is outside of the folder");
	FUZZ_REQUIRE(good || (err.status && *err.message), "not unpacked without saying why");
	FUZZ_REQUIRE(inside == (good ? caches->folders[folder].file_count : 0), "%llu files of %u",
		     (unsigned long long)inside, caches->folders[folder].file_count);
	if (good) {
		check_files(root, &caches->folders[folder]);
		FUZZ_REQUIRE(md_cache_write(source, caches, folder, fd, &written, &err) == MD_OK &&
				 written.there == inside && !written.files && !written.others,
			     "not the same once more: %s", err.message);
	}
	close(fd);
	nftw(above, drop, 16, FTW_DEPTH | FTW_PHYS);
	return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_cache_source *source = NULL;
	const struct md_caches *caches;
	struct md_error err = {0};
	fuzz_accepted = false;
	if (md_cache_source_open(fuzz_as_file(data, size), &source, &err) != MD_OK || !source) {
		FUZZ_REQUIRE(!err.status || *err.message, "refused without saying why");
		return 0;
	}
	fuzz_accepted = md_cache_source_index(source, NULL, &caches, &err) == MD_OK;
	FUZZ_REQUIRE(fuzz_accepted || (err.status && *err.message), "refused without saying why");
	bool small = fuzz_accepted && md_caches_bytes(caches) <= BYTES_MAX;
	for (uint32_t i = 0; small && i < caches->folder_count; i++)
		fuzz_accepted &= unpack(source, caches, i);
	md_cache_source_close(source);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mend_mutate(&mend_artifact, data, size, max_size, seed);
}
