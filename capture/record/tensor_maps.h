/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps that the engine has encoded. */
#ifndef MD_CAPTURE_RECORD_TENSOR_MAPS_H
#define MD_CAPTURE_RECORD_TENSOR_MAPS_H

#include "capture/capture.h"

void md_capture_tensor_map(const CUtensorMap *map); /* lock not held */
bool md_capture_is_tensor_map(const void *bytes)
    MD_CAPTURE_HELD; /* MD_TENSOR_MAP_BYTES of them, as one that was encoded */

#endif
