/* SPDX-License-Identifier: Apache-2.0 */
/* The links of devices: to the host, in either direction, and between devices. Copies take their turns on them. */
#ifndef HOSTCUDA_BUS_H
#define HOSTCUDA_BUS_H

#include "hostcuda/device_state.h"

enum hc_bus {
	HC_BUS_TO_DEVICE, /* from the host */
	HC_BUS_TO_HOST,
	HC_BUS_PEER, /* to a device, from other devices */
	HC_BUSES,
	HC_BUS_NONE = HC_BUSES,
};

/* Of all processes that share the devices. Each element is accessed atomically. */
struct hc_bus_state {
	uint64_t bytes[HC_BUSES][HC_MAX_DEVICES];   /* that went over each link, for tests */
	uint64_t free_at[HC_BUSES][HC_MAX_DEVICES]; /* ns: when the last copy that has been given a turn ends */
};

/* Which link a copy goes over, by the memory at its ends. */
void hc_bus_choose(struct hc_copy *copy, bool to_host, bool from_host);
/* Counts the copy, and waits until its turn on the link is over, where links have a speed. */
void hc_bus_take(const struct hc_copy *copy);
/* Whether a device can reach the memory of another one (HOSTCUDA_NVLINK). */
bool hc_bus_has_peers(void);

#endif
