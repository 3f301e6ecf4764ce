#include "coordinator/cli/cluster/shaping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longhaul {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

const Interface kUplink{"lh-t-w1", "data"};

std::vector<std::string> Commands(Shaper shaper, uint64_t from, uint64_t to) {
  std::vector<std::string> texts;
  for (const Command& command : ShapeCommands(kUplink, shaper, from, to)) {
    texts.push_back(ToString(command));
  }
  return texts;
}

TEST(Shaping, RatesAreThoseOfTcOrUnlimited) {
  EXPECT_EQ(*ParseLinkRate("10mbit"), 10'000'000u);
  EXPECT_EQ(*ParseLinkRate("unlimited"), 0u);
  for (const char* text : {"", "0", "0bit", "10", "63kbit", "101gbit", "-1mbit", "fast"}) {
    const auto rate = ParseLinkRate(text);
    EXPECT_TRUE(absl::IsInvalidArgument(rate.status())) << text;
    EXPECT_THAT(std::string(Message(rate.status())), HasSubstr("unlimited"));
  }
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

constexpr char kHtbOutput[] = R"([
{"kind":"htb","handle":"1:","root":true,"bytes":1500,"packets":12,"drops":3,"overlimits":9,
 "requeues":0,"backlog":77,"qlen":1},
{"kind":"bfifo","handle":"10:","parent":"1:10","bytes":300,"packets":5,"drops":0,"backlog":0},
{"kind":"bfifo","handle":"20:","parent":"1:20","bytes":1200,"packets":7,"drops":3,"backlog":77}])";

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
