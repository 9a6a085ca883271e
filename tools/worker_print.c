/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/worker_print.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "json/tree_text.h"

void md_worker_print_json(json_t *value)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT) : NULL;
	printf("%s\n", text ? text : "null");
	free(text);
	json_decref(value);
}

/* ---- values ---- */

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "-";
}

static const char *size_of(const json_t *object, const char *key, char text[32])
{
	const json_t *value = json_object_get(object, key);
	double bytes = json_number_value(value);
	if (!json_is_number(value))
		snprintf(text, 32, "-");
	else if (bytes >= 1e9)
		snprintf(text, 32, "%.1f GB", bytes / 1e9);
	else
		snprintf(text, 32, "%.1f MB", bytes / 1e6);
	return text;
}

static const char *seconds_of(const json_t *object, const char *key, char text[32])
{
	const json_t *value = json_object_get(object, key);
	if (json_is_number(value))
		snprintf(text, 32, "%.3g", json_number_value(value));
	else
		snprintf(text, 32, "-");
	return text;
}

/* ---- the cluster ---- */

static void print_tls(const json_t *tls)
{
	const json_t *one;
	size_t i;
	const char *user = json_string_value(json_object_get(tls, "etcd_user"));
	md_plain_line(stdout, "TLS: between nodes: %s; to etcd: %s%s%s; %lld connections were of no node",
		      json_is_true(json_object_get(tls, "nodes")) ? "yes" : "no",
		      json_is_true(json_object_get(tls, "etcd")) ? "yes" : "no", user ? ", as user " : "",
		      user ? user : "", number(tls, "unproven"));
	json_array_foreach(json_object_get(tls, "certificates"), i, one) if (json_is_true(json_object_get(one, "soon")))
	    md_plain_line(stdout, "%s (%s) %s at %s: put a new one there, and send SIGHUP", text_of(one, "file"),
			  text_of(one, "use"), number(one, "days") < 0 ? "has expired" : "expires",
			  text_of(one, "expires"));
	json_array_foreach(json_object_get(tls, "unreachable"), i, one)
	    md_plain_line(stdout, "node %s cannot be reached: %s", text_of(one, "node"), text_of(one, "why"));
}

static void print_member(const json_t *member)
{
	const char *lack = json_string_value(json_object_get(member, "lack"));
	const char *wish = json_string_value(json_object_get(member, "wish"));
	const json_t *prefixes = json_object_get(member, "prefixes");
	const json_t *tenant;
	size_t i;
	md_plain_line(stdout, "node %s at %s: %s%s%s; %lld nodes, and %zu whose lease has ended",
		      text_of(member, "node"), text_of(member, "url"), text_of(member, "state"),
		      wish ? ", wanted to " : "", wish ? wish : "", number(member, "nodes"),
		      json_array_size(json_object_get(member, "lease_ended")));
	md_plain_line(stdout, "etcd at %s: %s; %lld writes, %lld leases, %lld changes read", text_of(member, "etcd"),
		      json_is_true(json_object_get(member, "reached")) ? "reached" : "not reached",
		      number(member, "writes"), number(member, "leases"), number(member, "changes"));
	md_plain_line(stdout, "leader: %s%s",
		      json_is_string(json_object_get(member, "leader")) ? text_of(member, "leader") : "nobody",
		      json_is_true(json_object_get(member, "placement")) ? ""
									 : "; this node takes no part in placement");
	printf("requests passed on: %lld, tried again elsewhere: %lld\n", number(member, "passed"),
	       number(member, "retries"));
	if (json_is_object(prefixes))
		printf("prompts: %lld requests went where a prefix is expected to be cached, %lld elsewhere, of %lld; "
		       "engines "
		       "say that they had %lld tokens of %lld\n",
		       number(prefixes, "followed"), number(prefixes, "left"), number(prefixes, "requests"),
		       number(prefixes, "told_tokens"), number(prefixes, "told_of"));
	if (lack)
		md_plain_line(stdout, "%s", lack);
	json_array_foreach(json_object_get(member, "tenants_differ"), i, tenant)
	    md_plain_line(stdout,
			  "nodes %s and %s say different things of tenant %s (its weight, cluster_max_running, "
			  "cluster_max_waiting): the least counts",
			  text_of(tenant, "node"), text_of(tenant, "other"), text_of(tenant, "tenant"));
	print_tls(json_object_get(member, "tls"));
}

static void print_nodes(const json_t *nodes)
{
	const json_t *node;
	size_t i;
	char memory[32];
	printf("%-24s %-11s %-8s %-12s %4s %9s %6s %5s %s\n", "NODE", "STATE", "WISH", "VERSION", "GPUS", "MEMORY",
	       "MODELS", "OPEN", "URL");
	json_array_foreach(nodes, i, node)
	    md_plain_line(stdout, "%-24s %-11s %-8s %-12s %4lld %9s %6lld %5lld %s%s", text_of(node, "node"),
			  text_of(node, "state"), text_of(node, "wish"), text_of(node, "version"), number(node, "gpus"),
			  number(node, "gpu_bytes") ? size_of(node, "gpu_bytes", memory) : "-", number(node, "models"),
			  number(node, "open"), text_of(node, "url"),
			  json_is_true(json_object_get(node, "self")) ? " (this one)" : "");
	json_array_foreach(nodes, i, node) if (json_is_string(json_object_get(node, "why")))
	    md_plain_line(stdout, "%s: %s", text_of(node, "node"), text_of(node, "why"));
}

/* "here 1a2b3c4d5e6f", "fetching 1a2b3c4d5e6f 37 %"; of other nodes only what they have. */
static const char *files_of(const json_t *place, char text[96])
{
	const json_t *files = json_object_get(place, "files");
	const char *hash = json_string_value(json_object_get(place, "content"));
	if (!files) {
		snprintf(text, 96, "%s%.12s", hash ? "here " : "-", hash ? hash : "");
		return text;
	}
	int used = snprintf(text, 96, "%.20s %.12s", text_of(files, "state"), hash ? hash : "");
	if (!strcmp(text_of(files, "state"), "fetching") && number(files, "of"))
		snprintf(text + used, 96 - (size_t)used, " %lld %%", 100 * number(files, "done") / number(files, "of"));
	return text;
}

static void print_places(const json_t *models)
{
	const json_t *model, *place;
	size_t i, j;
	char expected[32], files[96];
	printf("%-32s %-24s %-8s %10s %5s %5s %-28s %s\n", "MODEL", "NODE", "PLACE", "TTFT (s)", "WAIT", "RUN", "FILES",
	       "PLACED");
	json_array_foreach(models, i, model) json_array_foreach(json_object_get(model, "nodes"), j, place)
	    md_plain_line(stdout, "%-32s %-24s %-8s %10s %5lld %5lld %-28s %s%s", j ? "" : text_of(model, "model"),
			  text_of(place, "node"), text_of(place, "place"), seconds_of(place, "expected_s", expected),
			  number(place, "waiting"), number(place, "running"), files_of(place, files),
			  text_of(place, "placed"),
			  json_is_true(json_object_get(place, "moved")) ? ", moved here" : "");
	json_array_foreach(models, i, model) json_array_foreach(json_object_get(model, "nodes"), j, place)
	{
		const json_t *said = json_object_get(place, "files");
		if (json_is_string(json_object_get(said, "why")))
			md_plain_line(stdout, "%s: its files: %s", text_of(model, "model"), text_of(said, "why"));
	}
}

/* "4 of 10"; "4" where there is no quota. */
static const char *of_limit(const json_t *object, const char *key, const char *limit, char text[48])
{
	const json_t *most = json_object_get(object, limit);
	int used = snprintf(text, 48, "%lld", number(object, key));
	if (json_is_integer(most))
		snprintf(text + used, 48 - (size_t)used, " of %lld", number(object, limit));
	return text;
}

static const char *share_of(const json_t *node, char text[64])
{
	const char *state = json_string_value(json_object_get(node, "state"));
	bool obeyed = json_is_true(json_object_get(node, "obeyed"));
	if (!json_is_integer(json_object_get(node, "share_running")))
		return "-";
	int used = snprintf(text, 64, "%lld", number(node, "share_running"));
	if (number(node, "reserved_running") > number(node, "share_running") || !obeyed ||
	    (state && strcmp(state, "there") != 0))
		snprintf(text + used, 64 - (size_t)used, ", %lld reserved", number(node, "reserved_running"));
	return text;
}

static void print_tenants(const json_t *tenants)
{
	const json_t *tenant, *node;
	size_t i, j;
	char running[48], waiting[48], share[64];
	printf("%-24s %-20s %8s %14s %14s %6s %s\n", "TENANT", "NODE", "WEIGHT", "RUN", "WAIT", "HELD", "SHARE");
	json_array_foreach(tenants, i, tenant)
	{
		md_plain_line(stdout, "%-24s %-20s %8.3g %14s %14s %6lld %s", text_of(tenant, "tenant"), "(all)",
			      json_real_value(json_object_get(tenant, "weight")),
			      of_limit(tenant, "running", "max_running", running),
			      of_limit(tenant, "waiting", "max_waiting", waiting), number(tenant, "held"),
			      json_is_true(json_object_get(tenant, "lost_here")) ? "run out on this node" : "");
		json_array_foreach(json_object_get(tenant, "nodes"), j, node) md_plain_line(
		    stdout, "%-24s %-20s %8.3g %14s %14s %6lld %s%s%s", "", text_of(node, "node"),
		    json_number_value(json_object_get(node, "weight")), of_limit(node, "running", "", running),
		    of_limit(node, "waiting", "share_waiting", waiting), number(node, "held"), share_of(node, share),
		    strcmp(text_of(node, "state"), "there") != 0 ? "; " : "",
		    strcmp(text_of(node, "state"), "there") != 0 ? text_of(node, "state") : "");
	}
}

void md_worker_print_cluster(const json_t *answer)
{
	const json_t *tenants = json_object_get(answer, "tenants");
	const json_t *nodes = json_object_get(answer, "nodes"), *models = json_object_get(answer, "models");
	if (json_is_array(nodes))
		print_nodes(nodes);
	else if (json_is_array(models))
		print_places(models);
	else if (json_is_array(tenants))
		print_tenants(tenants);
	else if (json_is_object(answer) && json_object_size(answer))
		print_member(answer);
}

/* ---- the daemon ---- */

/* The models of a GPU whose memory is not stated take all of it, whatever that is. */
static bool is_stated(const json_t *gpu)
{
	return json_is_number(json_object_get(gpu, "limit_bytes"));
}

static const char *used_of(const json_t *gpu, char text[48])
{
	char limit[32];
	snprintf(text, 48, "%s used", size_of(gpu, "limit_bytes", limit));
	return text;
}

void md_worker_print_status(const json_t *status)
{
	char used[32], limit[48], cached[32], foreign[32], shared[32];
	const json_t *pool = json_object_get(status, "pool");
	size_t i;
	const json_t *gpu, *tenant;
	md_plain_line(stdout, "medusa-worker %s, process %lld, up for %lld s%s", text_of(status, "version"),
		      number(status, "pid"), number(status, "uptime_s"),
		      json_is_true(json_object_get(status, "draining")) ? ", draining" : "");
	printf(
	    "%lld of %lld models loaded; requests: %lld wait, %lld run, %lld served, %lld refused, %lld failed, %lld "
	    "cancelled\n",
	    number(status, "loaded"), number(status, "models"), number(status, "waiting"), number(status, "running"),
	    number(status, "served"), number(status, "refused"), number(status, "failed"), number(status, "cancelled"));
	if (json_is_object(json_object_get(status, "cluster")))
		print_member(json_object_get(status, "cluster"));
	json_array_foreach(json_object_get(status, "gpus"), i, gpu)
	    printf("GPU %lld: %s%s%s%s%s%s%s; %lld batches run%s\n", number(gpu, "gpu"),
		   is_stated(gpu) ? size_of(gpu, "used_bytes", used) : "memory not stated (medusa.gpus)",
		   is_stated(gpu) ? " of " : "", is_stated(gpu) ? used_of(gpu, limit) : "",
		   number(gpu, "shared_bytes") ? ", saved by sharing " : "",
		   number(gpu, "shared_bytes") ? size_of(gpu, "shared_bytes", shared) : "",
		   number(gpu, "foreign_bytes") ? ", by others " : "",
		   number(gpu, "foreign_bytes") ? size_of(gpu, "foreign_bytes", foreign) : "", number(gpu, "running"),
		   !json_is_true(json_object_get(gpu, "present"))   ? "; lost"
		   : json_is_true(json_object_get(gpu, "draining")) ? "; drained"
								    : "");
	if (json_is_object(pool))
		printf("pool: %s, of which %s held, %s cached; %lld engines found no room\n",
		       size_of(pool, "bytes", used), size_of(pool, "held_bytes", limit),
		       size_of(pool, "cached_bytes", cached), number(pool, "full"));
	if (json_is_object(pool) && number(pool, "spill_bytes"))
		printf("spill file: %s, of which %s held, %s cached\n", size_of(pool, "spill_bytes", used),
		       size_of(pool, "spill_held_bytes", limit), size_of(pool, "spill_cached_bytes", cached));
	json_array_foreach(json_object_get(status, "tenants"), i, tenant) md_plain_line(
	    stdout,
	    "tenant %s: weight %g; %lld wait, %lld run, %lld served, %lld refused, %lld failed, %lld cancelled; "
	    "%.1f GPU seconds",
	    text_of(tenant, "tenant"), json_real_value(json_object_get(tenant, "weight")), number(tenant, "waiting"),
	    number(tenant, "running"), number(tenant, "served"), number(tenant, "refused"), number(tenant, "failed"),
	    number(tenant, "cancelled"), json_real_value(json_object_get(tenant, "gpu_seconds")));
}

/* ---- models ---- */

/* An adapter stands below its model, a little to the right. */
static int indent_of(const json_t *model)
{
	return json_is_string(json_object_get(model, "base")) ? 2 : 0;
}

static void print_model(const json_t *model, int width)
{
	int indent = indent_of(model);
	char memory[32], median[32], tail[32];
	const json_t *first = json_object_get(model, "first_token_s");
	const json_t *gpu = json_object_get(model, "gpu");
	char on[24] = "-";
	if (json_is_integer(gpu))
		snprintf(on, sizeof(on), "%lld", json_integer_value(gpu));
	md_plain_line(stdout, "%*s%-*s %-9s %3s %9s %5lld %5lld %8lld %7lld %6lld %9lld %6lld %8s %8s", indent, "",
		      width - indent, text_of(model, "model"), text_of(model, "state"), on,
		      size_of(model, "memory_bytes", memory), number(model, "waiting"), number(model, "running"),
		      number(model, "served"), number(model, "refused"), number(model, "failed"),
		      number(model, "cancelled"), number(model, "loads"), seconds_of(first, "p50", median),
		      seconds_of(first, "p99", tail));
}

void md_worker_print_models(const json_t *answer)
{
	const json_t *model, *models = json_object_get(answer, "models");
	size_t i;
	int width = 5;
	json_array_foreach(models, i, model)
	{
		int size = (int)strlen(text_of(model, "model")) + indent_of(model);
		width = size > width ? size : width;
	}
	printf("%-*s %-9s %3s %9s %5s %5s %8s %7s %6s %9s %6s %8s %8s\n", width, "MODEL", "STATE", "GPU", "MEMORY",
	       "WAIT", "RUN", "SERVED", "REFUSED", "FAILED", "CANCELLED", "LOADS", "TTFT p50", "p99 (s)");
	json_array_foreach(models, i, model) print_model(model, width);
}

/* ---- the configuration ---- */

void md_worker_print_reload(const json_t *answer)
{
	const char *later = json_string_value(json_object_get(answer, "later"));
	printf("models: %lld added, %lld removed, %lld changed, %lld get new engines\n", number(answer, "added"),
	       number(answer, "removed"), number(answer, "changed"), number(answer, "renewed"));
	if (later && *later)
		md_plain_line(stdout, "only when the daemon starts anew: %s", later);
}

/* ---- the bill ---- */

/* As RFC 4180 has it. */
static void put_field(const char *text)
{
	putchar('"');
	for (; *text; text++)
		printf(*text == '"' ? "\"\"" : "%c", *text);
	putchar('"');
}

static const char *const bill_names[] = {"requests", "untold",       "prompt_tokens", "completion_tokens",
					 "gpu_ns",   "answer_bytes", "loads",         "loaded_bytes"};

void md_worker_print_bill_head(bool by_node, bool csv)
{
	if (!csv) {
		if (by_node)
			printf("%-16s ", "NODE");
		printf("%-24s %-24s %9s %9s %12s %12s %12s %6s %10s\n", "MODEL", "KEY", "REQUESTS", "UNTOLD", "PROMPT",
		       "COMPLETION", "GPU SECONDS", "LOADS", "LOADED");
		return;
	}
	printf("%smodel,key", by_node ? "node," : "");
	for (size_t n = 0; n < sizeof(bill_names) / sizeof(bill_names[0]); n++)
		printf(",%s", bill_names[n]);
	putchar('\n');
}

static void print_row_csv(const json_t *row)
{
	if (json_object_get(row, "node")) {
		put_field(text_of(row, "node"));
		putchar(',');
	}
	put_field(text_of(row, "model"));
	putchar(',');
	put_field(text_of(row, "key"));
	for (size_t n = 0; n < sizeof(bill_names) / sizeof(bill_names[0]); n++)
		printf(",%lld", number(row, bill_names[n]));
	putchar('\n');
}

void md_worker_print_bill_row(const json_t *row, bool csv)
{
	char loaded[32];
	if (csv) {
		print_row_csv(row);
		return;
	}
	if (json_object_get(row, "node"))
		md_plain_print(stdout, "%-16s ", text_of(row, "node"));
	md_plain_line(stdout, "%-24s %-24s %9lld %9lld %12lld %12lld %12.3f %6lld %10s", text_of(row, "model"),
		      *text_of(row, "key") ? text_of(row, "key") : "-", number(row, "requests"), number(row, "untold"),
		      number(row, "prompt_tokens"), number(row, "completion_tokens"),
		      (double)number(row, "gpu_ns") * 1e-9, number(row, "loads"), size_of(row, "loaded_bytes", loaded));
}

void md_worker_print_bill(const json_t *answer, bool csv)
{
	const json_t *row;
	size_t i;
	md_worker_print_bill_head(false, csv);
	json_array_foreach(json_object_get(answer, "usage"), i, row) md_worker_print_bill_row(row, csv);
}
