/* SPDX-License-Identifier: Apache-2.0 */
/* Preloading: what is brought in ahead of requests. */
#include "scheduler/state.h"

static const struct md_preloading none = {"none", "nothing before a request asks for it", NULL};

const struct md_preloading *const md_preloadings[] = {&none, NULL};
