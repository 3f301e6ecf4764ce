// Data that is fetched from the one of several coordinators that serves.
#include "worker/epoch/blob_fetcher.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/worker/agent/fake_coordinator.h"

namespace longhaul::worker {
namespace {

TEST(BlobFetcherTest, GoesOnWithTheNextCoordinator) {
  const ::longhaul::testing::TempDir folder;
  const std::string data(100'000, 'x');
  FakeCoordinator down, serving;
  down.Start();
  down.Stop();
  serving.blobs[Sha256Hex(data)] = data;
  serving.Start();
  const auto access = Access::PlainOfSeveral({down.address(), serving.address()}, "");
  BlobFetcher fetcher(access, folder.path() + "/blobs");
  const StatusOr<std::string> path =
      fetcher.Fetch(Sha256Hex(data), Deadline::After(absl::Seconds(30)), [] { return false; });
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*ReadFile(*path), data);
  EXPECT_EQ(access->address(), serving.address());
}

TEST(BlobFetcherTest, GivesUpWhereNoneServes) {
  const ::longhaul::testing::TempDir folder;
  FakeCoordinator one, other;
  for (FakeCoordinator* coordinator : {&one, &other}) {
    coordinator->Start();
    coordinator->Stop();
  }
  BlobFetcher fetcher(Access::PlainOfSeveral({one.address(), other.address()}, ""),
                      folder.path() + "/blobs");
  int asked = 0;
  const auto cancelled = [&asked] { return ++asked > 4; };
  EXPECT_TRUE(absl::IsCancelled(
      fetcher.Fetch(Sha256Hex("x"), Deadline::After(absl::Seconds(30)), cancelled).status()));
  EXPECT_TRUE(absl::IsUnavailable(
      fetcher.Fetch(Sha256Hex("x"), Deadline::After(absl::Milliseconds(300)), [] { return false; })
          .status()));
}

}  // namespace
}  // namespace longhaul::worker
