/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between two artifacts, for people and for programs. */
#include <inttypes.h>
#include <string.h>

#include "base/plain.h"
#include "base/json.h"
#include "tools/diff.h"
#include "tools/inspect.h"

/* ---- text ---- */

static void print_side(const char *sign, const char *path, const struct md_artifact *artifact, FILE *out)
{
	char key[MD_KEY_TEXT_BYTES];
	md_plain_print(out, "%s %s: %" PRIu32 " graphs, %" PRIu64 " nodes, made %s", sign, path, artifact->graph_count,
		       md_inspect_total_nodes(artifact),
		       artifact->provenance.created ? artifact->provenance.created : "?");
	md_public_key_format(&artifact->signature.key, key);
	md_plain_line(out, "%s%s", artifact->signature.present ? ", signed by " : "",
		      artifact->signature.present ? key : "");
}

static void print_one(const struct md_difference *d, FILE *out)
{
	const char *colon = *d->item ? ": " : "", *sign = d->chance ? "?" : "~";
	if (!d->what)
		md_plain_line(out, "  %s %s: %s", d->a ? "-" : "+", d->item, d->a ? d->a : d->b);
	else if (d->count)
		md_plain_line(out, "  %s %s%s%" PRIu64 " %s, first %s: %s -> %s", sign, d->item, colon, d->count,
			      d->what, d->first, d->a, d->b);
	else
		md_plain_line(out, "  %s %s%s%s: %s -> %s", sign, d->item, colon, d->what, d->a ? d->a : "(none)",
			      d->b ? d->b : "(none)");
}

void md_diff_print(const struct md_diff *diff, const char *path_a, const char *path_b, FILE *out)
{
	const char *section = "";
	print_side("---", path_a, diff->a, out);
	print_side("+++", path_b, diff->b, out);
	for (size_t i = 0; i < diff->count; i++) {
		if (strcmp(section, diff->list[i].section) != 0)
			md_plain_line(out, "%s", diff->list[i].section);
		section = diff->list[i].section;
		print_one(&diff->list[i], out);
	}
	if (!diff->real)
		fputs("equal\n", out);
}

/* ---- JSON ---- */

static void put_side(struct md_json *json, const char *name, const char *path, const struct md_artifact *artifact)
{
	char key[MD_KEY_TEXT_BYTES];
	md_public_key_format(&artifact->signature.key, key);
	md_json_object(json, name);
	md_json_text(json, "path", path);
	md_json_text(json, "created", artifact->provenance.created);
	md_json_number(json, "graphs", artifact->graph_count);
	md_json_number(json, "nodes", md_inspect_total_nodes(artifact));
	md_json_text(json, "signed_by", artifact->signature.present ? key : NULL);
	md_json_end(json);
}

static void put_one(struct md_json *json, const struct md_difference *d)
{
	md_json_object(json, NULL);
	md_json_text(json, "section", d->section);
	md_json_text(json, "item", *d->item ? d->item : NULL);
	md_json_text(json, "change", d->chance ? "chance" : d->what ? "changed" : d->a ? "removed" : "added");
	md_json_text(json, "what", d->what);
	md_json_text(json, "a", d->a);
	md_json_text(json, "b", d->b);
	if (d->count) {
		md_json_number(json, "count", d->count);
		md_json_text(json, "first", d->first);
	}
	md_json_end(json);
}

void md_diff_print_json(const struct md_diff *diff, const char *path_a, const char *path_b, FILE *out)
{
	struct md_json json;
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_bool(&json, "equal", !diff->real);
	put_side(&json, "a", path_a, diff->a);
	put_side(&json, "b", path_b, diff->b);
	md_json_list(&json, "differences");
	for (size_t i = 0; i < diff->count; i++)
		put_one(&json, &diff->list[i]);
	md_json_end(&json);
	md_json_end(&json);
}
