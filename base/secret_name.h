/* SPDX-License-Identifier: Apache-2.0 */
/* Which names of options, variables and fields say that their value is a secret, and which words are keys by their form. */
#ifndef MD_BASE_SECRET_NAME_H
#define MD_BASE_SECRET_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* A letter, digit, '-', '_', '.' or a byte of a character beyond ASCII. */
bool md_secret_is_name_char(char c);

/*
 * True for --api-key, HF_TOKEN, dbPassword or client_secret_2; false for --max-tokens, --token-count, --eos-token or
 * --api-key-file. Words are parted by '-', '_', '.' and capitals.
 */
bool md_secret_is_named(const char *name, size_t size);
/* True for --use-auth-token or --enable-api-key: it may stand without a value. */
bool md_secret_is_switch(const char *name, size_t size);

/* True for a key as well-known services give it out (sk-..., hf_...). */
bool md_secret_is_known(const char *word, size_t size);
/* True if a word of at least 16 ASCII letters, digits, '-', '_' and '.' has capitals, small letters and digits. */
bool md_secret_is_random(const char *word, size_t size);

#endif
