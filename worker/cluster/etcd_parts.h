/* SPDX-License-Identifier: Apache-2.0 */
/* What calls to etcd and watches of it have in common. */
#ifndef MD_WORKER_CLUSTER_ETCD_PARTS_H
#define MD_WORKER_CLUSTER_ETCD_PARTS_H

#include "http/call.h"
#include "worker/cluster/etcd.h"

struct md_etcd_endpoint {
	const char *url;
	struct md_http_remote remote;
	struct md_http_way way;
	char prefix[256], host[272];
};

struct md_etcd {
	struct event_base *base;
	const struct md_etcd_events *events;
	void *context;
	bool known, reached; /* whether an endpoint answers */
	unsigned current, count;
	struct md_etcd_endpoint endpoints[];
};

#define MD_ETCD_ANSWER_S 3u /* for the whole of an answer */

/* answer_s: at most so long until the head of the answer; 0: any time. NULL: out of memory. */
struct md_http_call *md_etcd_post(struct md_etcd *etcd, unsigned endpoint, const char *path, const char *question,
				  unsigned answer_s, const struct md_http_call_events *events, void *context);
json_t *md_etcd_base64(const void *bytes, size_t size);
json_t *md_etcd_behind(const char *prefix);

#endif
