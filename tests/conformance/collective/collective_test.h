// The suite's fixture: a group of rank threads of the backend under test.
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/conformance/collective/group.h"

namespace longhaul::collective {

struct UnderTest {
  const Backend* backend = nullptr;
  uint32_t size = 1;
};

// Every backend with each of these sizes that it can have.
inline std::vector<UnderTest> WithSizes(const std::vector<uint32_t>& sizes) {
  std::vector<UnderTest> all;
  for (const Backend& backend : Backends()) {
    for (const uint32_t size : sizes) {
      if (size <= backend.max_ranks) all.push_back({&backend, size});
    }
  }
  return all;
}

inline std::string NameOf(const ::testing::TestParamInfo<UnderTest>& info) {
  return fmt::format("{}_{}", info.param.backend->name, info.param.size);
}

class CollectiveTest : public ::testing::TestWithParam<UnderTest> {
 protected:
  const Backend& backend() const { return *GetParam().backend; }
  uint32_t size() const { return GetParam().size; }

  // `body` on a thread for each rank of a new group, and waits for all.
  void OnRanks(const std::function<void(Rank&)>& body, const RankSettings& settings = {}) {
    auto rendezvous = Rendezvous::Open();
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
    std::vector<std::thread> threads;
    for (uint32_t number = 0; number < size(); ++number) {
      threads.emplace_back([&, number] {
        auto rank = Rank::Join(backend(), (*rendezvous)->id(), {number, size()}, settings);
        ASSERT_TRUE(rank.ok()) << rank.status();
        body(**rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace longhaul::collective
