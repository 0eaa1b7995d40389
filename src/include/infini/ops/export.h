#ifndef INFINI_OPS_EXPORT_H_
#define INFINI_OPS_EXPORT_H_

// Marks the symbols that programs and device backends link against. The library exports no others.
#define INFINI_OPS_API __attribute__((visibility("default")))

#endif  // INFINI_OPS_EXPORT_H_
