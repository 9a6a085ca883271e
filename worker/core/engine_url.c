/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/engine_url.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The configuration has looked at its form (md_config_check_engine_url). */
static enum md_status read_url(const struct md_config_model *model, struct md_engine_url *made, struct md_error *err)
{
	char host[MD_CONFIG_HOST_BYTES], port[8] = "80";
	const char *rest = strstr(model->proxy, "://") + 3;
	size_t size = strcspn(rest, "/"), name;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	snprintf(made->host, sizeof(made->host), "%.*s", (int)size, rest);
	snprintf(made->prefix, sizeof(made->prefix), "%s", rest + size);
	name = strlen(made->prefix);
	while (name && made->prefix[name - 1] == '/')
		made->prefix[--name] = '\0';
	snprintf(host, sizeof(host), "%s", made->host);
	char *colon = strrchr(host, ':');
	if (colon && !strchr(colon, ']')) {
		*colon = '\0';
		snprintf(port, sizeof(port), "%.7s", colon + 1);
	}
	size = strlen(host);
	if (size >= 2 && host[0] == '[' && host[size - 1] == ']') {
		memmove(host, host + 1, size - 2);
		host[size - 2] = '\0';
	}
	int failure = getaddrinfo(strcmp(host, "localhost") ? host : "127.0.0.1", port, &hints, &found);
	if (failure)
		return md_error_set(err, MD_ERR_NOT_FOUND, "%s:%u: models.%.100s.proxy is \"%.200s\": %s",
				    model->proxy_place.file, model->proxy_place.line, model->id, model->proxy,
				    gai_strerror(failure));
	memcpy(&made->address.any, found->ai_addr, found->ai_addrlen);
	made->address.size = found->ai_addrlen;
	freeaddrinfo(found);
	return MD_OK;
}

enum md_status md_engine_url_read_all(const struct md_worker_config *config, struct md_engine_url **urls,
				      struct md_error *err)
{
	struct md_engine_url *made = calloc(config->model_count + 1, sizeof(*made));
	enum md_status status = made ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for addresses");
	for (uint32_t i = 0; status == MD_OK && i < config->model_count; i++)
		status = read_url(&config->models[i], &made[i], err);
	if (status == MD_OK)
		*urls = made;
	else
		free(made);
	return status;
}
