# Finds the hand-written operators that INFINI_OPS_TORCH_OPS does not select, and the shared sources
# that no selected operator needs, by the stems of their files.
function(infini_ops_find_unselected result)
  set(alone "")
  if(NOT WITH_TORCH)
    set(alone --without-torch)
  endif()
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m codegen hand-written --unselected ${alone}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE unselected OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "Selecting the operators failed; the message is above.")
  endif()
  set(flash flash_attn_varlen_func flash_attn_with_kvcache)
  set(quantizing static_scaled_fp8_quant dynamic_scaled_fp8_quant
    dynamic_per_token_scaled_fp8_quant static_scaled_int8_quant dynamic_scaled_int8_quant
    per_token_group_fp8_quant per_token_group_quant_int8)
  set(routers grouped_topk topk_sigmoid topk_softmax)
  foreach(users
      "product;gemm;grouped_gemm;linear;matmul;scaled_mm;scaled_dot_product_attention;${flash}"
      "attention;scaled_dot_product_attention;${flash}" "flash_attention;${flash}"
      "blas;gemm;linear;matmul"
      "cache;reshape_and_cache;reshape_and_cache_flash"
      "convert;cast;cat;grouped_gemm;top_k_top_p_sampling_from_logits;${routers}" "copy;cast;cat"
      "quantize;${quantizing}"
      "gated;gelu_and_mul;gelu_tanh_and_mul;silu_and_mul;swiglu"
      "norm;add_rms_norm;fused_add_rms_norm;rms_norm"
      "routing;${routers}" "softmax;causal_softmax;scaled_softmax;${routers}")
    list(POP_FRONT users shared)
    list(REMOVE_ITEM users "" ${unselected})
    if(NOT users)
      list(APPEND unselected ${shared})
    endif()
  endforeach()
  set(${result} "${unselected}" PARENT_SCOPE)
endfunction()

# Removes the files with these stems from a list of sources. The registry reports the operators in
# them. `list_variable` is a variable of the caller. Its name must differ from all names in this
# function.
function(infini_ops_leave_out list_variable stems)
  set(kept "")
  foreach(source IN LISTS ${list_variable})
    cmake_path(GET source STEM stem)
    if(stem IN_LIST stems)
      cmake_path(ABSOLUTE_PATH source NORMALIZE)
      set_property(GLOBAL APPEND PROPERTY infini_ops_left_out "${source}")
    else()
      list(APPEND kept "${source}")
    endif()
  endforeach()
  set(${list_variable} "${kept}" PARENT_SCOPE)
endfunction()

# Reads the implementations and their slots from the sources of a target. Fails if two
# implementations have the same (operator, device, slot). Writes `native_ops_metadata.json` into a
# folder.
function(infini_ops_write_registry target output)
  get_target_property(sources ${target} SOURCES)
  set(written "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${source}" is_generated)
    if(NOT is_generated)
      list(APPEND written "${source}")
    endif()
  endforeach()
  get_property(left_out GLOBAL PROPERTY infini_ops_left_out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${written} ${left_out})
  file(GLOB inputs CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/codegen/*.py" "${PROJECT_SOURCE_DIR}/src/base/*.h")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m codegen registry
      --output-dir "${output}" --accelerator "${INFINI_OPS_ACCELERATOR}" ${written} --unselected ${left_out}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "Reading the registrations failed; the message is above.")
  endif()
endfunction()
