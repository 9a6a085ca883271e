/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a whole: begins to serve a configuration, and ends. */
#ifndef MD_WORKER_CORE_SERVICE_H
#define MD_WORKER_CORE_SERVICE_H

#include "worker/config/config.h"

struct md_service_options {
	const char *config_file,
	    *config_folder; /* where the configuration was read, and is read anew; either may be NULL */
	const char *listen; /* ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH */
	const char *state;  /* folder for what engines print */
	/* NULL: the configuration's (medusa.cluster). URLs of etcd with commas between them; a name; a URL. */
	const char *cluster, *node, *advertise;
	const char *control; /* path of the control socket; NULL: the configuration's, else the default */
};

/* What can be found out without serving: whether the machine has what the configuration names. */
enum md_status md_service_check(const struct md_worker_config *config, struct md_error *err);

/*
 * Serves until SIGINT or SIGTERM, or a drain that ends it; SIGHUP reads the configuration anew. Prints to stdout, once it listens, one line: "listening on ADDRESS:PORT". The second
 * signal ends requests at once.
 */
enum md_status md_service_run(const struct md_worker_config *config, const struct md_service_options *options,
			      struct md_error *err);

#endif
