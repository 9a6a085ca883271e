/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/api_keys.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "worker/core/forward.h"

#define KEY_MAX 512u

/* The password of "user:password" in base64. */
static bool read_basic(const char *text, char key[KEY_MAX])
{
	unsigned char bytes[KEY_MAX];
	size_t size;
	if (sodium_base642bin(bytes, sizeof(bytes) - 1, text, strlen(text), " ", &size, NULL,
			      sodium_base64_VARIANT_ORIGINAL))
		return false;
	bytes[size] = '\0';
	const char *colon = memchr(bytes, ':', size);
	if (!colon)
		return false;
	snprintf(key, KEY_MAX, "%s", colon + 1);
	return true;
}

static bool read_key(const struct md_http_head *head, char key[KEY_MAX])
{
	const char *given = md_http_head_find(head, "Authorization"), *own = md_http_head_find(head, "X-Api-Key");
	if (given && !strncasecmp(given, "Basic ", 6))
		return read_basic(given + 6, key);
	if (given && !strncasecmp(given, "Bearer ", 7))
		own = given + 7 + strspn(given + 7, " ");
	if (!own || strlen(own) >= KEY_MAX)
		return false;
	snprintf(key, KEY_MAX, "%s", own);
	return true;
}

/* The time does not depend on where two keys differ. */
static bool is_among(const char *key, const struct md_config_texts *keys)
{
	size_t size = strlen(key);
	bool found = false;
	for (uint32_t i = 0; i < keys->count; i++)
		found = (strlen(keys->items[i]) == size && !sodium_memcmp(keys->items[i], key, size)) || found;
	return found;
}

bool md_keys_wanted(const struct md_worker_config *config)
{
	bool wanted = config->api_keys.count != 0;
	for (uint32_t i = 0; i < config->node.tenant_count; i++)
		wanted = wanted || config->node.tenants[i].keys.count;
	return wanted;
}

/* A node has asked its client for the key, and says whose it is; "": of nobody in particular. */
static const char *client_of(const struct md_http_head *head)
{
	const char *name = md_http_head_find(head, MD_FORWARD_CLIENT);
	return name ? name : "";
}

static bool allow_node(const struct md_worker_config *config, const struct md_http_head *head, uint32_t *tenant)
{
	const char *name = client_of(head);
	for (uint32_t i = 0; i < config->node.tenant_count; i++)
		if (!strcmp(config->node.tenants[i].name, name))
			*tenant = i;
	return true;
}

bool md_keys_allow(const struct md_worker_config *config, const struct md_http_head *head, uint32_t *tenant)
{
	char key[KEY_MAX] = "";
	*tenant = MD_CONFIG_NONE;
	if (head->certificate)
		return allow_node(config, head, tenant);
	if (!md_keys_wanted(config))
		return true;
	if (!read_key(head, key))
		return false;
	for (uint32_t i = 0; i < config->node.tenant_count; i++)
		if (is_among(key, &config->node.tenants[i].keys))
			*tenant = i;
	return *tenant != MD_CONFIG_NONE || is_among(key, &config->api_keys);
}

void md_keys_name(const struct md_worker_config *config, const struct md_http_head *head, char *name, size_t size)
{
	char key[KEY_MAX] = "", digits[17];
	unsigned char hash[crypto_generichash_BYTES_MIN];
	uint32_t tenant;
	*name = '\0';
	if (head->certificate) {
		snprintf(name, size, "%s", client_of(head));
		return;
	}
	if (!md_keys_wanted(config) || !md_keys_allow(config, head, &tenant))
		return;
	if (tenant != MD_CONFIG_NONE) {
		snprintf(name, size, "%s", config->node.tenants[tenant].name);
		return;
	}
	read_key(head, key);
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)key, strlen(key), NULL, 0);
	snprintf(name, size, "key-%s", sodium_bin2hex(digits, sizeof(digits), hash, 8));
}
