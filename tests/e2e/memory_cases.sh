# SPDX-License-Identifier: Apache-2.0
# Sourced: the cases of memory_subject and what becomes of each; who sources this says what the words do.
#   restored CASE      restored as it was
#   refused CASE WHY   left out of the artifact, and WHY is said
for name in pitched async vmm; do
	restored $name
	restored ${name}_table
done
restored managed
refused managed_unbound "replay with changed private memory failed: managed memory, which the host reaches without a call (256 bytes) cannot be changed for the poison test: the engine must bind it"
restored pool_table
restored current_pool_table

for name in pinned registered mapped_host; do
	restored $name
	refused ${name}_unbound "node 1: byte 8 points to host memory"
done

restored remapped_before
restored remapped_bound
restored remapped_bound_before
restored bound_then_mapped
refused remapped_after "node 1: byte 8 points into allocation "
restored expandable
restored expandable_bound

shared="replay with changed private memory failed: memory that is shared with another process"
for name in ipc imported_pool imported_vmm; do
	restored $name
	refused ${name}_unbound "$shared"
done
restored ipc_twice
restored aliased
refused aliased_unbound "$shared or device, the host or a second address (2097152 bytes) cannot be changed for the poison test: the engine must bind it"
refused exported_unbound "$shared"
refused exported_after "$shared"
refused exported_pool_unbound "$shared"

restored reused
restored reused_bound
refused reused_after "node 1: byte 8 points into allocation "
refused reused_within "node 0: byte 8 points into allocation "

refused graph_memory "memory allocation node at index 0"
refused graph_memory_of_another "replay with changed private memory failed: memory of a graph's allocation node"
refused graph_memory_of_any_node "replay with changed private memory failed: memory of a graph's allocation node"

restored table_in_large
restored pointer_array
restored block_table
restored variable
refused changing "unprovable: contents of allocation "
refused pointer_to_pinned "unprovable: contents of allocation "
refused pointer_to_ipc "unprovable: contents of allocation "
