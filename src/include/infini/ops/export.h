#ifndef INFINI_OPS_EXPORT_H_
#define INFINI_OPS_EXPORT_H_

// Marks what programs and device backends link against; nothing else leaves the library.
#define INFINI_OPS_API __attribute__((visibility("default")))

#endif  // INFINI_OPS_EXPORT_H_
