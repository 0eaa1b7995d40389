"""Faults in hand-written sources, as edits.

Each has a description, the file, a text that the file has once, and the text in its place.
"""

from __future__ import annotations

WRONG_DATA_TYPES = (
    (
        "the names of int16 and float16 are swapped",
        "src/core/types.cc",
        '{"int16", 2},\n    {"int32", 4},\n    {"int64", 8},\n    {"float16", 2},',
        '{"float16", 2},\n    {"int32", 4},\n    {"int64", 8},\n    {"int16", 2},',
    ),
    (
        "an array of float16 is taken for one of bfloat16",
        "src/bindings/arrays.cc",
        "{kFloat, 16, DataType::kFloat16}",
        "{kFloat, 16, DataType::kBFloat16}",
    ),
    (
        "an array of int64 is taken for one of uint64",
        "src/bindings/arrays.cc",
        "{kInt, 64, DataType::kInt64}",
        "{kInt, 64, DataType::kUInt64}",
    ),
    (
        "Python's float is float32",
        "src/bindings/convert.cc",
        "(&PyFloat_Type)) return DataType::kFloat64;",
        "(&PyFloat_Type)) return DataType::kFloat32;",
    ),
    (
        "float32 has two bytes",
        "src/core/types.cc",
        '{"float32", 4},',
        '{"float32", 2},',
    ),
)
LOST_STRIDES = (
    (
        "a wrapped array is taken as contiguous",
        "src/torch/shells.cc",
        "      .strides(ToTorch(view.strides()))\n",
        "",
    ),
    (
        "an array in a reused wrapper is taken as contiguous",
        "src/torch/shells.cc",
        "->set_sizes_and_strides(shape, strides, 0);",
        "->set_sizes_contiguous(shape);",
    ),
    (
        "the view of a torch tensor is taken as contiguous",
        "src/torch/kernel.cc",
        "          {strides.data(), strides.size()},\n",
        "",
    ),
)
WRONG_NATIVE_KERNELS = (
    (
        "the rows of causal_softmax see the next one's keys",
        "src/cpu/softmax.cc",
        "const std::int64_t visible = size - rows + row % rows + 1;",
        "const std::int64_t visible = size - rows + (row + 1) % rows + 1;",
    ),
    (
        "the weight of rms_norm is taken as contiguous",
        "src/cpu/norm.cc",
        "weights = Gather(weight, &buffer);",
        "weights = weight.data();",
    ),
    (
        "a causal query of attention sees one key more",
        "src/core/attention.cc",
        "head.end = 1;",
        "head.end = 2;",
    ),
    (
        "attention forgets that a larger score came",
        "src/cpu/attention_kernels.h",
        "Store(place, Load(place) * factor);",
        "Store(place, Load(place));",
    ),
    (
        "the causal queries of a sequence are aligned with its first keys",
        "src/core/attention.cc",
        "head.end = own + right + 1;",
        "head.end = right + 1;",
    ),
    (
        "a worker of attention keeps the number of rows of the sequence before",
        "src/cpu/attention.cc",
        "std::min(head.queries * head.heads - first, shape_.block_rows);",
        "std::min(shape_.rows - first, shape_.block_rows);",
    ),
    (
        "the values of the next page replace those of the last one",
        "src/cpu/attention.cc",
        "shape_.value_size, first > 0);",
        "shape_.value_size, false);",
    ),
    (
        "the last block of a sequence is not checked",
        "src/cpu/flash_attention.cc",
        "j * attention_.first.page_size < keys; ++j)",
        "(j + 1) * attention_.first.page_size < keys; ++j)",
    ),
    (
        "the logarithm of a sum lacks the largest score",
        "src/cpu/attention.cc",
        "kLowest : largest_[row] + std::log(sums_[row]);",
        "kLowest : std::log(sums_[row]);",
    ),
    (
        "the heads of a group are one head",
        "src/core/attention.cc",
        "has_heads ? Step(tensor, 2) : 0,",
        "0,",
    ),
    (
        "add_rms_norm stores its sums into the out",
        "src/cpu/norm.cc",
        "weight, eps, {&out, &residual_out});",
        "weight, eps, {&residual_out, &out});",
    ),
    (
        "add_rms_norm normalizes the rounded sums",
        "src/cpu/norm_kernels.h",
        "const C scale = ScaleOf<T>(source, count, eps);",
        "C scale = ScaleOf<T>(source, count, eps);\n"
        "  for (std::int64_t i = 0; i < count; ++i) source.sums[i] = C(source.rounded[i]);",
    ),
    (
        "a tie of float8_e4m3fn is rounded away from zero",
        "src/cpu/vector.h",
        "magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);",
        "magnitude + 0x80000u;",
    ),
    (
        "a NaN of a row is its largest number",
        "src/cpu/quantize_kernels.h",
        "*most = value > *most ? value : *most;",
        "*most = *most > value ? *most : value;",
    ),
    (
        "all groups of a row have the scale of the groups before them",
        "src/cpu/quantize.cc",
        "      Extremes range;\n      kernels.extend(from, size, &range);",
        "      static thread_local Extremes range;\n      kernels.extend(from, size, &range);",
    ),
    (
        "products of int8 have only the last 2048 steps",
        "src/cpu/scaled_mm.cc",
        "sums + i * n + j, n, step > 0);",
        "sums + i * n + j, n, false);",
    ),
    (
        "the slot of the first token is not checked",
        "src/cpu/cache.cc",
        "if (slot < blocks * block_size) continue;",
        "if (token == 0 || slot < blocks * block_size) continue;",
    ),
    (
        "a block's number is taken for a slot within it",
        "src/cpu/cache.cc",
        "slot % copy_.block_size * copy_.slot_stride",
        "slot / copy_.block_size * copy_.slot_stride",
    ),
    (
        "rotary_embedding rotates the first elements of a head",
        "src/core/rotary.cc",
        "offset * heads.element_stride * static_cast",
        "0 * heads.element_stride * static_cast",
    ),
    (
        "scaled_softmax takes a negative number for a positive one",
        "src/cpu/softmax_kernels.h",
        "const C sign = scale < 0 ? C{-1}",
        "const C sign = scale < 0 ? C{1}",
    ),
    (
        "all rows of a sampling have the random number of the first one",
        "src/cpu/top_k_top_p_sampling_from_logits.cc",
        "seeds ? 0 : static_cast<std::uint64_t>(i));",
        "0);",
    ),
    (
        "joint filters of a sampling are applied one after the other",
        "src/cpu/top_k_top_p_sampling_from_logits.cc",
        " || (draw.is_joint && draw.top_p < 1);",
        ";",
    ),
    (
        "rotary_embedding takes the position after the last one",
        "src/cpu/rotary_embedding.cc",
        "position < size) continue;",
        "position <= size) continue;",
    ),
)
# Faults that the operator suite once did not detect.
LOST_MAXIMA = (
    (
        "causal_softmax ignores the third of its maxima",
        "src/cpu/softmax_kernels.h",
        "Max<C>(largest[2], largest[3])",
        "largest[3]",
    ),
    (
        "causal_softmax ignores the fourth of its maxima",
        "src/cpu/softmax_kernels.h",
        "Max<C>(largest[2], largest[3])",
        "largest[2]",
    ),
)
LATE_ROWS = (
    (
        "cat copies many rows from their second byte on",
        "src/cpu/cat.cc",
        "CopyBytes(run.data + row * run.size,",
        "CopyBytes(run.data + row * run.size + 1,",
    ),
)
VIEWS_WITHOUT_STRIDES = (
    (
        "an input of other strides than the out is the same view",
        "src/core/types.cc",
        " &&\n         std::equal(a.strides().begin(), a.strides().end(), b.strides().begin(), "
        "b.strides().end())",
        "",
    ),
)
OVERLAPS_OF_ONE_BYTE = (
    (
        "the last byte of the out may be the first one of an input",
        "src/core/types.cc",
        "out_end <= input_begin",
        "out_end <= input_begin + 1",
    ),
    (
        "the first byte of the out may be the last one of an input",
        "src/core/types.cc",
        "input_end <= out_begin",
        "input_end <= out_begin + 1",
    ),
    (
        "an input that begins where the out ends overlaps it",
        "src/core/types.cc",
        "out_end <= input_begin",
        "out_end < input_begin",
    ),
)
ROUNDED_NANS = (
    (
        "a NaN is rounded to a bfloat16 like a number",
        "src/cpu/vector.h",
        "return value == value ? rounded : Words{} + 0x7FC00000u;",
        "return rounded;",
    ),
)
BOOLS_AS_NUMBERS = (
    (
        "the byte of a bool is its number",
        "src/cpu/convert.cc",
        "static_cast<std::int8_t>(static_cast<std::uint8_t>(value) != 0)",
        "static_cast<std::uint8_t>(value)",
    ),
)
WRONG_LIMITS = (
    (
        "alpha may be greater by one than the largest integer of the type",
        "src/core/requirements.cc",
        ": integer <= limit;",
        ": integer <= limit + (limit < ~std::uint64_t{0});",
    ),
    (
        "alpha may not be the largest float of the type",
        "src/core/requirements.cc",
        "std::abs(real) <= *largest",
        "std::abs(real) < *largest",
    ),
)
UNCHECKED_STORAGE = (
    (
        "a storage may be too short",
        "src/torch/kernel.cc",
        "if (needed <= size) return;",
        "if (needed <= size || size > 0) return;",
    ),
    (
        "a storage may be too short by a byte",
        "src/torch/kernel.cc",
        "if (needed <= size) return;",
        "if (needed <= size + 1) return;",
    ),
    (
        "the offset of a tensor in its storage does not count",
        "src/torch/kernel.cc",
        "tensor.itemsize(), tensor.storage_offset());",
        "tensor.itemsize(), 0);",
    ),
)
LOST_OFFSETS = (
    (
        "an operator may move an array within its memory",
        "src/torch/wrapped_arguments.cc",
        "wrapped.storage_offset() != 0 ||",
        "false ||",
    ),
    (
        "each torch tensor begins where its storage does",
        "src/torch/overlap.cc",
        "tensor.storage_offset() * tensor.itemsize()",
        "0 * tensor.itemsize()",
    ),
)
POOLS_AFTER_FORK = (
    (
        "the child of a fork waits for the threads of its parent",
        "src/cpu/parallel.cc",
        "if (is_forked || !detects_forks) return false;",
        "if (!detects_forks) return false;",
    ),
)
POOLS_AFTER_SECOND_FORK = (
    (
        "the child of a child takes its parent's threads for its own",
        "src/cpu/parallel.cc",
        "      pool = new Pool;\n      is_inside = false;",
        "      is_inside = false;",
    ),
)
# These compute what they should for most numbers, on most processors, or once.
SUBNORMAL_EDGES = (
    (
        "the largest subnormal float16 is widened as a normal one",
        "src/cpu/half.h",
        "magnitude < 0x0400",
        "magnitude < 0x03FF",
    ),
    (
        "what rounds to the largest subnormal float16 is narrowed as a normal number",
        "src/cpu/half.h",
        "magnitude < 0x38800000",
        "magnitude < 0x387FC000",
    ),
)
NARROWER_VECTORS = (
    (
        "infinity is a number in vectors of SSE2",
        "src/cpu/vector.h",
        "magnitude >= (0x7C00u << 13)",
        "magnitude > (0x7C00u << 13)",
    ),
    (
        "ties round up in vectors of SSE2",
        "src/cpu/vector.h",
        "magnitude + 0x0FFFu + ((magnitude >> 13) & 1u)",
        "magnitude + 0x1000u",
    ),
    (
        "a large subnormal float16 is narrowed as a normal one in vectors of SSE2",
        "src/cpu/vector.h",
        "size < 0x38800000 ?",
        "size < 0x38000000 ?",
    ),
)
WRONG_PARTS = (
    (
        "a part of a vector is stored as a whole one",
        "src/cpu/vector.h",
        "std::memcpy(target, lanes, static_cast<std::size_t>(count) * sizeof(T));",
        "std::memcpy(target, lanes, sizeof(lanes));",
    ),
    (
        "the lanes of bfloat16 are stored in exchanged places",
        "src/cpu/vector.h",
        "(RoundToBFloat16(pair.first) >> 16) | (RoundToBFloat16(pair.second) & 0xFFFF0000u)",
        "(RoundToBFloat16(pair.second) >> 16) | (RoundToBFloat16(pair.first) & 0xFFFF0000u)",
    ),
)
LEAKED_NUMBERS = (
    (
        "a call leaks the numbers of its slot and of its stream",
        "src/bindings/operator_function.cc",
        "const Object number = Own(PyNumber_Index(value));",
        "const Object& number = *new Object(Own(PyNumber_Index(value)));",
    ),
    (
        "a call leaks each integer of a list",
        "src/bindings/convert.cc",
        "const Object index = Own(PyNumber_Index(object));",
        "const Object& index = *new Object(Own(PyNumber_Index(object)));",
    ),
)
UNRELEASED_ARRAYS = (
    (
        "an array is not given back",
        "src/bindings/arrays.cc",
        "if (tensor->deleter) tensor->deleter(tensor);",
        "",
    ),
    (
        "a buffer is not given back",
        "src/bindings/arrays.cc",
        "PyBuffer_Release(owned.get());",
        "",
    ),
    (
        "the capsule of a refused array is not given back",
        "src/bindings/convert.cc",
        "capsule ? Py_DECREF(capsule) :",
        "capsule ? static_cast<void>(0) :",
    ),
)
KEPT_OPERANDS = (
    (
        "a call keeps its torch tensors",
        "src/bindings/torch_objects.cc",
        "  c10::SmallVector<at::TensorBase, 6> tensors_;",
        "  c10::SmallVector<at::TensorBase, 6>& tensors_ = "
        "*new c10::SmallVector<at::TensorBase, 6>;",
    ),
    (
        "a call keeps its lists",
        "src/bindings/call_storage.h",
        "std::vector<Object> held_;",
        "std::vector<Object>& held_ = *new std::vector<Object>;",
    ),
)
ALIASED_FACTORS = (
    (
        "two factors at one address are the same matrix",
        "src/core/product.cc",
        "product->b = b.matrix;",
        "product->b = a.matrix.data == b.matrix.data ? a.matrix : b.matrix;",
    ),
    (
        "a product is written over its own factor",
        "src/core/requirements.cc",
        "other.data() != out.data() ||",
        "true ||",
    ),
)
WRONG_EXPERTS = (
    (
        "of equal experts the last one comes first",
        "src/cpu/routing.cc",
        "order[places[place - 1]] < order[i]",
        "order[places[place - 1]] <= order[i]",
    ),
    (
        "a bias changes the weights of experts, too",
        "src/cpu/routing.cc",
        "Write(token, weights, room->places.data());",
        "Write(token, bias_ ? keys : weights, room->places.data());",
    ),
    (
        "blocks of experts are filled with the first choice",
        "src/cpu/moe_align_block_size.cc",
        "sorted.Write(i, count);",
        "sorted.Write(i, 0);",
    ),
    (
        "the last columns of a sum lack an expert",
        "src/cpu/moe_sum_kernels.h",
        "for (std::int64_t row = 0; row < rows; ++row) sum += LoadPart(",
        "for (std::int64_t row = 1; row < rows; ++row) sum += LoadPart(",
    ),
    (
        "each choice of an expert is a row of its own",
        "src/cpu/grouped_gemm.cc",
        "RowOf(a_, choice / top_k_)",
        "RowOf(a_, choice % a_.shape()[0])",
    ),
)
