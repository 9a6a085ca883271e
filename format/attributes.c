/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of kernel nodes: which there are, how long their values are, and which values are the default. */
#include "format/attributes.h"

#include <string.h>

const uint32_t md_attribute_ids[MD_NODE_ATTRIBUTES] = {1, 2, 4, 5, 8, 9, 10, 11, 14, 16};
static const uint8_t sizes[MD_NODE_ATTRIBUTES] = {28, 4, 12, 4, 4, 2, 4, 12, 4, 4};

static unsigned index_of(uint32_t id)
{
	unsigned i = 0;
	while (i < MD_NODE_ATTRIBUTES && md_attribute_ids[i] != id)
		i++;
	return i;
}

size_t md_attribute_size(uint32_t id)
{
	unsigned i = index_of(id);
	return i < MD_NODE_ATTRIBUTES ? sizes[i] : sizeof(((struct md_attribute *)NULL)->value);
}

/* Two attributes are not zero by default: the domain map {0, 1}, and a carveout of -1 (which is not 0, all cache). Some
 * drivers answer 0 for those that were not set. */
static bool is_default(uint32_t id, const uint8_t *value, size_t size, bool given)
{
	static const uint8_t zero[64];
	if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
		return value[0] == 0 && (value[1] == 1 || (!given && value[1] == 0));
	if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
		return *(const int32_t *)value == -1 || (!given && *(const int32_t *)value == 0);
	return !memcmp(value, zero, size);
}

bool md_attribute_copy(struct md_attribute *to, CUlaunchAttributeID id, const CUlaunchAttributeValue *value, bool given)
{
	unsigned i = index_of((uint32_t)id);
	if (i == MD_NODE_ATTRIBUTES)
		return false;
	memset(to, 0, sizeof(*to));
	to->id = (uint32_t)id;
	memcpy(to->value, value, sizes[i]);
	return !is_default(to->id, to->value, sizes[i], given);
}

bool md_attribute_is_launchs_alone(uint32_t id)
{
	return id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
}

bool md_attribute_is_idle(uint32_t id, const uint8_t *value)
{
	CUaccessPolicyWindow window;
	memcpy(&window, value, sizeof(window));
	return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && window.num_bytes == 0;
}
