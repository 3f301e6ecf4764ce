// Plans reckon with the bytes that reducers send.
#include "transport/replicas/traffic.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/bench/transport/replicas/queued_replicas.h"
#include "two_replicas.h"

namespace longhaul::replicas {
namespace {

class Traffic : public ::testing::TestWithParam<std::tuple<uint32_t, const char*, const char*>> {};

// What replica 0 sends all others, counted; and as planned.
TEST_P(Traffic, IsThatOfAReducer) {
  const auto& [replicas, gradients, parameters] = GetParam();
  const std::vector<ReplicatedParameter> list = {
      {.name = "w", .elements = 40000, .may_be_sparse = true},
      {.name = "v", .elements = 9000},
      {.name = "b", .elements = 70}};
  const LayoutOptions options{.replicas = replicas,
                              .gradients = Must(ParseGradients(gradients)),
                              .parameters = Must(ParseParameters(parameters)),
                              .bucket_elements = 16384};
  std::vector<std::vector<float>> values;
  for (const auto& one : list) values.emplace_back(one.elements);
  std::vector<std::vector<std::vector<float>>> given(replicas, values), held(replicas, values);
  uint32_t state = 1;
  for (auto& of_replica : given) {
    for (auto& of_parameter : of_replica) {
      for (float& value : of_parameter) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
      }
    }
  }
  const std::vector<std::span<const float>> begin(values.begin(), values.end());
  QueuedReplicas queued(list, options, begin, 1);
  queued.Step(
      1,
      [&](uint32_t r) {
        std::vector<ParameterMemory> memory;
        for (size_t k = 0; k < list.size(); ++k) memory.push_back({given[r][k], held[r][k]});
        return memory;
      },
      [](uint32_t, uint32_t, std::span<const OwnPiece>) {});
  const Layout layout = Must(Layout::Make(list, options));
  uint64_t planned = 0, of_parameters = 0;
  for (uint32_t to = 1; to < replicas; ++to) {
    planned += UsualTraffic(layout, 0, to).total();
    of_parameters += UsualTraffic(layout, 0, to).parameters;
  }
  EXPECT_EQ(of_parameters, queued.reducer(0).sent().parameters);
  const auto counted = static_cast<double>(queued.reducer(0).sent().total());
  if (std::string(gradients).starts_with("tagc")) {
    EXPECT_NEAR(static_cast<double>(planned), counted, 0.1 * counted);
  } else {
    EXPECT_EQ(static_cast<double>(planned), counted);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Traffic,
                         ::testing::Combine(::testing::Values(2u, 3u, 5u),
                                            ::testing::Values("none", "bf16", "sdp4bit",
                                                              "tagc:keep=0.05,least=1000"),
                                            ::testing::Values("fp32", "bf16", "difference4")));

}  // namespace
}  // namespace longhaul::replicas
