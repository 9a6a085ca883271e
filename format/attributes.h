/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes that a kernel node can have, as a driver tells them. */
#ifndef MD_FORMAT_ATTRIBUTES_H
#define MD_FORMAT_ATTRIBUTES_H

#include "driver/cuda_driver.h"
#include "format/model.h"

#define MD_NODE_ATTRIBUTES 10
extern const uint32_t md_attribute_ids[MD_NODE_ATTRIBUTES];

/* How many bytes of the value mean something; all of them for an attribute that is not in the list. */
size_t md_attribute_size(uint32_t id);
/*
 * Copies the bytes that mean something, and zeroes the rest of the value. False for default values, and for attributes
 * that are not in the list. given: a launch or a call gave the value; otherwise a driver told it, and some drivers tell 0
 * where nothing was set.
 */
bool md_attribute_copy(struct md_attribute *to, CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
		       bool given);
/* Only a launch can give its node this attribute, and no driver tells it. */
bool md_attribute_is_launchs_alone(uint32_t id);
/* An access policy window of no bytes has no effect. */
bool md_attribute_is_idle(uint32_t id, const uint8_t *value);

#endif
