// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/own_want.h"

#include <new>
#include <string>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {

bool is_want(const std::error_code& error) {
  // asio has a category of its own for the system's numbers, which std::errc does not know.
  const bool is_asios = std::string_view(error.category().name()) == "asio.system";
  const std::error_code known =
      is_asios ? std::error_code(error.value(), std::system_category()) : error;
  return known == std::errc::too_many_files_open ||
         known == std::errc::too_many_files_open_in_system ||
         known == std::errc::not_enough_memory || known == std::errc::no_buffer_space ||
         known == std::errc::resource_unavailable_try_again;
}

void rethrow_own_want(std::string_view doing) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw ResourceExhaustedError(std::string(doing) + ": this process has no memory for it");
  } catch (const std::system_error& error) {
    if (!is_want(error.code())) throw;
    throw ResourceExhaustedError(std::string(doing) + ": " + error.what());
  }
}

}  // namespace crossdevice::detail
