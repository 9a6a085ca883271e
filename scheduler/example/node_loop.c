/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node loop around libmedusa-sched: two functions take turns on a GPU that has room for one of them. The GPU is
 * simulated.
 */
#include <inttypes.h>
#include <medusa/scheduler.h>
#include <stdio.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define GB UINT64_C(1000000000)
#define BYTES_PER_NS 25 /* from host memory to the GPU */

static const char *const functions[] = {"chat", "code"};
static const char *const artifacts[] = {"backbone", "weights", "context", "library"};

/* ---- what will happen: a real node waits for its sockets, its GPU and its clock here ----------------------------- */

static struct medusa_sched_event queue[64];
static size_t queued;
static uint64_t timer_at = UINT64_MAX;
static uint64_t copies_end; /* when the copies to the GPU that are under way end */

static void will_happen(uint64_t at, struct medusa_sched_event event)
{
	size_t i = queued++;
	if (queued > sizeof(queue) / sizeof(queue[0]))
		abort();
	event.now = at;
	for (; i && queue[i - 1].now > at; i--)
		queue[i] = queue[i - 1];
	queue[i] = event;
}

static struct medusa_sched_event next_event(void)
{
	struct medusa_sched_event event = {.type = MEDUSA_SCHED_EVENT_TIMER, .now = timer_at};
	if (queue[0].now > timer_at) {
		timer_at = UINT64_MAX;
		return event;
	}
	event = queue[0];
	queued--;
	for (size_t i = 0; i < queued; i++)
		queue[i] = queue[i + 1];
	return event;
}

/* ---- what the scheduler wants: a real node starts copies and batches here, and says later when they ended -------- */

static void carry_out(const struct medusa_sched_action *action, uint64_t now)
{
	uint64_t start = now > copies_end ? now : copies_end;
	printf("            %s", medusa_sched_action_name(action->type));
	switch (action->type) {
	case MEDUSA_SCHED_ACTION_SWAP_IN:
	case MEDUSA_SCHED_ACTION_PRELOAD:
		copies_end =
		    start + (action->source == MEDUSA_SCHED_SOURCE_MADE ? 20 * MS : action->bytes / BYTES_PER_NS);
		will_happen(copies_end, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE,
								    .transfer = action->transfer});
		/* fall through */
	case MEDUSA_SCHED_ACTION_EVICT:
	case MEDUSA_SCHED_ACTION_OFFLOAD: /* its transfer is 0: it is done when this function returns */
		printf(" %s of %s, %" PRIu64 " MB%s", artifacts[action->artifact], functions[action->function],
		       action->bytes / 1000000, action->gpu == MEDUSA_SCHED_NONE ? ", host memory" : "");
		break;
	case MEDUSA_SCHED_ACTION_RUN:
		for (uint32_t i = 0; i < action->request_count; i++) {
			struct medusa_sched_event event = {.request = action->requests[i]};
			printf(" request %" PRIu64 " of %s", event.request, functions[action->function]);
			event.type = MEDUSA_SCHED_EVENT_FIRST_TOKEN;
			will_happen(start + 30 * MS, event);
			event.type = MEDUSA_SCHED_EVENT_DONE;
			will_happen(start + 100 * MS, event);
		}
		break;
	case MEDUSA_SCHED_ACTION_REJECT:
		printf(" request %" PRIu64 ": %s", action->request, medusa_sched_reason_name(action->reason));
		break;
	case MEDUSA_SCHED_ACTION_SET_TIMER:
		timer_at = action->at;
		printf(" %.1f ms", (double)action->at / MS);
		break;
	case MEDUSA_SCHED_ACTION_ABORT: /* of abortable functions, and of what does not end: nothing here */
		break;
	}
	printf("\n");
}

static void say(const struct medusa_sched_event *event)
{
	static const char *const words[] = {
	    [MEDUSA_SCHED_EVENT_ARRIVAL] = "arrives",
	    [MEDUSA_SCHED_EVENT_FIRST_TOKEN] = "first token",
	    [MEDUSA_SCHED_EVENT_DONE] = "done",
	    [MEDUSA_SCHED_EVENT_TRANSFER_DONE] = "transfer done",
	    [MEDUSA_SCHED_EVENT_FUNCTION_GONE] = "function unregistered",
	    [MEDUSA_SCHED_EVENT_TIMER] = "timer",
	};
	printf("%7.1f ms  %s", (double)event->now / MS, words[event->type]);
	if (event->request)
		printf(": request %" PRIu64, event->request);
	if (event->type == MEDUSA_SCHED_EVENT_ARRIVAL || event->type == MEDUSA_SCHED_EVENT_FUNCTION_GONE)
		printf("%s %s", event->request ? " for" : ":", functions[event->function]);
	printf("\n");
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void stop_on_error(int error, const struct medusa_sched *sched)
{
	if (error) {
		fprintf(stderr, "node loop: %s\n", medusa_sched_error(sched));
		exit(1);
	}
}

int main(void)
{
	const struct medusa_sched_gpu gpu = {.size = sizeof(gpu), .memory_bytes = 20 * GB};
	const struct medusa_sched_node node = {
	    .size = sizeof(node), .gpus = &gpu, .gpu_count = 1, .host_bytes_per_s = BYTES_PER_NS * 1e9};
	const struct medusa_sched_options options = {.size = sizeof(options), .preloading = "none"};
	struct medusa_sched_function function = {.size = sizeof(function),
						 .backbone = MEDUSA_SCHED_NONE,
						 .weight_bytes = 12 * GB,
						 .context_bytes = GB,
						 .kv_bytes = GB / 2,
						 .context_ns = 20 * MS,
						 .in_host = 1,
						 .t0_ns = 30 * MS,
						 .token_ns = 7 * MS,
						 .slo_ns = 2000 * MS};
	const struct medusa_sched_action *const *actions;
	struct medusa_sched *sched;
	uint32_t index;
	size_t count;
	stop_on_error(medusa_sched_create(&node, &options, &sched), NULL);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		stop_on_error(medusa_sched_add_function(sched, &function, &index), sched); /* 0: chat, 1: code */

	will_happen(0, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 1, .function = 0});
	will_happen(1000 * MS,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 2, .function = 0});
	will_happen(3000 * MS,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 3, .function = 1});
	will_happen(4000 * MS, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE, .function = 1});
	will_happen(4001 * MS,
		    (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = 4, .function = 1});
	while (queued) {
		struct medusa_sched_event event = next_event();
		event.size = sizeof(event);
		say(&event);
		stop_on_error(medusa_sched_step(sched, &event, &actions, &count), sched);
		for (size_t i = 0; i < count; i++)
			carry_out(actions[i], event.now);
	}
	medusa_sched_destroy(sched);
	return 0;
}
