/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the error object that every fallible function of the project hands on. */
#ifndef MD_BASE_STATUS_H
#define MD_BASE_STATUS_H

enum md_status {
	MD_OK = 0,

	/* errors of the caller or the machine */
	MD_ERR_INVALID = 1,
	MD_ERR_NO_MEMORY = 2,
	MD_ERR_IO = 3,
	MD_ERR_NOT_FOUND = 4,
	MD_ERR_UNSUPPORTED = 5,
	MD_ERR_TIMEOUT = 6,
	MD_ERR_BUSY = 7,
	MD_ERR_OUTPUT = 8, /* output could not be written: a full disk, a folder without permission */

	/* errors in what a file or a peer sent */
	MD_ERR_TRUNCATED = 20,
	MD_ERR_CORRUPT = 21,
	MD_ERR_VERSION = 22,
	MD_ERR_TOO_LARGE = 23,

	/* errors of the CUDA driver */
	MD_ERR_DRIVER = 40,
	MD_ERR_DRIVER_MEMORY = 41,
	MD_ERR_DRIVER_MISSING = 42,

	/* refusals: nothing failed, but a restore would not be proven right */
	MD_ERR_MISMATCH = 60,
	MD_ERR_UNPROVABLE = 61,
	MD_ERR_AMBIGUOUS = 62,
};

#define MD_ERROR_MESSAGE_BYTES 512

struct md_error {
	enum md_status status;
	char message[MD_ERROR_MESSAGE_BYTES];
};

/*
 * Sets the status and the message. Whoever first knows what went wrong sets the message, with the values; callers only
 * forward it. Returns status, so that `return md_error_set(err, ...)` works. err may be NULL.
 */
enum md_status md_error_set(struct md_error *err, enum md_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__ /* the analyzer looks into no other file, and would consider MD_OK possible, too */
#define md_error_set(err, status, ...) ((md_error_set)((err), (status), __VA_ARGS__), (status))
#endif

/* Puts "context: " before the message; for callers that know where the error happened. Returns err->status. */
enum md_status md_error_prefix(struct md_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "truncated", "driver error" ...; never NULL. */
const char *md_status_name(enum md_status status);

#define MD_FORWARD(expression)                                                                                         \
	do {                                                                                                           \
		enum md_status md_forwarded_ = (expression);                                                           \
		if (md_forwarded_ != MD_OK)                                                                            \
			return md_forwarded_;                                                                          \
	} while (0)

#endif
