// Programs of users: their environment, their output, and that nothing of them stays.
#include "coordinator/hooks/program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProgramTest : public ::testing::Test {
 protected:
  ProgramEnd Run(const std::string& script) {
    return RunProgram({.arguments = {"sh", "-c", script},
                       .environment = SmallEnvironment({"LONGHAUL_STEP=7"}),
                       .folder = folder_.path(),
                       .limit = limit_,
                       .output_limit = output_limit_},
                      [this] { return given_up_.load(); });
  }
  // The number that the script has written, of a process that must have gone.
  bool HasGone(const std::string& file) {
    const pid_t pid = std::stoi(ReadFile(folder_.path() + "/" + file, 100).value());
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while (!deadline.Expired()) {
      if (::kill(pid, 0) != 0) return true;
      // It may wait for its new parent to see its end.
      const StatusOr<std::string> stat = ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
      if (!stat.ok() || stat->find(") Z ") != std::string::npos) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  const testing::TempDir folder_;
  absl::Duration limit_ = absl::Minutes(5);
  size_t output_limit_ = 1000;
  std::atomic<bool> given_up_ = false;
};

TEST_F(ProgramTest, SaysHowItEnded) {
  const ProgramEnd good = Run("echo out; echo err >&2");
  EXPECT_TRUE(good.ok);
  EXPECT_EQ(good.how, "ended with exit code 0");
  EXPECT_EQ(good.output, "out\nerr\n");
  const ProgramEnd bad = Run("echo why; exit 3");
  EXPECT_FALSE(bad.ok);
  EXPECT_EQ(bad.how, "ended with exit code 3");
  EXPECT_EQ(bad.output, "why\n");
  EXPECT_THAT(Run("kill -TERM $$").how, StartsWith("was ended by signal 15"));
}

TEST_F(ProgramTest, HasASmallEnvironmentAndNoFiles) {
  ::setenv("HF_TOKEN", "hf_secret", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  // A file that is not closed by itself.
  const int leaked = ::open("/dev/null", O_RDONLY);
  ASSERT_GT(leaked, STDERR_FILENO);
  output_limit_ = 100'000;
  const ProgramEnd end =
      Run("env; ls /proc/self/fd | tr '\\n' ' '; pwd; read line || echo no input");
  ::close(leaked);
  ::unsetenv("HF_TOKEN");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  EXPECT_TRUE(end.ok) << end.output;
  EXPECT_THAT(end.output, Not(HasSubstr("secret")));
  EXPECT_THAT(end.output, HasSubstr("LONGHAUL_STEP=7\n"));
  EXPECT_THAT(end.output, HasSubstr("PATH="));
  EXPECT_THAT(end.output, HasSubstr("0 1 2 3 " + folder_.path()));  // 3: ls reads the folder
  EXPECT_THAT(end.output, HasSubstr("no input"));
}

TEST_F(ProgramTest, OfALongOutputTheEndIsKept) {
  const ProgramEnd end = Run("i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done");
  EXPECT_TRUE(end.ok);
  EXPECT_EQ(end.output.size(), 1000);
  EXPECT_THAT(end.output, ::testing::EndsWith("line 4998\nline 4999\n"));
}

TEST_F(ProgramTest, OneThatHangsIsKilledWithItsChildren) {
  limit_ = absl::Seconds(1);
  const ProgramEnd end =
      Run("echo begun; sleep 1000 & echo $! > child; trap '' TERM; wait; sleep 1000");
  EXPECT_FALSE(end.ok);
  EXPECT_EQ(end.how, "took longer than 1s and was killed");
  EXPECT_EQ(end.output, "begun\n");
  EXPECT_TRUE(HasGone("child"));
}

TEST_F(ProgramTest, ChildrenThatAreLeftBehindEnd) {
  EXPECT_TRUE(Run("sleep 1000 & echo $! > child; exit 0").ok);
  EXPECT_TRUE(HasGone("child"));
}

TEST_F(ProgramTest, ChildrenWithASessionOfTheirOwnEndToo) {
  const std::string begin = "setsid sh -c 'echo $$ > half; mv half child; sleep 1000' & ";
  EXPECT_TRUE(Run(begin + "until [ -e child ]; do sleep 0.01; done; exit 0").ok);
  EXPECT_TRUE(HasGone("child"));
}

TEST_F(ProgramTest, EndsWhenItIsGivenUp) {
  std::jthread other([this] {
    while (!ReadFile(folder_.path() + "/begun", 100).ok()) absl::SleepFor(absl::Milliseconds(5));
    given_up_ = true;
  });
  const ProgramEnd end = Run("echo $$ > half; mv half begun; exec sleep 1000");
  EXPECT_EQ(end.how, "was killed");
  EXPECT_TRUE(HasGone("begun"));
}

TEST_F(ProgramTest, ClosesItsOutputAndGoesOn) {
  EXPECT_TRUE(Run("exec >&- 2>&-; sleep 0.2; echo here > file").ok);
  EXPECT_TRUE(ReadFile(folder_.path() + "/file", 100).ok());
}

TEST_F(ProgramTest, OneThatCannotStart) {
  const auto run = [&](const std::string& name, const std::string& folder) {
    return RunProgram({.arguments = {name}, .folder = folder, .limit = limit_},
                      [] { return false; })
        .how;
  };
  EXPECT_THAT(run("no-such-program", folder_.path()),
              ::testing::AllOf(StartsWith("could not start"), HasSubstr("no-such-program")));
  ASSERT_TRUE(WriteFileAtomic(folder_.path() + "/text", "words").ok());
  EXPECT_THAT(run(folder_.path() + "/text", folder_.path()), StartsWith("could not start"));
  EXPECT_THAT(run("sh", folder_.path() + "/none"), HasSubstr("/none"));
}

}  // namespace
}  // namespace longhaul::coordinator
