# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` and CPack put where: headers, library, programs, a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)

set(CROSSDEVICE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/crossdevice")
get_property(CROSSDEVICE_LIBRARIES GLOBAL PROPERTY CROSSDEVICE_LIBRARIES)
get_property(CROSSDEVICE_PROGRAMS GLOBAL PROPERTY CROSSDEVICE_PROGRAMS)

install(
  TARGETS crossdevice
  EXPORT crossdevice-targets
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILE_SET vendor DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(CROSSDEVICE_PROGRAMS)
  install(TARGETS ${CROSSDEVICE_PROGRAMS} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME copyright)

# A shared library brings what it links; whoever links the archive links its dependencies too, so the package finds them.
set(CROSSDEVICE_DEPENDENCIES Threads::Threads)
set(CROSSDEVICE_PC_REQUIRES_PRIVATE "")
if(NOT BUILD_SHARED_LIBS)
  list(APPEND CROSSDEVICE_DEPENDENCIES ${CROSSDEVICE_LIBRARIES})
endif()
list(REMOVE_DUPLICATES CROSSDEVICE_DEPENDENCIES)
set(pc_names "fmt::fmt=fmt" "OpenSSL::Crypto=libcrypto" "OpenSSL::SSL=libssl" "PkgConfig::hwloc=hwloc" "PkgConfig::hwy=libhwy" "PkgConfig::xxhash=libxxhash" "ZLIB::ZLIB=zlib")
foreach(pair IN LISTS pc_names)
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 target)
  list(GET pair 1 module)
  if(target IN_LIST CROSSDEVICE_DEPENDENCIES)
    list(APPEND CROSSDEVICE_PC_REQUIRES_PRIVATE ${module})
  endif()
endforeach()
set(CROSSDEVICE_PC_LIBS_PRIVATE "-pthread")
if("CUDA::cudart_static" IN_LIST CROSSDEVICE_DEPENDENCIES)
  string(APPEND CROSSDEVICE_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
list(JOIN CROSSDEVICE_PC_REQUIRES_PRIVATE ", " CROSSDEVICE_PC_REQUIRES_PRIVATE)

install(EXPORT crossdevice-targets NAMESPACE crossdevice:: DESTINATION "${CROSSDEVICE_CMAKE_DIR}")
configure_package_config_file(cmake/crossdevice-config.cmake.in "${PROJECT_BINARY_DIR}/crossdevice-config.cmake"
                              INSTALL_DESTINATION "${CROSSDEVICE_CMAKE_DIR}")
# While the major version is 0 every minor version may change the ABI.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/crossdevice-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/crossdevice-config.cmake" "${PROJECT_BINARY_DIR}/crossdevice-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/crossdevice-dependencies.cmake" DESTINATION "${CROSSDEVICE_CMAKE_DIR}")

# The prefix is found from where the file lies, so a moved tree still works.
file(RELATIVE_PATH CROSSDEVICE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" CROSSDEVICE_PC_PREFIX "${CROSSDEVICE_PC_PREFIX}")
configure_file(cmake/crossdevice.pc.in "${PROJECT_BINARY_DIR}/crossdevice.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/crossdevice.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME crossdevice)
  set(CPACK_PACKAGE_VENDOR crossdevice)
  set(CPACK_PACKAGE_CONTACT "The crossdevice authors <maintainers@crossdevice.invalid>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "dataset-fashion-mnist, iproute2")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # needs dpkg-dev; a package without its dependencies would be worse than none
  include(CPack)
endif()
