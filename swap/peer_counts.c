/* SPDX-License-Identifier: Apache-2.0 */
#include "swap/peer_counts.h"

const char *const md_swap_peer_time_names[MD_PEER_TIMES] = {
    "peers_ns_ready",       "peers_ns_offered",  "peers_ns_asked",       "peers_ns_came",
    "peers_ns_came_last",   "peers_ns_own_last", "peers_ns_check",       "peers_ns_lend",
    "peers_pushed",         "peers_own_parts",   "peers_ns_own_import",  "peers_ns_own_map",
    "peers_ns_own_access",  "peers_lent_parts",  "peers_ns_lent_import", "peers_ns_lent_map",
    "peers_ns_lent_access", "peers_lent_groups", "peers_ns_lent_beside", "peers_ns_answer",
    "peers_copies",         "peers_ns_issue",    "peers_ns_idle",        "peers_ns_unmapped",
    "peers_ns_back",
};
