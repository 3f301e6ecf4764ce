#include "base/work_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <mutex>
#include <vector>

namespace longhaul {
namespace {

using ::testing::ElementsAre;

Deadline Soon() {
  return Deadline::After(absl::Seconds(30));
}

TEST(WorkThreadsTest, WorkOfOtherKeysDoesNotWait) {
  WorkThreads threads(2);
  std::latch both(2);  // two that are under way at once
  std::latch done(2);
  for (const char* key : {"one", "other"}) {
    threads.Add(key, [&] {
      both.arrive_and_wait();
      done.count_down();
    });
  }
  done.wait();
  EXPECT_TRUE(threads.Stop(Soon()));
}

TEST(WorkThreadsTest, WorkOfOneKeyRunsInOrderAndAlone) {
  WorkThreads threads(4);
  std::vector<int> order;  // without a lock: no two are under way at once
  std::latch done(100);
  for (int i = 0; i < 100; ++i) {
    threads.Add("key", [&, i] {
      order.push_back(i);
      done.count_down();
    });
  }
  done.wait();
  ASSERT_TRUE(threads.Stop(Soon()));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(WorkThreadsTest, WhatWaitsIsDroppedOnceByAStop) {
  WorkThreads threads(1);
  std::latch begun(1), may_end(1);
  std::mutex mutex;
  std::vector<std::string> said;
  const auto say = [&](const char* what) {
    return [&, what] {
      const std::lock_guard lock(mutex);
      said.emplace_back(what);
    };
  };
  threads.Add(
      "busy",
      [&] {
        begun.count_down();
        may_end.wait();
      },
      say("busy dropped"));
  begun.wait();
  threads.Add("waits", say("waits ran"), say("waits dropped"));
  EXPECT_FALSE(threads.Stop(Deadline::After(absl::ZeroDuration())));  // one is still under way
  threads.Add("late", say("late ran"), say("late dropped"));
  may_end.count_down();
  EXPECT_TRUE(threads.Stop(Soon()));
  EXPECT_THAT(said, ElementsAre("waits dropped", "late dropped"));
}

}  // namespace
}  // namespace longhaul
