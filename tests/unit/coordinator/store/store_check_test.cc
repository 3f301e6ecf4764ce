// Damage of the store is found before it is needed.
#include "coordinator/store/store_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <utility>

#include "coordinator/store/store.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

bool GoOn() {
  return false;
}

class StoreCheckTest : public ::testing::Test {
 protected:
  StoreCheckTest() {
    const auto store = Store::Open(folder_.path()).value();
    v1::Event event;
    for (uint64_t sequence = 1; sequence <= 1000; ++sequence) {
      event.set_sequence(sequence);
      event.set_text("something that has happened, and what came of it");
      writes_.push_back(write::LogEvent{event});
    }
    EXPECT_TRUE(store->Apply(writes_).ok());
  }
  // Nobody has it open, so all is in this file. Its last page is one of many rows.
  void Damage() {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path_) - 4096));
    file << std::string(4096, '\xff');
  }

  testing::TempDir folder_;
  const std::string path_ = folder_.path() + "/store.db";
  std::vector<Write> writes_;
};

TEST_F(StoreCheckTest, AWholeStoreIsWholeWhileItIsUsed) {
  const auto store = Store::Open(folder_.path()).value();
  EXPECT_TRUE(CheckStore(path_, &GoOn).ok());
}

TEST_F(StoreCheckTest, DamageIsFoundAndTold) {
  Damage();
  const Status found = CheckStore(path_, &GoOn);
  EXPECT_TRUE(absl::IsDataLoss(found)) << found;
  EXPECT_THAT(found.ToString(), HasSubstr(path_));
  // Who ends the look has not found anything.
  EXPECT_TRUE(CheckStore(path_, [] { return true; }).ok());

  std::promise<Status> told;
  bool is_told = false;
  const StoreCheck check(path_, {.first = absl::ZeroDuration(), .pause = absl::Milliseconds(1)},
                         [&](const Status& why) {
                           if (!std::exchange(is_told, true)) told.set_value(why);
                         });
  EXPECT_TRUE(absl::IsDataLoss(told.get_future().get()));
  EXPECT_TRUE(absl::IsDataLoss(check.found()));
}

// A follower replaces the file.
TEST_F(StoreCheckTest, NobodyLooksWhileTheFileIsReplaced) {
  Damage();
  std::mutex replacing;
  std::unique_lock lock(replacing);
  std::promise<void> told;
  bool is_told = false;
  const StoreCheck check(
      path_, {.first = absl::ZeroDuration(), .pause = absl::Milliseconds(1)},
      [&](const Status&) {
        if (!std::exchange(is_told, true)) told.set_value();
      },
      &replacing);
  EXPECT_TRUE(check.found().ok());
  lock.unlock();
  told.get_future().get();
}

}  // namespace
}  // namespace longhaul::coordinator
