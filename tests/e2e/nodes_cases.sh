# SPDX-License-Identifier: Apache-2.0
# Sourced: the graphs of nodes_subject and what becomes of each; who sources this says what the words do.
#   restored GRAPH TEXT   restored as it was; hostcuda is given TEXT for it
#   told GRAPH TEXT       TEXT stands in its part of the artifact's text
#   refused GRAPH WHY     left out of the artifact, and WHY is said
#   either GRAPH WHY      on a GPU it may be restored as well, for WHY
kernel="type 0 nodes_step grid 4,1,1 block 32,1,1 shared 0"
restored child " 3 nodes [0 type 4 3 nodes [0 type 2] [1 $kernel"
told child 'node type="child" nodes=3'
restored nested "[1 type 4 4 nodes [0 type 4 3 nodes"
told nested 'attribute id=11 value=02000000010000000100'
restored launched "[1 type 4 3 nodes [0 type 2]"
refused launched_clustered "child graph node at index 1: made by launching a graph whose nodes have attributes that cannot be read back"
either launched_clustered "a driver may tell them"

restored events "[2 type 7 event 0] <1:0,0,0 [3 type 6 event 0] <2:0,0,0"
refused event_of_engine "node 1: the engine also uses the node's event outside of graphs (cuEventSynchronize)"
refused event_foreign "node 0: the engine also uses the node's event outside of graphs (cuEventRecord)"

restored host_copy " 2 nodes [0 type 1] [1 type 1] <0:0,0,0"
refused host_copy_unbound "node 0: byte 0 points to host memory (allocation "
refused host_copy_pageable "node 0: copies from host memory that is not page-locked"
restored host_pointer " 1 nodes [0 $kernel"
refused host_pointer_unbound "node 0: byte 8 points to host memory (allocation "
refused host_function "host node at index 1"

restored window "attribute 1 in 256 bytes at 64 8000000000000000"
told window "pointer node=0 at=65536 "
restored clusters "attribute 4 020000000100000001000000"
restored preferred_cluster "attribute 11 040000000100000001000000"
restored cloned " 1 nodes [0 $kernel"
told cloned 'attribute id=11 value=02000000010000000100'
restored set_cluster "attribute 11 040000000100000001000000"
restored copied_attributes "attribute 11 020000000100000001000000"
restored reused_node " 1 nodes [0 $kernel"
restored after_failure " 16 nodes [0 $kernel"
restored any_node " 2 nodes [0 type 4 1 nodes [0 $kernel"
told any_node 'attribute id=11 value=02000000010000000100'
restored cooperative "attribute 2 01000000"
restored priority "attribute 8 fdffffff"
restored sync_domain "attribute 9 0103"
restored sync_domains_one " 2 nodes [0 $kernel"
told sync_domains_one "attribute id=9 value=0000"
restored carveout "attribute 14 32000000"
refused strange_attribute "kernel node at index 0: launch attribute 29 is not known"
refused updatable "kernel node at index 0 can be updated from the device"
refused updatable_set "kernel node at index 0 can be updated from the device"

restored function_state "nodes_told grid 1,1,1 block 32,1,1 shared 65536 function 98304,60,1"
restored function_cache "nodes_cached grid 1,1,1 block 32,1,1 shared 0 function 49152,0,0"

restored streams " <0:0,0,0 <3:0,0,0 <2:0,0,0"
refused other_context "kernel node at index 1 belongs to another context than its graph"
refused other_context_set "memset node at index 1 belongs to another context than its graph"
refused other_context_added "memset node at index 3 belongs to another context than its graph"
refused green_context "memset node at index 0 belongs to a green context"
restored programmatic " <0:1,0,1 "

restored empty "type 5]"
restored in_struct "nodes_range"
told in_struct "at=32 alloc=0 kind=0 offset=256"
refused texture "kernel nodes_numbered at index 0: parameter 1 may be a texture object"
restored virtual_origin "nodes_origin"
told virtual_origin "offset=-1048576"
restored tensor_map "nodes_mapped"
told tensor_map " alloc=0 kind=1 offset=0" # where among the parameters is up to the compiler
restored tensor_map_in_memory "nodes_mapped_there"

# A counter that must be zero: saved with the graph. A generator's words: the engine hands them over, or no graph.
restored workspace "nodes_counted"
restored random_bound "nodes_drawn"
refused random_unbound "unprovable: contents of allocation "

restored set_anew " 2 nodes [0 type 2] [1 $kernel"

# Executables that are changed: what they are when they get their name counts; what changes after that is refused.
step="$kernel"
restored changed_memset " 3 nodes [0 type 2] [1 $step"
told changed_memset "value=1 "
restored changed_memcpy " 2 nodes [0 type 1] [1 type 1] <0:0,0,0"
refused changed_event "node 0: the engine also uses the node's event outside of graphs (cuEventSynchronize)"
refused changed_wait "node 0: waits for an event that the graph does not record"
restored changed_kernel " 2 nodes [0 type 2] [1 $step"
restored changed_any " 2 nodes [0 type 2] [1 $step"
restored disabled " 2 nodes [0 type 5] [1 $step"
restored enabled_again " 3 nodes [0 type 2] [1 $step"
restored updated_idly " 2 nodes [0 type 2] [1 $step"
restored updated_wholly " 2 nodes [0 type 2] [1 $step"
restored updated_in_vain " 2 nodes [0 type 2] [1 $step"
restored updated_idly_late " 2 nodes [0 type 2] [1 $step"
restored updated_restored " 2 nodes [0 type 2] [1 $step"
again="updated again after it was labelled"
refused changed_late "$again (cuGraphExecNodeSetParams)"
refused updated_late "$again (cuGraphExecUpdate)"
refused disabled_late "$again (cuGraphNodeSetEnabled)"
