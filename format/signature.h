/* SPDX-License-Identifier: Apache-2.0 */
/* Ed25519 signatures, the digests that they cover, and lists of trusted keys. Nothing here ends a process. */
#ifndef MD_FORMAT_SIGNATURE_H
#define MD_FORMAT_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MD_SIGNATURE_BYTES 64
#define MD_DIGEST_BYTES 32
#define MD_KEY_BYTES 32
#define MD_KEY_TEXT_BYTES 73 /* "ed25519:", 64 hex digits and the NUL */

struct md_digest { /* BLAKE2b-256 */
	uint8_t bytes[MD_DIGEST_BYTES];
};

struct md_public_key {
	uint8_t bytes[MD_KEY_BYTES];
};

struct md_secret_key { /* the seed, from which both halves are made */
	uint8_t seed[MD_KEY_BYTES];
};

struct md_digest md_digest_bytes(const void *data, size_t size);

void md_signature_make(const struct md_secret_key *key, const void *message, size_t size,
		       uint8_t out[MD_SIGNATURE_BYTES]);
bool md_signature_verify(const struct md_public_key *key, const void *message, size_t size,
			 const uint8_t signature[MD_SIGNATURE_BYTES]);

/* ---- keys ---- */

struct md_public_key md_secret_key_public(const struct md_secret_key *key);
bool md_public_key_equal(const struct md_public_key *a, const struct md_public_key *b);
void md_public_key_format(const struct md_public_key *key, char text[MD_KEY_TEXT_BYTES]); /* "ed25519:0a1b..." */

/* Secret keys are lines "ed25519-secret:0a1b...", so that a secret key is not taken for a public one. */
enum md_status md_secret_key_read(const char *path, struct md_secret_key *out, struct md_error *err);
/* Makes a new key and writes it to path, for the owner alone. An existing file is never replaced (MD_ERR_INVALID). */
enum md_status md_secret_key_create(const char *path, struct md_secret_key *out, struct md_error *err);
void md_secret_key_wipe(struct md_secret_key *key);

/* ---- whom to trust ---- */

struct md_trust {
	char *path; /* owned; of the file, for messages */
	struct md_public_key *keys;
	uint32_t count;
};

/*
 * One key a line; text behind a space is ignored, and so are empty lines and lines that start with #. Errors name file
 * and line. A list without keys trusts nobody.
 */
enum md_status md_trust_read(const char *path, struct md_trust *out, struct md_error *err);
bool md_trust_holds(const struct md_trust *trust, const struct md_public_key *key);
void md_trust_finish(struct md_trust *trust);

#endif
