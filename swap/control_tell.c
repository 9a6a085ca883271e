/* SPDX-License-Identifier: Apache-2.0 */
/* What the process says of itself to medusa-swap run: its memory, and what has become of a command. */
#include "swap/control_tell.h"

#include <inttypes.h>
#include <stdio.h>

#include "swap/arrival.h"
#include "swap/carry.h"
#include "swap/pool_spill.h"
#include "swap/wire.h"

/* "GPU-... BYTES" of each neighbour. */
static void put_links(struct md_json *json, const struct md_swap_report *report)
{
	char text[MD_CARRY_LINKS * (MD_CARRY_GPU_BYTES + 24)] = "";
	size_t used = 0;
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < report->links && i < MD_CARRY_LINKS && used < sizeof(text); i++) {
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %" PRIu64, used ? " " : "",
					 report->gpus[i], report->by_link[i]);
		bytes += report->by_link[i];
	}
	md_json_number(json, "copied_by_neighbours", bytes);
	md_json_text(json, "links", text);
	md_json_text(json, "neighbours_because", report->because);
	md_json_number(json, "copied_by_peers", report->by_peers);
	md_json_number(json, "peers_differed", report->differed);
	md_json_text(json, "peers_because", report->peers_because);
	md_json_text(json, "peers_carried_because", report->carried_because);
	for (size_t i = 0; i < MD_PEER_TIMES; i++)
		md_json_number(json, md_swap_peer_time_names[i], report->peer_times[i]);
}

static void put_report(struct md_json *json, const struct md_swap_report *report)
{
	md_json_number(json, "bytes", report->bytes);
	md_json_number(json, "copied", report->copied);
	md_json_number(json, "hashed_equal", report->hashed_equal);
	md_json_number(json, "zero", report->zero);
	md_json_number(json, "discarded", report->discarded);
	md_json_number(json, "resident", report->resident);
	md_json_number(json, "coming_at_open", report->coming);
	md_json_number(json, "spilled", report->spilled);
	md_json_number(json, "ns_quiesce", report->ns_quiesce);
	md_json_number(json, "ns_hash", report->ns_hash);
	md_json_number(json, "ns_lock", report->ns_lock);
	md_json_number(json, "ns_copy", report->ns_copy);
	md_json_number(json, "ns_unmap", report->ns_unmap);
	md_json_number(json, "ns_map", report->ns_map);
	md_json_number(json, "ns_spill", report->ns_spill);
	md_json_number(json, "ns_total", report->ns_total);
	put_links(json, report);
}

static void put_arrival(struct md_json *json)
{
	struct md_swap_arrival_counts counts;
	md_swap_arrival_count(&counts);
	md_json_number(json, "coming", counts.left);
	md_json_number(json, "unknown", counts.unknown);
	md_json_number(json, "there_at_first_launch", counts.at_first == UINT64_MAX ? 0 : counts.at_first);
	md_json_number(json, "launches_free", counts.launches_free);
	md_json_number(json, "launches_some", counts.launches_some);
	md_json_number(json, "launches_all", counts.launches_all);
	md_json_text(json, "launches_all_because", counts.why ? counts.why : "");
}

static void put_state(struct md_swap_control *c, struct md_json *json)
{
	struct md_swap_totals totals;
	md_swap_memory_totals(&totals);
	md_json_text(json, "state", md_swap_exchange_is_out(c->exchange) ? "out" : "in");
	md_json_number(json, "swappable", totals.swappable);
	md_json_number(json, "out", totals.out);
	md_json_number(json, "stays", totals.resident);
	md_json_number(json, "kept", totals.kept);
	md_json_number(json, "constant", totals.constant);
	md_json_number(json, "shared", totals.shared);
	c->told_spilled = md_swap_pool_spilled(c->pool);
	md_json_number(json, "in_file", c->told_spilled);
	md_json_text(json, "gpu", c->gpu);
	md_json_number(json, "gpus", c->gpus);
	md_json_bool(json, "placed", c->placed);
	put_arrival(json);
	c->told = totals.swappable;
	c->told_constant = totals.constant;
	c->told_shared = totals.shared;
}

enum md_status md_swap_control_answer(struct md_swap_control *c, uint64_t id, enum md_status status,
				      const struct md_swap_report *report, const struct md_error *why,
				      struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	md_json_number(&letter.json, "id", id);
	md_json_bool(&letter.json, "ok", status == MD_OK);
	md_json_number(&letter.json, "status", status);
	md_json_text(&letter.json, "message", status == MD_OK ? "" : why->message);
	put_report(&letter.json, report);
	put_state(c, &letter.json);
	return md_swap_letter_send(&letter, c->wire.fd, -1, err);
}

enum md_status md_swap_control_tell(struct md_swap_control *c, struct md_error *err)
{
	struct md_swap_letter letter;
	MD_FORWARD(md_swap_letter_begin(&letter, err));
	put_state(c, &letter.json);
	return md_swap_letter_send(&letter, c->wire.fd, -1, err);
}
