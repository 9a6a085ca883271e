/* SPDX-License-Identifier: Apache-2.0 */
/* All tables of keys, for who compares them with the documentation. */
#include "worker/config/keys.h"

const struct md_config_keys *const md_config_tables[] = {
    &md_config_top_keys,          &md_config_store_keys,
    &md_config_ui_keys,           &md_config_activity_keys,
    &md_config_performance_keys,  &md_config_upstream_keys,
    &md_config_model_keys,        &md_config_compat_keys,
    &md_config_capability_keys,   &md_config_filter_keys,
    &md_config_peer_filter_keys,  &md_config_timeout_keys,
    &md_config_peer_timeout_keys, &md_config_node_keys,
    &md_config_gpu_keys,          &md_config_policy_keys,
    &md_config_tenant_keys,       &md_config_template_keys,
    &md_config_backbone_keys,     &md_config_own_keys,
    &md_config_adapter_keys,      &md_config_routing_keys,
    &md_config_router_keys,       &md_config_router_setting_keys,
    &md_config_scheduler_keys,    &md_config_scheduler_setting_keys,
    &md_config_fifo_keys,         &md_config_group_keys,
    &md_config_hook_keys,         &md_config_startup_keys,
    &md_config_matrix_keys,       &md_config_peer_keys,
    &md_config_selector_keys,     &md_config_spillover_keys,
    &md_config_profile_keys,      NULL,
};
