// SPDX-License-Identifier: Apache-2.0
// The one stream of asynchronous operations.
#include "crossdevice/device/progress.h"

#include "crossdevice/device/shutdown.h"

namespace crossdevice {
namespace {

Stream& make_progress_stream() {
  // Never destroyed: operations may be launched until the process ends. shutdown() joins its thread.
  static Stream& stream = *new Stream(Device("CPU:0"), "xdev-progress");
  detail::stop_at_shutdown([] { stream.stop(); });
  return stream;
}

}  // namespace

Stream& progress_stream() {
  static Stream& stream = make_progress_stream();
  return stream;
}

}  // namespace crossdevice
