// Lists of runs, most of which have ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/state/queries/views.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> IdsOf(const Views::RunList& list) {
  std::vector<std::string> ids;
  for (const v1::RunStatus& run : list.runs) ids.push_back(run.run_id());
  return ids;
}

// Four runs that trained until they were stopped, and one that trains.
class ListOfRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    c.Join("a");
    c.Join("b");
    for (int i = 1; i <= 5; ++i) {
      const std::string id = "tiny-" + std::to_string(i);
      c.Tick(SubmitOf(SmallSpec("tiny", 2), id, static_cast<uint64_t>(i)));
      c.ToRunning(kAb, id);
      c.Steps(kAb, id, 1);
      if (i == 5) break;
      c.Tick(event::StopAsked{.request = RequestId(100), .run = id, .now = true});
      c.Advance(absl::Seconds(10));
    }
  }
  Coordinator c;
};

TEST_F(ListOfRuns, HasTheNewestOfThoseThatHaveEnded) {
  EXPECT_THAT(IdsOf(c.views().ListRuns({})),
              ElementsAre("tiny-5", "tiny-4", "tiny-3", "tiny-2", "tiny-1"));
  const Views::RunList two = c.views().ListRuns({.most_ended = 2});
  EXPECT_THAT(IdsOf(two), ElementsAre("tiny-5", "tiny-4", "tiny-3"));
  EXPECT_EQ(two.ended_left_out, 2u);
  const Views::RunList none = c.views().ListRuns({.most_ended = 0});
  EXPECT_THAT(IdsOf(none), ElementsAre("tiny-5"));
  EXPECT_EQ(none.ended_left_out, 4u);
  const Views::RunList foreign = c.views().ListRuns({.owner = "eve", .most_ended = 0});
  EXPECT_THAT(foreign.runs, IsEmpty());
  EXPECT_EQ(foreign.ended_left_out, 0u) << "of others it says nothing";
}

TEST_F(ListOfRuns, LeavesOutTheLinksOfThoseThatHaveEnded) {
  const Views::RunList list = c.views().ListRuns({.most_ended = 1});
  EXPECT_EQ(list.runs[0].links_size(), 2);
  EXPECT_EQ(list.runs[1].links_size(), 0);
  EXPECT_EQ(list.runs[1].stages_size(), 2);
  EXPECT_EQ(list.runs[1].step(), 1u);
  EXPECT_EQ(c.views().ListRuns({.links_of_ended = true}).runs[1].links_size(), 2);
  EXPECT_EQ(c.views().RunOf("tiny-4")->links_size(), 2) << "of one run they are shown";
}

}  // namespace
}  // namespace longhaul::coordinator
