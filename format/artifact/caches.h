/* SPDX-License-Identifier: Apache-2.0 */
/* Files of compilers' caches in an artifact: an index of folders and files, and their bytes in compressed blocks. */
#ifndef MD_FORMAT_ARTIFACT_CACHES_H
#define MD_FORMAT_ARTIFACT_CACHES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "format/signature.h"

#define MD_CACHE_FOLDERS_MAX 64u
#define MD_CACHE_FILES_MAX (1u << 18)      /* of all folders */
#define MD_CACHE_BYTES_MAX (2ull << 30)    /* of all files */
#define MD_CACHE_BLOCK_BYTES (4u << 20)    /* of a block, uncompressed, at most */
#define MD_CACHE_PATH_MAX 4095u            /* bytes of a path */
#define MD_CACHE_STAGING ".medusa-unpack." /* begins the name of a folder in which files are unpacked; no file's */

struct md_cache_file {
	char *path; /* owned; below the folder: "a/b", without "." and ".." */
	uint64_t size;
	bool executable;
	struct md_hash hash; /* of its bytes */
	uint8_t *data;       /* owned; NULL: not read, or no bytes */
};

struct md_cache_folder {
	char *name;    /* owned; of the variable that tells the engine where the folder is, or of the folder itself */
	bool variable; /* the name is a variable's */
	char *inside;  /* owned; where the folder is below the one that the variable names; "": it is that one */
	char *path;    /* owned; of the folder, when it was captured; says nothing about where it goes */
	struct md_cache_file *files; /* ascending, as md_cache_path_compare has it; owned */
	uint32_t file_count;
};

/* A zstd frame of the section cache_data. It holds either whole files of one folder, or bytes of one file alone. */
struct md_cache_block {
	uint64_t stored, raw;
	struct md_digest digest; /* of the stored bytes */
	uint64_t offset;         /* in the section; not in the file: blocks lie one behind the other */
};

struct md_caches {
	struct md_cache_folder *folders; /* owned */
	uint32_t folder_count;
	struct md_cache_block *blocks; /* owned; of the file that was read: a writer makes them anew */
	uint32_t block_count;
};

void md_caches_finish(struct md_caches *caches);

/* Whether the path stays below its folder, whoever opens it: no "..", no root, no empty name, none too long. */
bool md_cache_path_valid(const char *path);
/* Order of paths: a file stands right before all paths that would lie in a folder of its name. */
int md_cache_path_compare(const char *a, const char *b);
/* A name that the environment may have: letters, digits and underscores. */
bool md_cache_variable_valid(const char *name);

/* All that must hold of folders and files, and of the bytes of files that were read. Errors name folder and file. */
enum md_status md_caches_check(const struct md_caches *caches, struct md_error *err);
/* Readers take no more raw bytes out of so few stored ones; writers therefore refuse them too. */
enum md_status md_caches_check_sizes(uint64_t raw, uint64_t stored, struct md_error *err);
uint64_t md_caches_bytes(const struct md_caches *caches);
uint64_t md_cache_folder_bytes(const struct md_cache_folder *folder);

/* Blocks and files that belong together: one block with the files that it holds, or one file with its blocks. */
struct md_cache_unit {
	uint32_t folder, file, files;
	uint32_t block, blocks; /* none: the files have no bytes */
};

/* Divides files among blocks; MD_ERR_CORRUPT where they do not fit. *units is owned by the caller. */
enum md_status md_cache_units_make(const struct md_caches *caches, struct md_cache_unit **units, uint32_t *count,
				   struct md_error *err);

/* ---- reading the caches alone, as a start does that unpacks them; the rest of the artifact is not read ---- */

struct md_cache_source;
/* Opens the file and checks its signature. *out is NULL, with MD_OK, if the artifact has no caches. */
enum md_status md_cache_source_open(const char *path, struct md_cache_source **out, struct md_error *err);
/*
 * Checks the signer, if there is a list of trusted keys, and then reads the index: *out lives as long as the source.
 * Bytes of files come block by block.
 */
enum md_status md_cache_source_index(struct md_cache_source *source, const struct md_trust *trust,
				     const struct md_caches **out, struct md_error *err);
/*
 * From any thread. stored has room for the block's stored bytes and raw for MD_CACHE_BLOCK_BYTES. The bytes that were
 * compared with the digest are those that are expanded, whatever happens to the file.
 */
enum md_status md_cache_source_read(const struct md_cache_source *source, uint32_t block, uint8_t *stored, uint8_t *raw,
				    struct md_error *err);
void md_cache_source_close(struct md_cache_source *source);

#endif
