/* SPDX-License-Identifier: Apache-2.0 */
#include "http/wire_watch.h"

void md_http_wire_watch(struct bufferevent *wire, short what)
{
	if (bufferevent_enable(wire, what))
		bufferevent_trigger_event(wire, BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS);
}
