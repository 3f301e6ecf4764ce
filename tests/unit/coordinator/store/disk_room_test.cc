// The reserve is given up and made again as the disk fills and empties.
#include "coordinator/store/disk_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class DiskRoomTest : public ::testing::Test {
 protected:
  std::unique_ptr<DiskRoom> Open() {
    return DiskRoom::Open(folder_.path(), [this](const std::string&) -> StatusOr<DiskRoom::Space> {
      return DiskRoom::Space{.capacity = uint64_t{1} << 30, .available = left_};
    });
  }
  bool HasReserve() const {
    std::error_code error;
    return std::filesystem::file_size(folder_.path() + "/reserve", error) == kReserveBytes;
  }

  const testing::TempDir folder_;
  uint64_t left_ = uint64_t{512} << 20;
};

TEST_F(DiskRoomTest, KeepsARealReserve) {
  const auto room = Open();
  EXPECT_TRUE(HasReserve());
  EXPECT_FALSE(room->full());
  EXPECT_EQ(room->capacity(), uint64_t{1} << 30);
  EXPECT_TRUE(room->MayTake(left_ - kKeptFreeBytes).ok());
  const Status refused = room->MayTake(left_ - kKeptFreeBytes + 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("longhaul rm RUN"));
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("longhaul gc"));
}

TEST_F(DiskRoomTest, GivesItUpAndMakesItAgain) {
  const auto room = Open();
  left_ = 1 << 20;
  EXPECT_TRUE(room->Check());
  EXPECT_FALSE(HasReserve());
  EXPECT_FALSE(room->MayTake(0).ok());
  left_ = kReserveBytes;  // what it has given up
  EXPECT_TRUE(room->Check());
  EXPECT_FALSE(HasReserve());
  left_ = 4 * kReserveBytes;
  EXPECT_FALSE(room->Check());
  EXPECT_TRUE(HasReserve());
  EXPECT_TRUE(room->MayTake(0).ok());
}

TEST_F(DiskRoomTest, AFullDiskGetsRoomForAStart) {
  ASSERT_TRUE(Open() != nullptr);
  left_ = 0;
  const auto room = Open();
  EXPECT_TRUE(room->full());
  EXPECT_FALSE(HasReserve());
}

TEST_F(DiskRoomTest, ARefusedWriteCountsWhateverTheDiskSays) {
  left_ = 3 * kReserveBytes / 2;
  const auto room = Open();
  EXPECT_FALSE(HasReserve());  // there was no room for one
  EXPECT_TRUE(room->full());
  left_ = 2 * kReserveBytes;
  EXPECT_FALSE(room->Check());
  left_ = kReserveBytes;
  room->GiveUp();
  EXPECT_FALSE(HasReserve());
  EXPECT_TRUE(room->full());
}

}  // namespace
}  // namespace longhaul::coordinator
