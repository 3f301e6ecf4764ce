#include "run/file/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kRun = R"(name: wan
model: { layers: 8, hidden: 256, heads: 8, context: 256 }
data: { text: [corpus/*.txt] }
train: { steps: 200, microbatches: 16 }
)";

constexpr std::string_view kTopology = R"(topology:
  links:
    - { between: [eu, us], rate: 100mbit, delay: 40ms, jitter: 2ms, loss: 0.1% }
    - { within: eu, rate: 1gbit }
  regions: { eu: [worker1, worker2], us: [worker3] }
)";

TopologySpec Expected() {
  return {{{"eu", {"worker1", "worker2"}}, {"us", {"worker3"}}},
          {{"eu", "us", 100'000'000, {absl::Milliseconds(40), absl::Milliseconds(2), 0.001}},
           {"eu", "eu", 1'000'000'000, {}}}};
}

std::string ErrorOf(std::string_view topology) {
  const auto spec = ParseTopologyFile(topology, "t.yaml");
  if (spec.ok()) return "no error";
  EXPECT_TRUE(absl::IsInvalidArgument(spec.status()));
  return std::string(Message(spec.status()));
}

// With regions a: [worker1], b: [worker2] on line 2 and `links` on line 3.
std::string ErrorOfLinks(std::string_view links) {
  return ErrorOf("topology:\n  regions: { a: [worker1], b: [worker2] }\n  links: " +
                 std::string(links));
}

TEST(Topology, IsPartOfARunFileOrAFileOfItsOwn) {
  const auto alone = ParseTopologyFile(kTopology, "t.yaml");
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(*alone, Expected());
  const std::string run = std::string(kRun) + std::string(kTopology);
  EXPECT_EQ(*ParseTopologyFile(run, "run.yaml"), Expected());
  const auto spec = ParseRunSpec(run, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->topology, Expected());
  EXPECT_FALSE(ParseRunSpec(kRun, "run.yaml", {})->topology.has_value());
  EXPECT_THAT(ErrorOf(kRun), HasSubstr("'topology' is missing"));
  // Nothing of a file is passed over.
  EXPECT_THAT(ErrorOf("topologie: {}\n" + std::string(kTopology)), HasSubstr("'topologie'"));
}

TEST(Topology, ToYamlRoundTrips) {
  auto spec = *ParseRunSpec(std::string(kRun) + std::string(kTopology), "run.yaml", {});
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    // Percentages that are no whole number of anything.
    const double percent = std::uniform_real_distribution<double>(0, 100)(random);
    spec.topology->links[0].quality.loss = percent / 100;
    spec.topology->links[0].quality.delay = absl::Nanoseconds(random() % 10'000'000'000);
    spec.topology->links[0].quality.jitter = {};
    spec.topology->regions[1].name = spec.topology->links[0].other = "u \"s\\";
    const auto again = ParseRunSpec(ToYaml(spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(*again, spec);
  }
  spec.topology->links.clear();
  EXPECT_EQ(*ParseRunSpec(ToYaml(spec), "again.yaml", {}), spec);
}

TEST(Topology, ErrorsNameTheirPlaceAndTheNearestWord) {
  EXPECT_EQ(ErrorOfLinks("[{ between: [a, c], delay: 1ms }]"),
            "t.yaml:3:26: topology.links[1].between: no region 'c'; did you mean 'a'?");
  EXPECT_THAT(ErrorOf("topology:\n  regions: { europe: [worker1] }\n"
                      "  links: [{ within: europa, delay: 1ms }]"),
              HasSubstr("did you mean 'europe'?"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a, dealy: 1ms }]"), HasSubstr("did you mean 'delay'?"));
  EXPECT_THAT(ErrorOf("topology: { regoins: {}, links: [] }"), HasSubstr("did you mean 'regions'"));
}

TEST(Topology, WhatCannotBeIsRefused) {
  EXPECT_THAT(ErrorOf("topology: 7"), HasSubstr("expected a mapping with regions, links"));
  EXPECT_THAT(ErrorOf("topology: { links: [] }"), HasSubstr("'topology.regions' is missing"));
  EXPECT_THAT(ErrorOf("topology: { regions: { a: [w] } }"),
              HasSubstr("'topology.links' is missing"));
  EXPECT_THAT(ErrorOf("topology: { regions: { a: [w], b: [w] }, links: [] }"),
              HasSubstr("'w' is in a region already"));
  EXPECT_THAT(ErrorOf("topology: { regions: { a: [], b: w }, links: [] }"),
              HasSubstr("a list of workers"));
  EXPECT_THAT(ErrorOf("topology: { regions: {}, links: [] }"), HasSubstr("1 to 64 regions"));
  EXPECT_THAT(ErrorOfLinks("{}"), HasSubstr("a list of mappings"));
  EXPECT_THAT(ErrorOfLinks("[{ delay: 1ms }]"), HasSubstr("expected either between"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a, between: [a, b], delay: 1ms }]"),
              HasSubstr("expected either between"));
  EXPECT_THAT(ErrorOfLinks("[{ between: [a], delay: 1ms }]"), HasSubstr("two regions"));
  EXPECT_THAT(ErrorOfLinks("[{ between: [a, a], delay: 1ms }]"), HasSubstr("write within: a"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a }]"), HasSubstr("expected a rate, delay, jitter or loss"));
  EXPECT_THAT(ErrorOfLinks("[{ between: [a, b], delay: 1ms }, { between: [b, a], delay: 2ms }]"),
              HasSubstr("between 'b' and 'a' is said already"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a, jitter: 2ms, delay: 1ms }]"),
              HasSubstr("topology.links[1].jitter: a jitter of 2 ms is more than the delay"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a, loss: 100% }]"), HasSubstr("nothing would arrive"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a, rate: 1kbit }]"), HasSubstr("64kbit to 100gbit"));
  EXPECT_THAT(ErrorOfLinks("[{ within: a, delay: 11s }]"), HasSubstr("0 to 10 s"));
}

TEST(Topology, AllErrorsAtOnce) {
  const std::string error =
      ErrorOfLinks("[{ within: x, delay: 1ms }, { within: a, loss: 2 }, { between: 5 }]");
  for (const char* part : {"no region 'x'", "a percentage such as", "two regions"}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
}

}  // namespace
}  // namespace longhaul
