#include "deploy/cluster/shaping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

const Interface kUplink{"lh-t-w1", "data"};

std::vector<std::string> Commands(Shaper shaper, const LineShape& from, const LineShape& to) {
  std::vector<std::string> texts;
  for (const Command& command : ShapeCommands(kUplink, shaper, from, to)) {
    texts.push_back(ToString(command));
  }
  return texts;
}

std::vector<std::string> Commands(Shaper shaper, uint64_t from, uint64_t to) {
  return Commands(shaper, LineShape{.bits_per_second = from}, LineShape{.bits_per_second = to});
}

TEST(Shaping, HtbSplitsSmallPacketsFromData) {
  const auto commands = Commands(Shaper::kHtb, 0, 10'000'000);
  EXPECT_THAT(commands, Contains("tc -n lh-t-w1 qdisc add dev data root handle 1: htb default 20"));
  // The whole line for the parent; half of it guaranteed to each class, all of it when free.
  EXPECT_THAT(commands, Contains(HasSubstr("classid 1:1 htb rate 10000000bit ceil 10000000bit")));
  EXPECT_THAT(commands, Contains(HasSubstr("classid 1:10 htb rate 5000000bit ceil 10000000bit")));
  EXPECT_THAT(commands, Contains(HasSubstr("classid 1:20 htb rate 5000000bit ceil 10000000bit")));
  // IP length below 256.
  EXPECT_THAT(commands, Contains(HasSubstr("u32 match u16 0x0000 0xff00 at 2 flowid 1:10")));
}

TEST(Shaping, OnlyAQueueThatSmallPacketsPassIsDeep) {
  // Room for half a second of the line, and for a burst.
  EXPECT_THAT(Commands(Shaper::kHtb, 0, 10'000'000),
              Contains(HasSubstr("handle 20: bfifo limit 698728")));
  EXPECT_THAT(Commands(Shaper::kTbf, 0, 10'000'000), Contains(HasSubstr("limit 136228")));
}

TEST(Shaping, NewRateKeepsTheQueuesAndTheirCounters) {
  const auto commands = Commands(Shaper::kHtb, 10'000'000, 5'000'000);
  EXPECT_FALSE(commands.empty());
  EXPECT_THAT(commands, Each(Not(HasSubstr(" add "))));
  EXPECT_THAT(commands, Each(Not(HasSubstr(" del "))));
  EXPECT_TRUE(Commands(Shaper::kHtb, 5'000'000, 5'000'000).empty());
}

TEST(Shaping, UnlimitedTakesTheShapingAway) {
  EXPECT_THAT(Commands(Shaper::kHtb, 10'000'000, 0),
              Contains("tc -n lh-t-w1 qdisc del dev data root"));
  EXPECT_TRUE(Commands(Shaper::kHtb, 0, 0).empty());
}

TEST(Shaping, TbfsBurstExceedsAGsoPacket) {
  EXPECT_THAT(Commands(Shaper::kTbf, 0, 10'000'000),
              Contains(HasSubstr("tbf rate 10000000bit burst 73728 ")));
  EXPECT_THAT(Commands(Shaper::kTbf, 0, 500'000'000), Contains(HasSubstr("burst 131072 ")));
  EXPECT_THAT(Commands(Shaper::kTbf, 0, 10'000'000'000), Contains(HasSubstr("burst 1048576 ")));
}

LineShape WithPaths() {
  return {.bits_per_second = 100'000'000,
          .paths = {{"10.77.0.13", 20'000'000}, {"10.77.0.14", 500'000'000}}};
}

TEST(Shaping, PathsAreClassesByDestination) {
  const auto commands = Commands(Shaper::kHtb, {}, WithPaths());
  // Nobody is promised what another one has: HTB would send both.
  EXPECT_THAT(commands, Contains(HasSubstr("classid 1:1 htb rate 100000000bit ceil 100000000bit")));
  EXPECT_THAT(commands, Contains(HasSubstr("classid 1:20 htb rate 16666666bit ceil 100000000bit")));
  EXPECT_THAT(commands, Contains(HasSubstr("parent 1:1 classid 1:1000 htb rate 20000000bit ceil "
                                           "20000000bit")));
  EXPECT_THAT(commands, Contains(HasSubstr("parent 1:1000 classid 1:3000 htb rate 10000000bit ceil "
                                           "20000000bit")));
  // No path has more than its line.
  EXPECT_THAT(commands,
              Contains(HasSubstr("classid 1:1001 htb rate 33333333bit ceil 100000000bit")));
  // Small packets first, here too.
  EXPECT_THAT(commands,
              Contains(HasSubstr("prio 1 u32 match ip dst 10.77.0.13/32 match u16 0x0000 0xff00 at "
                                 "2 flowid 1:2000")));
  EXPECT_THAT(commands, Contains(HasSubstr("prio 2 u32 match ip dst 10.77.0.13/32 flowid 1:3000")));
}

TEST(Shaping, AnotherPathLeavesTheOthersCounters) {
  LineShape one = WithPaths();
  one.paths.pop_back();
  const LineShape two = WithPaths();
  EXPECT_FALSE(BeginsAnew(one, two));
  const auto commands = Commands(Shaper::kHtb, one, two);
  EXPECT_THAT(commands, Contains(HasSubstr("class change dev data parent 1:1 classid 1:1000 ")));
  EXPECT_THAT(commands, Contains(HasSubstr("class add dev data parent 1:1 classid 1:1001 ")));
  EXPECT_THAT(commands, Contains(HasSubstr("match ip dst 10.77.0.14/32")));
  EXPECT_THAT(commands, Each(Not(HasSubstr("match ip dst 10.77.0.13/32"))));
  EXPECT_THAT(commands, Each(Not(HasSubstr(" del "))));
  EXPECT_TRUE(BeginsAnew(two, one));
}

TEST(Shaping, PathsOfALineWithoutARate) {
  LineShape line = WithPaths();
  line.bits_per_second = 0;
  EXPECT_TRUE(line.Shaped());
  EXPECT_THAT(Commands(Shaper::kHtb, {}, line),
              Contains(HasSubstr("classid 1:1000 htb rate 20000000bit ceil 20000000bit")));
}

TEST(Shaping, NetemDelaysInTheLeaves) {
  const LineShape plain{.bits_per_second = 10'000'000};
  LineShape line = plain;
  line.netem = true;
  line.quality = {absl::Milliseconds(25), absl::Microseconds(1500), 0.001};
  line.paths = {{"10.77.0.13", 0, {absl::Milliseconds(80), {}, 0}}};
  const auto commands = Commands(Shaper::kHtb, {}, line);
  EXPECT_THAT(commands, Contains(HasSubstr("handle 20: netem limit ")));
  EXPECT_THAT(commands,
              Contains(HasSubstr("delay 25000us 1500us loss 0.100000% rate 100000000000bit")));
  EXPECT_THAT(commands, Contains(HasSubstr("parent 1:3000 handle 3000: netem limit ")));
  EXPECT_THAT(commands, Contains(HasSubstr("delay 80000us 0us loss 0.000000%")));
  EXPECT_THAT(commands, Each(Not(HasSubstr("loss 0.000000% rate"))));
  EXPECT_THAT(commands, Each(Not(HasSubstr("bfifo"))));
  // A leaf of one kind cannot become one of another.
  EXPECT_TRUE(BeginsAnew(plain, line));
  EXPECT_EQ(Commands(Shaper::kHtb, plain, line)[1], "tc -n lh-t-w1 qdisc del dev data root");
  LineShape slower = line;
  slower.quality.delay = absl::Milliseconds(50);
  EXPECT_FALSE(BeginsAnew(line, slower));
  EXPECT_THAT(Commands(Shaper::kHtb, line, slower),
              Contains(HasSubstr("qdisc change dev data parent 1:20 handle 20: netem")));
}

TEST(Shaping, LossIsByThePacket) {
  LineShape lossy{.bits_per_second = 10'000'000, .single_packets = true};
  EXPECT_THAT(Commands(Shaper::kHtb, {}, lossy), Contains(HasSubstr("gso_max_segs 1")));
  EXPECT_THAT(Commands(Shaper::kHtb, lossy, {}), Contains(HasSubstr("gso_max_segs 65535")));
}

constexpr char kHtbOutput[] = R"([
{"kind":"htb","handle":"1:","root":true,"bytes":1500,"packets":12,"drops":3,"overlimits":9,
 "requeues":0,"backlog":77,"qlen":1},
{"kind":"bfifo","handle":"10:","parent":"1:10","bytes":300,"packets":5,"drops":0,"backlog":0},
{"kind":"bfifo","handle":"20:","parent":"1:20","bytes":1000,"packets":6,"drops":3,"backlog":77},
{"kind":"bfifo","handle":"2001:","parent":"1:2001","bytes":0,"packets":0,"drops":0,"backlog":0},
{"kind":"bfifo","handle":"3001:","parent":"1:3001","bytes":200,"packets":1,"drops":0,"backlog":0}])";

TEST(Shaping, CountersTellDataFromAcknowledgements) {
  const auto counters = ParseCounters(kHtbOutput, Shaper::kHtb);
  ASSERT_TRUE(counters.ok()) << counters.status();
  ASSERT_TRUE(counters->has_value());
  EXPECT_EQ((*counters)->bytes, 1500u);
  EXPECT_EQ((*counters)->packets, 12u);
  EXPECT_EQ((*counters)->dropped_packets, 3u);
  EXPECT_EQ((*counters)->backlog_bytes, 77u);
  EXPECT_EQ((*counters)->data_bytes, 1200u);
  EXPECT_EQ((*counters)->acknowledgement_bytes, 300u);
}

TEST(Shaping, TbfCountsOnlyTheWhole) {
  const auto counters =
      ParseCounters(R"([{"kind":"tbf","handle":"1:","bytes":9,"packets":1,"drops":0,"backlog":0}])",
                    Shaper::kTbf);
  ASSERT_TRUE(counters.ok() && counters->has_value());
  EXPECT_EQ((*counters)->bytes, 9u);
  EXPECT_FALSE((*counters)->data_bytes.has_value());
}

TEST(Shaping, InterfaceWithoutShapingHasNoCounters) {
  const auto counters = ParseCounters(
      R"([{"kind":"noqueue","handle":"0:","root":true,"bytes":0,"packets":0,"drops":0}])",
      Shaper::kHtb);
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_FALSE(counters->has_value());
  EXPECT_TRUE(absl::IsInternal(ParseCounters("no json", Shaper::kHtb).status()));
  EXPECT_TRUE(absl::IsInternal(ParseCounters(R"([{"handle":"1:"}])", Shaper::kHtb).status()));
}

}  // namespace
}  // namespace longhaul
