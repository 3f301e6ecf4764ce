// `longhaul watch`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, WatchOnAPipeIsALineAStep) {
  control_.watched = {State("queued", 0), State("running", 1), State("running", 1),
                      State("running", 2), State("done", 2)};
  const Outcome outcome = Ask({"watch", "tiny"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 4);
  EXPECT_THAT(outcome.out, Not(HasSubstr("\033")));
  const Outcome json = Ask({"watch", "tiny", "--json"});
  std::istringstream lines(json.out);
  std::vector<std::string> states;
  for (std::string line; std::getline(lines, line);) {
    states.push_back(nlohmann::json::parse(line)["state"]);
  }
  EXPECT_THAT(states, ElementsAre("queued", "running", "running", "running", "done"));
}

TEST_F(CliTest, WatchOnATerminalRedrawsInPlace) {
  control_.watched = {State("running", 1), State("done", 20)};
  const Outcome outcome = Ask({"watch", "tiny"}, /*terminal=*/true);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("step 1/20"));
  // Three lines up, then everything below is wiped.
  EXPECT_THAT(outcome.out, HasSubstr("\033[3A\r\033[J"));
  EXPECT_THAT(outcome.out, HasSubstr("step 20/20  100%"));
}

TEST_F(CliTest, WatchWaitsForACoordinatorThatComesBack) {
  control_.cut_first_watch = true;
  control_.watched = {State("running", 1)};
  control_.watched_later = {State("done", 20)};
  const Outcome outcome = Ask({"watch", "tiny"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("is away; the workers train on"));
  // By the id that the first stream told.
  EXPECT_THAT(control_.watch_requests, ElementsAre("tiny", "tiny-abc123"));
}

TEST_F(CliTest, WatchOfAnUnknownRunDoesNotTryAgain) {
  control_.Start();
  control_.Stop();
  const Outcome outcome = Run({"watch", "tiny", "--coordinator", control_.address()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, StartsWith("cannot reach"));
}

}  // namespace
}  // namespace longhaul::cli
