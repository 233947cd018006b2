// SPDX-License-Identifier: Apache-2.0
/// Tests of train/idx_file.h and train/data_set.h with small files made here.
#include "train/idx_file.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "bench/small_data_set.h"
#include "train/data_set.h"

namespace crossdevice::train {
namespace {

using Bytes = std::vector<std::uint8_t>;

class IdxFileTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;

  std::string refusal(const Bytes& content) {
    const auto path = directory_.path() / "file";
    write_bytes(path, content);
    try {
      (void)read_idx_file(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(IdxFileTest, ReadsDimensionsAndBytes) {
  const auto path = directory_.path() / "file";
  write_bytes(path, {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6});
  const IdxArray array = read_idx_file(path);
  EXPECT_EQ(array.dims, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(array.bytes, (Bytes{1, 2, 3, 4, 5, 6}));
}

TEST_F(IdxFileTest, ReadsCompressedFilesToo) {
  const auto path = directory_.path() / "file.gz";
  write_compressed(path, idx_bytes({300}, Bytes(300, 7)));
  const IdxArray array = read_idx_file(path);
  EXPECT_EQ(array.dims, (std::vector<std::size_t>{300}));
  EXPECT_EQ(array.bytes, Bytes(300, 7));
}

TEST_F(IdxFileTest, ReadsAnArrayWithoutElements) {
  const auto path = directory_.path() / "file";
  write_bytes(path, idx_bytes({0}, {}));
  EXPECT_TRUE(read_idx_file(path).bytes.empty());
}

TEST_F(IdxFileTest, RefusesWhatIsNoIdxFileOfBytes) {
  EXPECT_NE(
      refusal({1, 2, 3, 4}).find("not an idx file of unsigned bytes: it begins with 01 02 03 04"),
      std::string::npos);
  EXPECT_NE(refusal({0, 0, 0x0D, 1, 0, 0, 0, 0}).find("not an idx file"),
            std::string::npos);  // floats
  EXPECT_NE(refusal({0, 0, 8, 0}).find("not an idx file"), std::string::npos);
}

TEST_F(IdxFileTest, RefusesFilesThatEndEarlyOrLate) {
  EXPECT_NE(refusal({}).find("ends within its header"), std::string::npos);
  EXPECT_NE(refusal({0, 0, 8, 1, 0, 0}).find("ends within its header"), std::string::npos);
  EXPECT_NE(refusal({0, 0, 8, 1, 0, 0, 0, 3, 1, 2}).find("ends within its elements"),
            std::string::npos);
  EXPECT_NE(refusal({0, 0, 8, 1, 0, 0, 0, 1, 1, 2}).find("goes on behind its data"),
            std::string::npos);
}

TEST_F(IdxFileTest, RefusesAHeaderThatClaimsMoreThanMemory) {
  EXPECT_NE(refusal({0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
                .find("more than 4 GiB"),
            std::string::npos);
}

TEST_F(IdxFileTest, RefusesADamagedArchive) {
  const auto path = directory_.path() / "file.gz";
  write_compressed(path, idx_bytes({5000}, Bytes(5000, 3)));
  Bytes content = read_bytes(path);
  content.resize(content.size() / 2);
  EXPECT_NE(refusal(content), "");
}

TEST_F(IdxFileTest, RefusesAnArchiveWithoutItsChecksum) {
  const auto path = directory_.path() / "file.gz";
  write_compressed(path, idx_bytes({5000}, Bytes(5000, 3)));
  const Bytes whole = read_bytes(path);
  for (const std::size_t missing : {1U, 4U, 8U}) {
    EXPECT_NE(refusal(Bytes(whole.begin(), whole.end() - static_cast<std::ptrdiff_t>(missing))), "")
        << missing;
  }
}

/// The memory is taken as the elements come, so a small file cannot ask for a large machine.
TEST_F(IdxFileTest, AHeaderThatPromisesMuchCostsNothing) {
  const auto peak_kib = [] {
    rusage usage{};
    EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
  };
  const long before = peak_kib();
  EXPECT_NE(refusal({0, 0, 8, 1, 0x40, 0, 0, 0, 1, 2, 3}).find("ends within its elements"),
            std::string::npos);
  EXPECT_LT(peak_kib() - before, 128 << 10);
}

TEST_F(IdxFileTest, RefusesAFileThatIsNotThere) {
  EXPECT_THROW((void)read_idx_file(directory_.path() / "nothing"), std::runtime_error);
}

class DataSetTest : public IdxFileTest {
 protected:
  std::string refusal() {
    try {
      (void)read_data_set(directory_.path());
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(DataSetTest, ReadsTheFourFiles) {
  write_small_data_set(directory_.path(), {.num_train = 30, .num_test = 20});
  const DataSet data = read_data_set(directory_.path());
  EXPECT_EQ(data.train.size(), 30U);
  EXPECT_EQ(data.test.size(), 20U);
  EXPECT_EQ(data.train.pixels_per_image, 16U);
  EXPECT_EQ(data.train.image(29).size(), 16U);
}

TEST_F(DataSetTest, TruncateKeepsTheFirstImages) {
  write_small_data_set(directory_.path(), {.num_train = 30, .num_test = 20});
  DataSet data = read_data_set(directory_.path());
  const Bytes labels = data.train.labels;
  data.train.truncate(7);
  EXPECT_EQ(data.train.size(), 7U);
  EXPECT_EQ(data.train.pixels.size(), 7U * 16);
  EXPECT_EQ(data.train.labels, Bytes(labels.begin(), labels.begin() + 7));
  data.train.truncate(100);
  EXPECT_EQ(data.train.size(), 7U);
}

TEST_F(DataSetTest, SaysHowToInstallWhatIsMissing) {
  const std::string message = refusal();
  EXPECT_NE(message.find("apt-get install dataset-fashion-mnist"), std::string::npos) << message;
  EXPECT_NE(message.find("--data"), std::string::npos) << message;
}

TEST_F(DataSetTest, RefusesFilesThatDoNotFitTogether) {
  write_small_data_set(directory_.path(), {.num_train = 30, .num_test = 20});
  const auto labels = directory_.path() / "train-labels-idx1-ubyte.gz";
  write_compressed(labels, idx_bytes({29}, Bytes(29, 0)));
  EXPECT_NE(refusal().find("has 29 labels for 30 images"), std::string::npos);
  write_compressed(labels, idx_bytes({30}, Bytes(30, 10)));
  EXPECT_NE(refusal().find("holds the class 10"), std::string::npos);
  write_compressed(labels, idx_bytes({15, 2}, Bytes(30, 0)));
  EXPECT_NE(refusal().find("has 2 dimensions, expected 1"), std::string::npos);
}

TEST_F(DataSetTest, RefusesImagesWithoutPixels) {
  write_small_data_set(directory_.path(), {.num_train = 30, .num_test = 20});
  write_compressed(directory_.path() / "train-images-idx3-ubyte.gz", idx_bytes({30, 4, 0}, {}));
  EXPECT_NE(refusal().find("train-images-idx3-ubyte.gz: holds images without pixels"),
            std::string::npos);
}

TEST_F(DataSetTest, NormalisedPixelsAscendAroundTheMean) {
  const auto& table = normalised_pixels();
  EXPECT_NEAR(table[0], -0.8102F, 1e-3);
  EXPECT_NEAR(table[255], 2.0227F, 1e-3);
  for (std::size_t i = 1; i < table.size(); ++i) EXPECT_GT(table[i], table[i - 1]);
}

}  // namespace
}  // namespace crossdevice::train
