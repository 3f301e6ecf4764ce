#include "worker/measuring/device_id.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

class GpuUuidTest : public ::testing::Test {
 protected:
  // As the driver writes them.
  void Add(const std::string& bus, const std::string& uuid, int minor) {
    const std::filesystem::path gpu = std::filesystem::path(folder_.path()) / bus;
    std::filesystem::create_directory(gpu);
    std::ofstream(gpu / "information") << "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 42\n"
                                       << "GPU UUID: \t " << uuid << "\nBus Location: \t " << bus
                                       << "\nDevice Minor: \t " << minor << "\n";
  }
  std::string Of(uint32_t index, const std::string& visible) const {
    return GpuUuid(index, visible, folder_.path());
  }

  ::longhaul::testing::TempDir folder_;
};

TEST_F(GpuUuidTest, GpusAreCountedByTheirPlaceOnTheBus) {
  Add("0000:9d:00.0", "GPU-bbbb", 0);
  Add("0000:1a:00.0", "GPU-aaaa", 1);
  EXPECT_EQ(Of(0, ""), "GPU-aaaa");
  EXPECT_EQ(Of(1, ""), "GPU-bbbb");
  EXPECT_EQ(Of(2, ""), "");
}

TEST_F(GpuUuidTest, OnlyVisibleOnesAreCounted) {
  Add("0000:1a:00.0", "GPU-aaaa", 0);
  Add("0000:9d:00.0", "GPU-bbbb", 1);
  EXPECT_EQ(Of(0, "1"), "GPU-bbbb");
  EXPECT_EQ(Of(1, "1, 0"), "GPU-aaaa");
  EXPECT_EQ(Of(0, "GPU-bb"), "GPU-bbbb");
  EXPECT_EQ(Of(1, "0"), "");
  EXPECT_EQ(Of(0, "MIG-1234"), "");
}

TEST_F(GpuUuidTest, WithoutTheDriversFilesNothingIsSaid) {
  EXPECT_EQ(Of(0, ""), "");
  EXPECT_EQ(GpuUuid(0, "", folder_.path() + "/none"), "");
}

}  // namespace
}  // namespace longhaul::worker
