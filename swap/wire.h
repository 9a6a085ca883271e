/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of JSON between an engine, medusa-swap run, and the commands: over a Unix socket, each of bounded length. */
#ifndef MD_SWAP_WIRE_H
#define MD_SWAP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/json.h"
#include "base/status.h"

/*
 * The side that connects sends {"medusa_swap": 2, "role": "engine" or "command", ...}. docs/swapping.md has all messages.
 */
#define MD_SWAP_PROTOCOL 2u
#define MD_SWAP_LINE 4096u  /* bytes, with the line break */
#define MD_SWAP_FIELDS 128u /* of a message */

/* ---- a connection: what came, and has not been read ---- */

struct md_swap_wire {
	int fd;
	int passed,
	    passed_too; /* descriptors that came along, the first and the second, or -1; the reader takes them */
	size_t used;
	char bytes[MD_SWAP_LINE + 1];
};

void md_swap_wire_init(struct md_swap_wire *wire, int fd);
/* Closes all descriptors. */
void md_swap_wire_finish(struct md_swap_wire *wire);
/*
 * Reads the bytes that have come, without waiting. MD_ERR_TRUNCATED: the peer has closed; MD_ERR_TOO_LARGE: a line is
 * too long.
 */
enum md_status md_swap_wire_take(struct md_swap_wire *wire, struct md_error *err);

/* Waits until bytes have come or the peer has closed, or for a signal: true; false after milliseconds (-1: never). */
bool md_swap_wire_wait(const struct md_swap_wire *wire, int milliseconds);

struct md_swap_message {
	char line[MD_SWAP_LINE + 1];
	struct md_json_field fields[MD_SWAP_FIELDS]; /* point into line */
	size_t count;
};

/* The next whole line: *there is false if there is none yet. */
enum md_status md_swap_wire_next(struct md_swap_wire *wire, struct md_swap_message *message, bool *there,
				 struct md_error *err);
/* Waits for one line; -1: for ever. MD_ERR_TIMEOUT. */
enum md_status md_swap_wire_await(struct md_swap_wire *wire, int timeout_ms, struct md_swap_message *message,
				  struct md_error *err);

/* The value of a field; "" and 0 if there is no such field. */
const char *md_swap_message_text(const struct md_swap_message *message, const char *key);
uint64_t md_swap_message_number(const struct md_swap_message *message, const char *key);
/* Whether it is there as a text, where a number or a truth is wanted. */
bool md_swap_message_is_text(const struct md_swap_message *message, const char *key);
bool md_swap_message_has(const struct md_swap_message *message, const char *key);
/*
 * MD_ERR_INVALID: one of `numbers` is a text, or one of `texts` a number or a truth, which is not to be taken for one that is
 * not there. Both lists end with NULL; fields that are not there are right.
 */
enum md_status md_swap_message_check(const struct md_swap_message *message, const char *const *numbers,
				     const char *const *texts, struct md_error *err);

/* ---- writing: begin, fields by md_json_*, send ---- */

struct md_swap_letter {
	struct md_json json;
	FILE *out;
	char *text;
	size_t size;
};

enum md_status md_swap_letter_begin(struct md_swap_letter *letter, struct md_error *err);
/*
 * Sends and frees the letter. passed: a descriptor to send along, or -1. A peer that does not read for 10 s counts as
 * gone. MD_ERR_TRUNCATED: it has closed the connection.
 */
enum md_status md_swap_letter_send(struct md_swap_letter *letter, int fd, int passed, struct md_error *err);
/*
 * The same for a question whose answer is awaited next: also MD_OK if the peer has closed already, because what it said
 * before, as that it takes nobody any more, is the answer.
 */
enum md_status md_swap_letter_ask(struct md_swap_letter *letter, int fd, int passed, struct md_error *err);
/* As md_swap_letter_send, with two descriptors; the second may be -1. */
enum md_status md_swap_letter_send_both(struct md_swap_letter *letter, int fd, int passed, int passed_too,
					struct md_error *err);

/* ---- connecting ---- */

/* MD_ERR_NOT_FOUND: nobody listens there. MD_ERR_INVALID: the peer belongs to another user, who is not root. */
enum md_status md_swap_wire_connect(const char *path, int *fd, struct md_error *err);
/* The same without ever waiting. MD_ERR_BUSY: the peer takes no connections now. */
enum md_status md_swap_wire_connect_now(const char *path, int *fd, struct md_error *err);
/*
 * For who asks a question and believes nothing: root may ask a peer of any user. MD_ERR_BUSY: the peer has taken no
 * connections for some seconds.
 */
enum md_status md_swap_wire_connect_to_ask(const char *path, int *fd, struct md_error *err);
enum md_status md_swap_wire_check_peer(int fd, struct md_error *err);

#endif
