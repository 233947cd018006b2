# SPDX-License-Identifier: Apache-2.0
# The target docs: the API reference in <build>/reference/html, by doxygen; where that is not installed it says so and fails. A warning is an error.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
find_program(CROSSDEVICE_DOXYGEN doxygen)
find_program(CROSSDEVICE_SED sed)
mark_as_advanced(CROSSDEVICE_DOXYGEN CROSSDEVICE_SED)
set(crossdevice_docs_missing "")
if(NOT CROSSDEVICE_DOXYGEN)
  set(crossdevice_docs_missing "install doxygen: cmake/install-dependencies --with-tools")
elseif(NOT CROSSDEVICE_SED)
  set(crossdevice_docs_missing "install sed, through which doxygen reads the headers")
endif()
if(crossdevice_docs_missing)
  add_custom_target(docs COMMAND "${CMAKE_COMMAND}" -E echo "${crossdevice_docs_missing}" COMMAND "${CMAKE_COMMAND}" -E false COMMENT "API reference" VERBATIM)
  return()
endif()
set(CROSSDEVICE_DOCS_DIR "${PROJECT_BINARY_DIR}/reference")
configure_file(cmake/Doxyfile.in "${CROSSDEVICE_DOCS_DIR}/Doxyfile" @ONLY)
add_custom_target(
  docs
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${CROSSDEVICE_DOCS_DIR}/html" # pages of headers that are gone
  COMMAND "${CROSSDEVICE_DOXYGEN}" "${CROSSDEVICE_DOCS_DIR}/Doxyfile"
  COMMENT "API reference: ${CROSSDEVICE_DOCS_DIR}/html/index.html"
  VERBATIM)
