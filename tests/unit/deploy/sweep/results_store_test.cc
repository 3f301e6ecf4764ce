#include "deploy/sweep/results_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/file.h"
#include "base/pending_file.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/deploy/sweep/sample.h"

namespace {

// How many more changes of files this process makes before it is killed, as by kill -9 at that very
// moment; below 0: it is not.
std::atomic<int> changes_left{-1};

bool TimeToDie() {
  return changes_left.load() >= 0 && changes_left.fetch_sub(1) == 0;
}

}  // namespace

// Instead of the C library's, in this program.
extern "C" ssize_t write(int fd, const void* bytes, size_t count) {
  if (TimeToDie()) {
    syscall(SYS_write, fd, bytes, count / 2);
    raise(SIGKILL);
  }
  return syscall(SYS_write, fd, bytes, count);
}
extern "C" int fsync(int fd) {
  if (TimeToDie()) raise(SIGKILL);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (TimeToDie()) raise(SIGKILL);
  return static_cast<int>(syscall(SYS_rename, from, to));
}

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

// Few points, for the many kills.
SweepResults Some() {
  SweepResults results = Sample();
  results.points.resize(3);
  return results;
}

SweepResults Fresh() {
  SweepResults results = Some();
  for (PointResult& point : results.points) {
    point = SampleWaiting(point.rate_bits_per_second, point.links, point.schedule);
  }
  return results;
}

std::string Folder(const testing::TempDir& temporary) {
  return temporary.path() + "/out";
}

std::unique_ptr<ResultsStore> OpenOrFail(const testing::TempDir& temporary) {
  auto store = ResultsStore::Open(Folder(temporary), Fresh(), /*retry_failed=*/false);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

std::string OpenProblem(const testing::TempDir& temporary, const SweepResults& fresh) {
  return std::string(Message(ResultsStore::Open(Folder(temporary), fresh, false).status()));
}

TEST(ResultsStore, GoesOnWhereItWas) {
  const testing::TempDir temporary;
  const SweepResults measured = Some();
  {
    const auto store = OpenOrFail(temporary);
    EXPECT_FALSE(store->goes_on());
    ASSERT_TRUE(store->Record(measured.points[0]).ok());
    PointResult failed = SampleWaiting(20'000'000, "fp32", "1f1b");
    failed.state = PointState::kRunFailed;
    failed.reason = "it died";
    ASSERT_TRUE(store->Record(failed).ok());
  }
  {
    const auto store = OpenOrFail(temporary);
    EXPECT_TRUE(store->goes_on());
    EXPECT_TRUE(store->results().points[0] == measured.points[0]);
    EXPECT_EQ(store->results().points[1].state, PointState::kRunFailed);
    EXPECT_EQ(store->results().points[2].state, PointState::kWaiting);
  }
  const auto again = ResultsStore::Open(Folder(temporary), Fresh(), /*retry_failed=*/true);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->results().points[0].state, PointState::kMeasured);
  EXPECT_EQ((*again)->results().points[1].state, PointState::kWaiting);
}

TEST(ResultsStore, WhatIsPossibleIsSaidAnew) {
  const testing::TempDir temporary;
  SweepResults fresh = Fresh();
  fresh.points[0].state = PointState::kImpossible;
  {
    const auto store = ResultsStore::Open(Folder(temporary), fresh, false);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Write().ok());
  }
  EXPECT_EQ(OpenOrFail(temporary)->results().points[0].state, PointState::kWaiting);
}

TEST(ResultsStore, AnotherSweepIsRefused) {
  const testing::TempDir temporary;
  ASSERT_TRUE(OpenOrFail(temporary)->Write().ok());
  SweepResults other = Fresh();
  other.identity[0].second = "1gbit";
  const std::string problem = OpenProblem(temporary, other);
  EXPECT_THAT(problem, HasSubstr("rates: '20mbit, 5mbit' is now '1gbit'"));
  EXPECT_THAT(problem, HasSubstr("Give another --out, or make the sweep what it was"));
}

TEST(ResultsStore, OneSweepAtATime) {
  const testing::TempDir temporary;
  const auto store = OpenOrFail(temporary);
  EXPECT_THAT(OpenProblem(temporary, Fresh()), HasSubstr("another `longhaul sweep` is at work in"));
}

TEST(ResultsStore, OtherFilesAreNotOverwritten) {
  const testing::TempDir temporary;
  ASSERT_TRUE(OpenOrFail(temporary)->Write().ok());
  const std::string path = Folder(temporary) + "/results.json";
  ASSERT_TRUE(WriteFileAtomic(path, "{\"mine\": 1}").ok());
  EXPECT_THAT(OpenProblem(temporary, Fresh()),
              HasSubstr("is no results file that this version can go on with"));
  EXPECT_EQ(ReadFile(path).value_or(""), "{\"mine\": 1}");
}

TEST(ResultsStore, UnknownPointsAreRefused) {
  const testing::TempDir temporary;
  EXPECT_FALSE(OpenOrFail(temporary)->Record(SampleWaiting(1, "x", "y")).ok());
}

size_t FilesIn(const std::string& folder) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    ++count;
  }
  return count;
}

// Records all points in another process, which is killed at its `deadly`-th change of a file.
// Whether it was.
bool RecordAllUnlessKilled(const testing::TempDir& temporary, int deadly) {
  const pid_t child = fork();
  if (child == 0) {
    changes_left = deadly;
    const auto store = ResultsStore::Open(Folder(temporary), Fresh(), false);
    if (!store.ok()) _exit(3);
    for (const PointResult& point : Some().points) {
      const auto& known = (*store)->results().points;
      const auto mine = std::ranges::find(known, point.id, &PointResult::id);
      if (mine->state != PointState::kWaiting) continue;
      if (!(*store)->Record(point).ok()) _exit(4);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return false;
}

TEST(ResultsStore, AKillAtAnyMomentLosesNothingThatWasRecorded) {
  bool killed = true;
  int deadly = 0;
  for (; killed; ++deadly) {
    const testing::TempDir temporary;
    killed = RecordAllUnlessKilled(temporary, deadly);
    // What is there is whole: a prefix of the points, each as it was measured.
    size_t recorded = 0;
    {
      const auto store = OpenOrFail(temporary);
      ASSERT_NE(store, nullptr) << "killed at change " << deadly;
      const SweepResults& results = store->results();
      const SweepResults sample = Some();
      recorded = results.Count(PointState::kMeasured);
      for (size_t i = 0; i < recorded; ++i) EXPECT_TRUE(results.points[i] == sample.points[i]);
      EXPECT_EQ(results.Count(PointState::kWaiting), sample.points.size() - recorded);
    }
    // It goes on from there to the end, and nothing else is left in the folder.
    EXPECT_FALSE(RecordAllUnlessKilled(temporary, -1));
    EXPECT_EQ(OpenOrFail(temporary)->results().Count(PointState::kMeasured), Some().points.size());
    EXPECT_EQ(FilesIn(Folder(temporary)), 4u) << "killed at change " << deadly;
  }
  // Three files a point, each written, synced and renamed, and the folder synced.
  EXPECT_GE(deadly, static_cast<int>(Some().points.size()) * 3 * 3);
}

}  // namespace
}  // namespace longhaul::cli
