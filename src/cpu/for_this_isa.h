// The part of for_each_isa.h that is compiled for each instruction set.
//
// The kernels can use vector.h, exp.h and map.h, which are included once per instruction set in a
// translation unit: several files that include for_each_isa.h can be a unity.

#ifndef INFINI_OPS_HAS_VECTORS
#include "cpu/vector.h"
// After vector.h.
#include "cpu/exp.h"
#include "cpu/map.h"
#endif
#include INFINI_OPS_KERNELS
#undef INFINI_OPS_ISA
#undef INFINI_OPS_VECTOR_BYTES
