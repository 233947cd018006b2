# SPDX-License-Identifier: Apache-2.0
# CUDA: whether this machine can compile it, for which GPUs, and how kernels become part of the library.
include(CheckLanguage)

set(CROSSDEVICE_CUDA_ARCHITECTURES "" CACHE STRING
    "GPUs to compile for, as in CMAKE_CUDA_ARCHITECTURES; empty: every generation from Turing on (Volta before CUDA 13) that the toolkit has, and PTX for those to come")

# Sets `missing` to what keeps this build from having CUDA, or to the empty string.
function(crossdevice_find_cuda missing)
  # FindCUDAToolkit of CMake 3.25 stops with an error at CUDA 13, which has no nvToolsExt any more, in projects that require
  # CMake 3.25: it sets a property of that target without asking whether it exists. It asks this variable only.
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON) # who adds this project as a subdirectory links CUDA::cudart_static too
  find_package(CUDAToolkit QUIET)
  foreach(variable IN ITEMS FOUND VERSION TARGET_DIR INCLUDE_DIRS LIBRARY_DIR)
    set(CUDAToolkit_${variable} "${CUDAToolkit_${variable}}" PARENT_SCOPE)
  endforeach()
  set(${missing} "" PARENT_SCOPE)
  if(NOT CUDAToolkit_FOUND)
    set(${missing} "not found: a CUDA toolkit (CUDAToolkit_ROOT, CUDA_PATH, nvcc in PATH, /usr/local/cuda)" PARENT_SCOPE)
    return()
  endif()
  set(found "CUDA toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_TARGET_DIR}")
  # C++20 since 12.0; kernel arguments of 32 KiB, which carry the list of tensors of a pack, since 12.1.
  if(CUDAToolkit_VERSION VERSION_LESS 12.1)
    set(${missing} "${found} is older than 12.1" PARENT_SCOPE)
    return()
  endif()
  if(NOT TARGET CUDA::cudart_static)
    set(${missing} "${found} has no libcudart_static.a" PARENT_SCOPE)
    return()
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
    set(ENV{CUDACXX} "${CUDAToolkit_NVCC_EXECUTABLE}") # it need not be in PATH
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${missing} "${found} has no nvcc that works with its host compiler (CUDACXX, CUDAHOSTCXX; see CMakeFiles/CMakeError.log)" PARENT_SCOPE)
    return()
  endif()

  set(targets "${CROSSDEVICE_CUDA_ARCHITECTURES}")
  if(NOT targets)
    set(numbers 75 80 86 89 90)
    if(CUDAToolkit_VERSION VERSION_LESS 13)
      list(PREPEND numbers 70)
    endif()
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND numbers 100 120)
    endif()
    list(TRANSFORM numbers APPEND "-real" OUTPUT_VARIABLE targets)
    list(POP_BACK numbers newest)
    list(APPEND targets "${newest}-virtual")
    # Code runs on later GPUs of its generation, PTX on all later ones: that of the newest is none for those between it and the one before.
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND targets 100-virtual)
    endif()
  endif()
  set(CROSSDEVICE_CUDA_TARGETS "${targets}" PARENT_SCOPE)
endfunction()

# crossdevice_cuda_object(NAME x SOURCES a.cu ...): compiles them into one object file: the target x makes it (of x_objects), the variable x is its path.
#
# So that CMake sees no target of language CUDA in what links it: otherwise nvcc would link that, and whoever links an installed
# archive would have to enable CUDA.
function(crossdevice_cuda_object)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES")
  set(objects ${arg_NAME}_objects)
  add_library(${objects} OBJECT ${arg_SOURCES})
  target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  set_target_properties(
    ${objects}
    PROPERTIES CUDA_ARCHITECTURES "${CROSSDEVICE_CUDA_TARGETS}"
               CUDA_STANDARD 20
               CUDA_STANDARD_REQUIRED ON
               CUDA_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  if(NOT CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(${objects} PROPERTIES CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  # Bits must be those of the host kernels: nothing fused, subnormals kept, divisions exact. The host's half of these files is
  # a launch each, which sanitizers need not look into; the same flags in every build let a compiler cache share them.
  target_compile_options(
    ${objects}
    PRIVATE -fmad=false -ftz=false -prec-div=true
            "-Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-unused-parameter"
            $<$<BOOL:${CROSSDEVICE_WERROR}>:-Werror=all-warnings>)

  set(joined "${PROJECT_BINARY_DIR}/lib/${arg_NAME}.o")
  add_custom_command(
    OUTPUT "${joined}"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/lib"
    COMMAND "${CMAKE_LINKER}" -r -o "${joined}" $<TARGET_OBJECTS:${objects}>
    DEPENDS ${objects} $<TARGET_OBJECTS:${objects}>
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Joining ${arg_NAME}")
  add_custom_target(${arg_NAME} DEPENDS "${joined}")
  set(${arg_NAME} "${joined}" PARENT_SCOPE)
endfunction()

# crossdevice_cuda_link(target x "${x}"): makes such an object file a part of `target`.
function(crossdevice_cuda_link target name joined)
  set_source_files_properties("${joined}" TARGET_DIRECTORY ${target} PROPERTIES GENERATED ON EXTERNAL_OBJECT ON)
  target_sources(${target} PRIVATE "${joined}")
  add_dependencies(${target} ${name})
endfunction()

# crossdevice_cuda_kernels(SOURCES a.cu ...): compiles them and makes them part of the library.
function(crossdevice_cuda_kernels)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SOURCES")
  crossdevice_cuda_object(NAME crossdevice_cuda_kernels SOURCES ${arg_SOURCES})
  foreach(library IN ITEMS crossdevice crossdevice_internal)
    crossdevice_cuda_link(${library} crossdevice_cuda_kernels "${crossdevice_cuda_kernels}")
  endforeach()
  if(BUILD_SHARED_LIBS)
    target_link_options(crossdevice PRIVATE "LINKER:--exclude-libs,libcudart_static.a") # CUDA's names are not ours to export
  endif()
endfunction()
