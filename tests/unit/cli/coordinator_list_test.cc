// A coordinator with a standby: the list of their addresses, and which of them is asked.
#include <fmt/core.h>

#include "base/clock.h"
#include "tests/support/quiet.h"
#include "tests/support/silent_listener.h"
#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::longhaul::testing::SilentListener;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CoordinatorListTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    control_.Start();
    other_.Start();
    control_.runs = other_.runs = {State("running", 7)};
  }
  std::string Both() const { return control_.address() + "," + other_.address(); }
  static v1::LogEntry Line(uint64_t sequence, const std::string& text) {
    v1::LogEntry entry;
    entry.set_sequence(sequence);
    entry.mutable_line()->set_text(text);
    return entry;
  }

  FakeControl other_;
};

TEST_F(CoordinatorListTest, EveryAddressIsChecked) {
  const Outcome flag = Run({"ps", "--coordinator", "a:1,nonsense"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, StartsWith("longhaul ps: --coordinator: address 'nonsense': expected "));
  const Outcome twice = Run({"ps", "--coordinator", "a:1,a:1"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("expected each address once, but a:1 stands there twice"));
  setenv("LONGHAUL_COORDINATOR", "a:1,nonsense", 1);
  const Outcome variable = Run({"ps"});
  EXPECT_EQ(variable.code, 1);
  EXPECT_THAT(variable.err, StartsWith("LONGHAUL_COORDINATOR: address 'nonsense': expected "));
}

TEST_F(CoordinatorListTest, TheFirstAddressNamesTheFileOfCredentials) {
  setenv("LONGHAUL_HOME", folder_.path().c_str(), 1);
  const auto found =
      FindCoordinator({.coordinator = "a:7070, b:7070", .token_file = {}}, ClustersOfThisMachine());
  unsetenv("LONGHAUL_HOME");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->addresses, ElementsAre("a:7070", "b:7070"));
  EXPECT_EQ(found->credentials_file, Path("a:7070.pem"));
}

TEST_F(CoordinatorListTest, TheFirstThatServesIsAsked) {
  setenv("LONGHAUL_COORDINATOR", Both().c_str(), 1);
  EXPECT_EQ(Run({"ps"}).code, 0);
  EXPECT_EQ(other_.infos, 0);
  // As a standby.
  control_.standby = true;
  const Outcome standby = Run({"ps"});
  EXPECT_EQ(standby.code, 0) << standby.err;
  EXPECT_THAT(standby.out, HasSubstr("tiny"));
  // Down.
  control_.Stop();
  const Outcome down = Run({"ps"});
  EXPECT_EQ(down.code, 0) << down.err;
  EXPECT_EQ(other_.infos, 2);
}

TEST_F(CoordinatorListTest, OneThatNeverAnswersIsNotWaitedFor) {
  const SilentListener silent;
  const MonoTime begin = Now();
  const Outcome outcome = Run({"ps", "--coordinator", silent.address() + "," + other_.address()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(Now() - begin, testing::QuietLimit(absl::Seconds(3), absl::Seconds(10)));
}

TEST_F(CoordinatorListTest, WhereNoneServesEachOneSaysWhy) {
  control_.Stop();
  other_.standby = true;
  const Outcome outcome = Run({"ps", "--coordinator", Both()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              AllOf(StartsWith(fmt::format("cannot reach any coordinator of {}, {} (from "
                                           "--coordinator): ",
                                           control_.address(), other_.address())),
                    HasSubstr("Connection refused"),
                    HasSubstr(other_.address() + ": this is the standby of h:7070")));
}

TEST_F(CoordinatorListTest, ARefusalIsNotPassedOver) {
  control_.token = kToken;
  const Outcome outcome = Run({"ps", "--coordinator", Both()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the coordinator at " + control_.address()));
  EXPECT_THAT(outcome.err, HasSubstr("refused a call without a token"));
  EXPECT_EQ(other_.infos, 0);
}

TEST_F(CoordinatorListTest, OneAddressIsAskedNothingBefore) {
  EXPECT_EQ(Run({"ps", "--coordinator", control_.address()}).code, 0);
  EXPECT_EQ(control_.infos, 0);
}

TEST_F(CoordinatorListTest, WatchGoesOnWithTheNext) {
  control_.cut_first_watch = true;
  control_.watched = {State("running", 1)};
  other_.watched = {State("done", 20)};
  const Outcome outcome = Run({"watch", "tiny", "--coordinator", Both()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(other_.watch_requests, ElementsAre("tiny-abc123"));
  EXPECT_THAT(outcome.err, HasSubstr("is away; the workers train on"));
}

TEST_F(CoordinatorListTest, LogsGoOnWithTheNextAndRepeatNothing) {
  control_.logs = {Line(1, "one"), Line(2, "two")};
  control_.cut_logs = true;
  other_.logs = {Line(1, "one"), Line(2, "two"), Line(3, "three")};
  const Outcome outcome = Run({"logs", "tiny", "-f", "--coordinator", Both()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto count = [&](const std::string& word) {
    size_t n = 0;
    for (size_t at = outcome.out.find(word); at != std::string::npos;
         at = outcome.out.find(word, at + 1)) {
      ++n;
    }
    return n;
  };
  EXPECT_EQ(count("one"), 1u) << outcome.out;
  EXPECT_EQ(count("two"), 1u) << outcome.out;
  EXPECT_EQ(count("three"), 1u) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("the coordinator is away; trying "));
}

TEST_F(CoordinatorListTest, LogsThatAreNotFollowedEndWithTheirCoordinator) {
  control_.logs = {Line(1, "one")};
  control_.cut_logs = true;
  const Outcome outcome = Run({"logs", "tiny", "--coordinator", Both()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, StartsWith("cannot reach the coordinator at " + control_.address()));
  EXPECT_THAT(outcome.err, Not(HasSubstr("is away")));
}

}  // namespace
}  // namespace longhaul::cli
