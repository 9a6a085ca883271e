/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that Medusa opens in the engine's process: high numbers, checked before use, writes without a signal. */
#ifndef MD_BASE_DESCRIPTOR_H
#define MD_BASE_DESCRIPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/*
 * A descriptor that Medusa keeps while the engine runs, with the file it stands for. An engine may close every
 * descriptor above 2 and get the same number for a file of its own, which Medusa must then neither write, read nor
 * close.
 */
struct md_descriptor {
	int fd; /* -1: none */
	dev_t device;
	ino_t inode;
};

#define MD_DESCRIPTOR_NONE ((struct md_descriptor){.fd = -1})

/*
 * open(2) with a number far above those that engines rely on (0, 1, 2 and the lowest free one), and with O_CLOEXEC.
 * Never waits for the other end of a FIFO. Returns -1 and sets errno on failure.
 */
int md_descriptor_open(const char *path, int flags, mode_t mode);
/* fopen(3) for reading, in the same manner; NULL and errno on failure. */
FILE *md_descriptor_read_stream(const char *path);

/* Moves a descriptor of ours to such a number, and returns it; fd itself where there is no room. */
int md_descriptor_raise(int fd);

/*
 * A process whose limit of open files (RLIMIT_NOFILE) is below this has none to spare for Medusa. The limit counts, not
 * what is open, because nobody knows what the engine will open. *limit is set to the limit if it is too low.
 */
#define MD_DESCRIPTORS_LEAST 16
bool md_descriptor_scarce(unsigned *limit);

/* Takes fd over; false and errno when it is not open. */
bool md_descriptor_keep(struct md_descriptor *kept, int fd);
/* True if the descriptor still belongs to the same file. Leaves errno alone. */
bool md_descriptor_is_ours(const struct md_descriptor *kept);
/* Closes it, unless it has become somebody else's. */
void md_descriptor_drop(struct md_descriptor *kept);

/*
 * Writes all bytes; 0, or the errno of the write that failed. No signal reaches the engine: SIGPIPE, SIGXFSZ and
 * SIGTTOU are held up in this thread, and one that the write has caused is taken back; signals that were pending stay
 * so.
 */
int md_descriptor_write(int fd, const void *data, size_t size);

#endif
