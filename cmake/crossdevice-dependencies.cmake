# SPDX-License-Identifier: Apache-2.0
# Finds the package behind a third-party target; used by the build and, installed, by the package's config file.

# Defines TARGET, one of the names below, if it does not exist yet; says which Debian package has it when it fails.
macro(crossdevice_find_target target)
  if(NOT TARGET ${target})
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
    if("${target}" STREQUAL "Threads::Threads")
      set(THREADS_PREFER_PTHREAD_FLAG ON)
      find_package(Threads QUIET)
    elseif("${target}" STREQUAL "fmt::fmt")
      find_package(fmt 9 QUIET)
    elseif("${target}" STREQUAL "nlohmann_json::nlohmann_json")
      find_package(nlohmann_json 3.9 QUIET)
    elseif("${target}" MATCHES "^OpenSSL::(Crypto|SSL)$")
      find_package(OpenSSL 3 QUIET COMPONENTS Crypto SSL)
    elseif("${target}" STREQUAL "asio::asio") # standalone Asio: headers only, without a package file of its own
      find_path(CROSSDEVICE_ASIO_INCLUDE_DIR asio.hpp)
      mark_as_advanced(CROSSDEVICE_ASIO_INCLUDE_DIR)
      if(CROSSDEVICE_ASIO_INCLUDE_DIR)
        add_library(asio::asio INTERFACE IMPORTED GLOBAL)
        target_include_directories(asio::asio SYSTEM INTERFACE "${CROSSDEVICE_ASIO_INCLUDE_DIR}")
        target_compile_definitions(asio::asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED
                                                         ASIO_DISABLE_VISIBILITY) # our symbols stay ours
      endif()
    elseif("${target}" STREQUAL "CUDA::cudart_static") # not by FindCUDAToolkit, which wants an nvcc that nobody needs here
      find_library(CROSSDEVICE_CUDART_STATIC_LIBRARY cudart_static
                   HINTS "${CUDAToolkit_ROOT}" ENV CUDAToolkit_ROOT ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda
                   PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib)
      mark_as_advanced(CROSSDEVICE_CUDART_STATIC_LIBRARY)
      if(CROSSDEVICE_CUDART_STATIC_LIBRARY)
        find_package(Threads QUIET)
        add_library(CUDA::cudart_static STATIC IMPORTED GLOBAL)
        set_target_properties(
          CUDA::cudart_static PROPERTIES IMPORTED_LOCATION "${CROSSDEVICE_CUDART_STATIC_LIBRARY}"
                                         INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};rt")
      endif()
    elseif("${target}" STREQUAL "CLI11::CLI11")
      find_package(CLI11 2.1 QUIET)
    elseif("${target}" STREQUAL "Eigen3::Eigen")
      find_package(Eigen3 3.4 QUIET NO_MODULE)
    elseif("${target}" STREQUAL "ZLIB::ZLIB")
      find_package(ZLIB QUIET)
    elseif("${target}" MATCHES "^GTest::(gtest|gmock)")
      find_package(GTest 1.12 QUIET)
    elseif("${target}" STREQUAL "benchmark::benchmark")
      find_package(benchmark 1.7 QUIET)
    elseif("${target}" MATCHES "^PkgConfig::(hwloc|hwy|xxhash)$")
      string(REGEX REPLACE "^PkgConfig::" "" crossdevice_module "${target}")
      set(crossdevice_pc_hwloc "hwloc>=2.9")
      set(crossdevice_pc_hwy "libhwy>=1.0.3")
      set(crossdevice_pc_xxhash "libxxhash>=0.8")
      find_package(PkgConfig QUIET)
      if(PkgConfig_FOUND)
        pkg_check_modules(${crossdevice_module} QUIET IMPORTED_TARGET GLOBAL "${crossdevice_pc_${crossdevice_module}}")
      endif()
    else()
      message(FATAL_ERROR "crossdevice: nobody has told cmake/crossdevice-dependencies.cmake how to find ${target}")
    endif()
    unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
  endif()
endmacro()
