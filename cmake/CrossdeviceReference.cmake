# SPDX-License-Identifier: Apache-2.0
# The target docs: the API reference in <build>/reference/html, by doxygen, where that is installed. A warning is an error.
find_program(CROSSDEVICE_DOXYGEN doxygen)
find_program(CROSSDEVICE_SED sed)
mark_as_advanced(CROSSDEVICE_DOXYGEN CROSSDEVICE_SED)
if(NOT PROJECT_IS_TOP_LEVEL OR NOT CROSSDEVICE_DOXYGEN OR NOT CROSSDEVICE_SED)
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
