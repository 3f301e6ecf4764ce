#include "transport/collective/switcher/cache.h"

#include <gmock/gmock.h>

#include <string>

namespace longhaul::collective::switcher {
namespace {

constexpr char kKey[] = "2 ranks\nnative: nccl 2.28.9\n";

std::vector<Probe> Example() {
  return {{.op = Op::kAllGather,
           .dtype = Dtype::kBf16,
           .points = {{16384, {1.5e-5, 0}}, {262144, {2e-5, 4e-5}}},
           .ratios = {1, 1.41}}};
}

TEST(CacheTest, ComesBackAsItWas) {
  const auto read = ParseCache(FormatCache(kKey, Example()), kKey, 2);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1);
  const Probe& probe = read->front();
  EXPECT_EQ(probe.op, Op::kAllGather);
  EXPECT_EQ(probe.dtype, Dtype::kBf16);
  EXPECT_EQ(probe.ratios, (std::vector<double>{1, 1.41}));
  ASSERT_EQ(probe.points.size(), 2);
  EXPECT_EQ(probe.points[1].bytes, 262144);
  EXPECT_EQ(probe.points[1].seconds, (std::vector<double>{2e-5, 4e-5}));
}

TEST(CacheTest, FilesOfOtherKeysHaveOtherNames) {
  EXPECT_EQ(CachePath("/c", kKey), CachePath("/c", kKey));
  EXPECT_NE(CachePath("/c", kKey), CachePath("/c", "3 ranks"));
}

TEST(CacheTest, RefusesWhatIsNotItsOwn) {
  const std::string good = FormatCache(kKey, Example());
  EXPECT_FALSE(ParseCache(good, "another key", 2).ok());
  EXPECT_FALSE(ParseCache(good, kKey, 3).ok());
  std::string other_format = good;
  other_format.replace(other_format.find("\"format\": 1"), 11, "\"format\": 2");
  EXPECT_FALSE(ParseCache(other_format, kKey, 2).ok());
}

// Every text that one byte less or one other byte makes is read or refused, and ends nothing.
TEST(CacheTest, DamageIsRefusedOrReadsAsNumbers) {
  const std::string good = FormatCache(kKey, Example());
  for (size_t at = 0; at + 1 < good.size(); ++at) {  // but for the end of the line
    EXPECT_FALSE(ParseCache(good.substr(0, at), kKey, 2).ok()) << at;
    for (const char other : {'x', '-', '"', '[', '9'}) {
      std::string damaged = good;
      damaged[at] = other;
      const auto read = ParseCache(damaged, kKey, 2);
      if (!read.ok()) continue;
      for (const Probe& probe : *read) {
        EXPECT_LE(probe.op, Op::kAllToAll);
        for (const Point& point : probe.points) EXPECT_GT(point.seconds[0], 0) << damaged;
      }
    }
  }
}

TEST(CacheTest, RefusesNumbersThatCannotBe) {
  auto changed = [](auto change) {
    std::vector<Probe> probes = Example();
    change(probes[0]);
    return ParseCache(FormatCache(kKey, probes), kKey, 2).ok();
  };
  EXPECT_TRUE(changed([](Probe&) {}));
  EXPECT_FALSE(changed([](Probe& probe) { probe.points[0].seconds[1] = 2e-205; }));
  EXPECT_FALSE(changed([](Probe& probe) { probe.points[0].bytes = 0; }));
  EXPECT_FALSE(changed([](Probe& p) { p.points[1].bytes = 16384; }));
  EXPECT_FALSE(changed([](Probe& p) { p.points[0].seconds[0] = 0; }));
  EXPECT_FALSE(changed([](Probe& p) { p.points[0].seconds[1] = -1; }));
  EXPECT_FALSE(changed([](Probe& p) { p.ratios[1] = 0; }));
  EXPECT_FALSE(changed([](Probe& p) { p.points.clear(); }));
  EXPECT_FALSE(changed([](Probe& p) { p.op = Op::kBarrier; }));
}

}  // namespace
}  // namespace longhaul::collective::switcher
