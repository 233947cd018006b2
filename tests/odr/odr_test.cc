/// All public headers in two translation units: linking this program is the test.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "all_headers.h"

int version_seen_by_the_second_unit();

TEST(OdrTest, AllPublicHeadersLinkTwiceIntoOneProgram) {
  EXPECT_EQ(version_seen_by_the_second_unit(), CROSSDEVICE_VERSION);
}
