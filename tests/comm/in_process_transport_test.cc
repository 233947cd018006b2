// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/in_process_transport.h"

#include <gtest/gtest.h>

#include "comm/transport_conformance.h"

namespace crossdevice::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(InProcess, TransportConformance,
                         ::testing::Values(TransportCase{"in_process", make_in_process_transports}),
                         [](const auto& each) { return each.param.name; });

TEST(InProcessTransportTest, ThereIsAtLeastOneMember) {
  EXPECT_THROW((void)make_in_process_transports(0), ValueError);
  EXPECT_THROW((void)make_in_process_transports(-1), ValueError);
  EXPECT_EQ(make_in_process_transports(1).size(), 1);
}

}  // namespace
}  // namespace crossdevice::testing
