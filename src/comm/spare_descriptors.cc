// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/spare_descriptors.h"

#include <cerrno>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

namespace crossdevice::detail {

SpareDescriptors spare_descriptors(std::size_t wanted) {
  SpareDescriptors found;
  std::vector<int> opened;
  opened.reserve(wanted);
  while (opened.size() < wanted && found.error == 0) {
    const int descriptor = ::eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) found.error = errno;
    if (descriptor >= 0) opened.push_back(descriptor);
  }
  found.count = opened.size();
  for (const int each : opened) ::close(each);
  return found;
}

}  // namespace crossdevice::detail
