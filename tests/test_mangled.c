/* SPDX-License-Identifier: Apache-2.0 */
/* What mangled names say of parameters: names as g++ and nvcc write them, and text that is no such name. */
#include "base/mangled.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 24

/* N: a number, A: an address, O: an object, each with its size; "-": the name is not read. */
static const struct {
	const char *name, *params;
} cases[] = {
    {"_Z5scalePKfPfif", "A8 A8 N4 N4"},
    {"_Z4nonev", ""},
    {"_Z5sizesbchastijlmxyfdDF16_DF16bno", "N1 N1 N1 N1 N2 N2 N4 N4 N8 N8 N8 N8 N4 N8 N2 N2 N16 N16"},
    {"_Z6objectN4demo4SizeE5Empty", "O0 O0"},
    {"_Z5halfs6__half7__half26float2N3c108BFloat16E", "N2 N4 N8 N2"},
    {"_ZN2at6native5firstIfEEvT_PT_", "N4 A8"},
    {"_ZN2at6native6secondIfLi4EdEEvT1_T_i", "N8 N4 N4"},
    {"_ZN2at6native6secondIf5EmptyEEvT_T0_", "N4 O0"},
    {"_ZN2at6native4packIJifPdEEEvDpT_", "N4 N4 A8"},
    {"_ZN2at6native4packIiJEEEvT_DpT0_", "N4"},
    {"_ZN12_GLOBAL__N_13runILb1EEEvm", "N8"},
    {"_ZN7TypesOf3runEPKcRKiOs", "A8 A8 A8"},
    {"_Z8functionPFvifEM1AFviE", "A8 O0"},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_15tan_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE0_clEv"
     "ENKUlvE0_clEvEUnvhdl0_1_0_0_PFvS3_ENS0_15tan_kernel_cudaE5_ffESt5arrayIPcLm2EEEEviT0_T1_",
     "N4 O0 O0"},
    {"_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_13AUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEE"
     "St5arrayIPcLm2EEEEviT0_T1_",
     "N4 O0 O0"},
    {"_ZN2at6native34_scatter_gather_elementwise_kernelILi128ELi8EZNS0_34_cuda_scatter_fill_internal_kernelIdlEclINS0_"
     "14ReduceMultiplyEEEvRNS_14TensorIteratorEdlllRKT_EUnvdl8_MS3_FvS7_dlllRKS5_ES4_IS5_E1_16OffsetCalculatorILi2EjLb"
     "0EEPclSB_SH_lldEEviT1_",
     "N4 O0"},
    {"_Z5tail_", "-"},
    {"scale", "-"},
    {"", "-"},
    {"_Z", "-"},
    {"_Z99999999999999999999scalePf", "-"},
    {"_Z5scalePf.cold", "-"},
    {"_ZN5scaleIfEEvT", "-"},
    {"_Z5scaleP", "-"},
    {"_Z5scaleIfLi", "-"},
};

static uint32_t count_of(const char *params)
{
	uint32_t count = *params != 0;
	for (; *params; params++)
		count += *params == ' ';
	return count;
}

static const char *read_params(const char *name, uint32_t count)
{
	static char text[MOST * 16];
	struct md_mangled_param params[2 * MOST];
	text[0] = 0;
	if (!md_mangled_params(name, params, count))
		return "-";
	for (uint32_t i = 0; i < count; i++)
		sprintf(text + strlen(text), "%s%c%u", i ? " " : "", "ONA"[params[i].kind], params[i].size);
	return text;
}

Test(mangled, names_say_what_parameters_are)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		cr_assert_str_eq(read_params(cases[i].name, count_of(cases[i].params)), cases[i].params,
				 "%s: %s, not %s", cases[i].name, cases[i].params,
				 read_params(cases[i].name, count_of(cases[i].params)));
}

/* The driver's count is compared: a name that is read otherwise is not understood. */
Test(mangled, should_fail_another_number_of_parameters)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cr_assert_str_eq(read_params(cases[i].name, count_of(cases[i].params) + 1), "-", "%s", cases[i].name);
		if (count_of(cases[i].params))
			cr_assert_str_eq(read_params(cases[i].name, count_of(cases[i].params) - 1), "-", "%s",
					 cases[i].name);
	}
}

/* Names come from files, too. */
Test(mangled, any_text_is_safe)
{
	struct md_mangled_param params[MOST];
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t size = strlen(cases[i].name);
		for (size_t cut = 0; cut <= size; cut++) {
			char *text = strndup(cases[i].name, cut);
			cr_assert(text);
			for (uint32_t count = 0; count < MOST; count++)
				md_mangled_params(text, params, count);
			for (int letter = 'A'; cut && letter <= 'z'; letter += 3) {
				text[cut / 2] = (char)letter;
				md_mangled_params(text, params, MOST);
			}
			free(text);
		}
	}
	char *deep = malloc(100001);
	cr_assert(deep);
	memset(deep, 'N', 100000);
	memcpy(deep, "_Z", 2);
	deep[100000] = 0;
	cr_assert(!md_mangled_params(deep, params, 1));
	memset(deep + 2, 'Z', 100000 - 2);
	cr_assert(!md_mangled_params(deep, params, 1));
	memcpy(deep, "_Z1f", 4);
	memset(deep + 4, 'F', 100000 - 4);
	cr_assert(!md_mangled_params(deep, params, 1));
	free(deep);
}
