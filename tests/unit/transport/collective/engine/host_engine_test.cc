#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "transport/collective/engine/engine.h"

namespace longhaul::collective {
namespace {

TEST(HostEngineTest, JoinsParts) {
  const auto engine = Engine::ForHost();
  const std::array<float, 3> one = {1, -2, 3}, other = {4, 5, -6};
  const std::array<const void*, 2> parts = {one.data(), other.data()};
  std::array<float, 3> out{};
  ASSERT_TRUE(engine->Sum(parts, out.size(), Dtype::kF32, out.data(), {}).ok());
  EXPECT_EQ(out, (std::array<float, 3>{5, 3, -3}));
  ASSERT_TRUE(engine->Largest(parts, out.size(), Dtype::kF32, out.data(), {}).ok());
  EXPECT_EQ(out, (std::array<float, 3>{4, 5, 3}));
}

// As on a device.
TEST(HostEngineTest, RefusesWhatCannotBeSummed) {
  const auto engine = Engine::ForHost();
  const std::array<float, 1> one = {1};
  std::array<float, 1> out = {7};
  const std::vector<const void*> too_many(kMaxParts + 1, one.data());
  const auto refused = [&](std::span<const void* const> parts, Dtype dtype) {
    return absl::IsInvalidArgument(engine->Sum(parts, 1, dtype, out.data(), {})) &&
           absl::IsInvalidArgument(engine->Largest(parts, 1, dtype, out.data(), {}));
  };
  EXPECT_TRUE(refused({}, Dtype::kF32));
  EXPECT_TRUE(refused(too_many, Dtype::kF32));
  EXPECT_TRUE(refused(std::span(too_many).first(1), Dtype::kBytes));
  EXPECT_EQ(out[0], 7);
  EXPECT_FALSE(refused(std::span(too_many).first(kMaxParts), Dtype::kF32));
}

}  // namespace
}  // namespace longhaul::collective
