/* SPDX-License-Identifier: Apache-2.0 */
/* The file behind a pool: blocks at multiples of 2 MiB, written and read past the page cache where that can be. */
#ifndef MD_SWAP_SPILL_FILE_H
#define MD_SWAP_SPILL_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/descriptor.h"
#include "base/status.h"

#define MD_SWAP_SPILL_BLOCKS (1u << 22) /* of the largest file: 8 TiB */
#define MD_SWAP_SPILL_PATH 256u         /* bytes of the folder's name in messages, with its NUL */

struct md_swap_spill_file {
	struct md_descriptor kept; /* fd -1: there is none */
	uint32_t blocks;
	bool direct;                   /* O_DIRECT */
	char path[MD_SWAP_SPILL_PATH]; /* of the folder, cut if it is longer: for messages */
};

#define MD_SWAP_NO_SPILL ((struct md_swap_spill_file){.kept = MD_DESCRIPTOR_NONE})

/*
 * A file without a name in the folder, mode 0600, which ends with its last descriptor. It has room for whole blocks of
 * 2 MiB, at least one; 0 bytes: half of what the file system has free. The disk gives the room when blocks are written.
 * One block is written and read for a trial; where O_DIRECT is refused, a warning says so and the page cache is used.
 * MD_ERR_OUTPUT names the folder; MD_ERR_TOO_LARGE.
 */
enum md_status md_swap_spill_create(const char *folder, uint64_t bytes, struct md_swap_spill_file *file,
				    struct md_error *err);
void md_swap_spill_close(struct md_swap_spill_file *file);

/*
 * Writes, or reads, a whole block. data lies at a multiple of 4096. From any thread, without a lock; SIGXFSZ must be
 * blocked. The errno of the call that failed, or 0: then the bytes are out of this process's reach, or in it. A file
 * that the engine has closed is EBADF.
 */
int md_swap_spill_write(const struct md_swap_spill_file *file, uint32_t block, const void *data);
int md_swap_spill_read(const struct md_swap_spill_file *file, uint32_t block, void *data);
/* The same failure as an error: MD_ERR_NO_MEMORY of a write, whose bytes have no place, and MD_ERR_CORRUPT of a read. */
enum md_status md_swap_spill_explain(const struct md_swap_spill_file *file, uint32_t block, bool write, int failure,
				     struct md_error *err);
/* Gives the disk back what all blocks take. */
void md_swap_spill_punch(const struct md_swap_spill_file *file);

/* The calls of the system; tests let them fail. */
struct md_swap_spill_calls {
	ssize_t (*write)(int fd, const void *data, size_t size, off_t at);
	ssize_t (*read)(int fd, void *data, size_t size, off_t at);
	int (*allocate)(int fd, int mode, off_t at, off_t size);
	int (*sync)(int fd);
};
extern struct md_swap_spill_calls md_swap_spill_calls;

#endif
