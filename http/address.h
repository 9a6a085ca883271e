/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of sockets, as a configuration writes them. */
#ifndef MD_WORKER_HTTP_ADDRESS_H
#define MD_WORKER_HTTP_ADDRESS_H

#include <netinet/in.h>
#include <sys/un.h>

#include "base/status.h"

struct md_http_address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un local;
	};
	socklen_t size;
};

/*
 * ADDRESS:PORT, [ADDRESS]:PORT, :PORT (all addresses), localhost:PORT (127.0.0.1) or unix:PATH. Names are not looked up,
 * because that would make the caller wait.
 */
enum md_status md_http_address_parse(const char *text, struct md_http_address *address, struct md_error *err);
/* Removes the socket of a process that has ended. MD_ERR_BUSY: something listens there; MD_ERR_INVALID: no socket. */
enum md_status md_http_address_clear(const struct md_http_address *address, struct md_error *err);
unsigned md_http_address_number(const struct md_http_address *address); /* its port; 0: none */
unsigned md_http_address_port(int fd);                                  /* that the socket is bound to; 0: none */
void md_http_no_delay(int fd);                                          /* small pieces are sent at once */
void md_http_keep_alive(int fd); /* an end that has vanished without a word is noticed within half a minute */

#endif
