/// The library's version is that of its headers, as a number and as text.
// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/version.h"

#include <string>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

TEST(VersionTest, LibraryAndHeadersAgree) { EXPECT_EQ(library_version(), CROSSDEVICE_VERSION); }

TEST(VersionTest, TheTextHasTheThreePartsWithDots) {
  const std::string expected = std::to_string(CROSSDEVICE_VERSION_MAJOR) + "." +
                               std::to_string(CROSSDEVICE_VERSION_MINOR) + "." +
                               std::to_string(CROSSDEVICE_VERSION_PATCH);
  EXPECT_EQ(library_version_string(), expected);
}

}  // namespace
}  // namespace crossdevice
