/* SPDX-License-Identifier: Apache-2.0 */
/* Who may ask: the API key of a request. */
#ifndef MD_WORKER_CORE_API_KEYS_H
#define MD_WORKER_CORE_API_KEYS_H

#include "worker/config/config.h"
#include "http/head.h"

/*
 * True if the configuration wants no key, or the request has one of its keys: the password of Authorization: Basic, else
 * the token of Authorization: Bearer, else X-Api-Key; only the first one found counts. *tenant: the index of the tenant
 * that the key belongs to, or MD_CONFIG_NONE.
 */
bool md_keys_allow(const struct md_worker_config *config, const struct md_http_head *head, uint32_t *tenant);
/* How whoever asks stands in accounts: the tenant's name, "key-" and 16 digits of the key's hash, or "" if none is wanted. */
void md_keys_name(const struct md_worker_config *config, const struct md_http_head *head, char *name, size_t size);
bool md_keys_wanted(const struct md_worker_config *config);

#endif
