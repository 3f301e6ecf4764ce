// Memory that ranks share: what all see, and what a rank is told whose memory cannot be opened.
#include "transport/collective/mapped/region.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fake_gpu.h"
#include "tests/support/temp_dir.h"

namespace longhaul::collective::mapped {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = size_t{3} << 20;

Deadline Soon() {
  return Deadline::After(absl::Seconds(60));
}

cuda::Device DeviceOf(uint32_t rank) {
  return cuda::Device::Open(testing::FakeGpuTable(), rank).value();
}

// Each on a thread of its own, as the ranks of one group.
void OnMembers(const std::vector<std::function<void(Member&)>>& ranks) {
  const auto rendezvous = Rendezvous::Open().value();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Place place{rank, static_cast<uint32_t>(ranks.size())};
      const auto member = Member::Join(rendezvous->id(), place, Soon()).value();
      ranks[rank](*member);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Regions, WhatARankWritesAllRanksSee) {
  const auto body = [](Member& member) {
    const uint32_t rank = member.place().rank, size = member.place().size;
    const auto regions = ShareRegions(member, DeviceOf(rank), kBytes, Soon());
    ASSERT_TRUE(regions.ok()) << regions.status();
    ASSERT_EQ(regions->size(), size);
    for (const Region& region : *regions) {
      EXPECT_EQ(region.pages.size(), kBytes);
      EXPECT_EQ(region.host(rank * 8)[0], std::byte{0});
    }
    ASSERT_TRUE(member.Tell("", Soon()).ok());  // all have looked
    for (uint32_t owner = 0; owner < size; ++owner) {
      (*regions)[owner].dev(kBytes - 64)[rank] = static_cast<std::byte>(1 + 10 * rank + owner);
    }
    ASSERT_TRUE(member.Tell("", Soon()).ok());  // all have written
    for (uint32_t owner = 0; owner < size; ++owner) {
      for (uint32_t writer = 0; writer < size; ++writer) {
        EXPECT_EQ((*regions)[owner].host(kBytes - 64)[writer],
                  static_cast<std::byte>(1 + 10 * writer + owner));
      }
    }
  };
  OnMembers({body, body, body});
}

// What a rank may say that is not the memory it has made.
TEST(Regions, MemoryThatCannotBeOpenedIsRefused) {
  const ::longhaul::testing::TempDir folder;
  const std::string file = folder.path() + "/short";
  ASSERT_EQ(std::fclose(std::fopen(file.c_str(), "w")), 0);
  for (const std::string& word : {std::string(), std::string("/proc/1/fd/999 5"), file + " 1",
                                  std::string("/dev/zero 5"), std::string("/dev/zero")}) {
    OnMembers({[&](Member& member) {
                 const auto regions = ShareRegions(member, DeviceOf(0), kBytes, Soon());
                 EXPECT_EQ(regions.status().code(), absl::StatusCode::kFailedPrecondition) << word;
                 EXPECT_THAT(std::string(regions.status().message()),
                             AllOf(HasSubstr("memory that rank 1 shares"),
                                   HasSubstr("must be of one user")))
                     << word;
               },
               [&](Member& member) { ASSERT_TRUE(member.Tell(word, Soon()).ok()); }});
  }
}

}  // namespace
}  // namespace longhaul::collective::mapped
