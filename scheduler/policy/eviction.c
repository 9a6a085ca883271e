/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction: which idle artifact leaves a GPU first when another needs its memory. */
#include <float.h>
#include <math.h>

#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

static const struct md_function *owner(const struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	return a->kind == MEDUSA_SCHED_CLASS_BACKBONE ? NULL : &s->functions[a->owner];
}

/* Requests that wait for this artifact. */
static uint32_t queue_length(const struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind != MEDUSA_SCHED_CLASS_BACKBONE)
		return md_waiting(s, a->owner);
	return s->backbones[a->owner].waiting;
}

static struct md_key lru_rank(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	return (struct md_key){0, md_copy_at(s, artifact, gpu)->used};
}

/*
 * Light models, and those that another GPU has, too, go before heavy ones that are the only copy; within each group by
 * last use.
 */
static struct md_key torpor_rank(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_function *f = owner(s, artifact);
	bool heavy = !f || f->heavy;
	return (struct md_key){heavy && s->artifacts[artifact].copies <= 1, md_copy_at(s, artifact, gpu)->used};
}

/* Requests that run on this GPU and use the artifact. */
static uint32_t running_with(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	enum medusa_sched_class kind = s->artifacts[artifact].kind;
	uint32_t count = 0;
	for (uint32_t b = s->gpus[gpu].first_batch; b != NONE; b = s->batches[b].newer) {
		if (s->functions[s->batches[b].function].artifacts[kind] == artifact)
			count += s->batches[b].requests.count;
	}
	return count;
}

/* A queue is as long as the requests that wait in it and those that its engine has taken and not yet answered. */
static struct md_key swapserve_rank(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	uint32_t length = queue_length(s, artifact) + running_with(s, artifact, gpu);
	return (struct md_key){length, md_copy_at(s, artifact, gpu)->used};
}

/* The seconds that loading it again takes, times how often it is needed. */
static double reload_value(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	return (double)md_reload_ns(s, artifact, gpu) * 1e-9 * md_artifact_rate(s, artifact);
}

/* Victims are adapters and contexts; what they share leaves after them. */
static struct md_key density_rank(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	double density = reload_value(s, artifact, gpu) / (double)(a->bytes ? a->bytes : 1);
	bool shared = a->kind == MEDUSA_SCHED_CLASS_BACKBONE;
	return (struct md_key){shared ? DBL_MAX : density, md_copy_at(s, artifact, gpu)->used};
}

/* ns to bring in all that the function needs on a GPU, from host memory. */
static double load_ns(const struct medusa_sched *s, const struct medusa_sched_function *spec)
{
	double bytes = spec->swap_ns ? 0 : (double)spec->weight_bytes;
	double swap = spec->swap_ns > spec->t0_ns ? (double)(spec->swap_ns - spec->t0_ns) : 0;
	if (spec->backbone != NONE)
		bytes += (double)s->artifacts[s->backbones[spec->backbone].artifact].bytes;
	return swap + bytes / s->host_bytes_per_s * 1e9 + (double)spec->context_ns;
}

/*
 * The share of the time allowed by the SLO that bringing in the function takes, of a backbone: one of its users. The
 * greater it is, the likelier the request is late.
 */
static double urgency(const struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	uint32_t user = a->kind == MEDUSA_SCHED_CLASS_BACKBONE ? s->backbones[a->owner].first_user : a->owner;
	const struct medusa_sched_function *spec = user == NONE ? NULL : &s->functions[user].spec;
	if (!spec || spec->slo_ns <= spec->t0_ns)
		return 1;
	double part = load_ns(s, spec) / (double)(spec->slo_ns - spec->t0_ns);
	return part < 1 ? part : 1;
}

/*
 * Our policy: what has just arrived is worth more for a time in proportion to its loading time, and so is what requests
 * wait for. These are factors, not absolute classes: a small artifact that is awaited must not push out a large one that
 * takes long to load.
 */
#define FRESH 16
#define AWAITED 4

static double medusa_value(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	double stayed = (double)(s->now - md_copy_at(s, artifact, gpu)->since);
	double takes = (double)md_reload_ns(s, artifact, gpu);
	/* the root of the rate: one late request of fifty makes a function miss its goal, however often it is called */
	const struct md_function *f = owner(s, artifact);
	/* functions called at even intervals are worth most before their next call: in turns, LRU is the worst choice */
	double rate = f ? md_rate_next_per_s(&f->rate, s->now) : md_artifact_rate(s, artifact);
	double value = takes * sqrt(rate) * urgency(s, artifact);
	bool fresh = stayed < s->options.residency_per_switch * takes;
	bool awaited = queue_length(s, artifact) > 0;
	return value * (fresh ? FRESH : 1) * (awaited ? AWAITED : 1);
}

/* Where the knapsack has no answer. */
static struct md_key medusa_rank(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	double density = medusa_value(s, artifact, gpu) / (double)(s->artifacts[artifact].bytes + 1);
	return (struct md_key){density, md_copy_at(s, artifact, gpu)->used};
}

/*
 * For comparison: an artifact that serves nobody is evicted when its time is over, and never because another needs
 * room.
 */
#define KEEP_ALIVE 20000000000ull

static bool timeout_may(struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	return s->now - md_copy_at(s, artifact, gpu)->used >= KEEP_ALIVE;
}

static const struct md_eviction never = {.name = "never", .summary = "nothing leaves for another"};
static const struct md_eviction timeout = {
    .name = "timeout", .summary = "only what was idle for 20 s (xLoRA-NDO)", .rank = lru_rank, .may = timeout_may};
static const struct md_eviction lru = {.name = "lru", .summary = "least recently used", .rank = lru_rank};
static const struct md_eviction torpor = {
    .name = "torpor",
    .summary = "light ones and further copies first, then heavy ones, by last use (Torpor, section 5.4)",
    .rank = torpor_rank};
static const struct md_eviction swapserve = {
    .name = "swapserve",
    .summary = "shortest queue, then least recently used; busy ones drain (SwapServeLLM, section 3.5)",
    .rank = swapserve_rank,
    .drains = true};
static const struct md_eviction by_density = {
    .name = "density",
    .summary = "adapters and contexts as a minimum knapsack, greedily by the value of a byte (xLoRA, section 4.3)",
    .rank = density_rank,
    .solve = md_knapsack_offload_greedy,
    .value = reload_value,
    .spares_backbones = true,
};
static const struct md_eviction medusa = {
    .name = "medusa",
    .summary =
	"ours: those that together lose the least reload seconds x root of the rate, as a knapsack with what leaves "
	"with them; a least stay",
    .rank = medusa_rank,
    .solve = md_knapsack_offload,
    .value = medusa_value};

const struct md_eviction *const md_evictions[] = {&medusa, &never,     &timeout,    &lru,
						  &torpor, &swapserve, &by_density, NULL};
