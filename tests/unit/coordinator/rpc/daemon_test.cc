// The program longhaul-coordinator: flags, exit codes, messages, signals.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <csignal>

#include "base/file.h"
#include "base/token.h"
#include "base/version.h"
#include "proto/identity/join_token.h"
#include "tests/support/quiet.h"
#include "tests/support/subprocess.h"
#include "tests/unit/coordinator/rpc/fake_worker.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::Subprocess;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

Deadline Soon() {
  return Deadline::After(absl::FromChrono(kPatience));
}

class DaemonTest : public ::testing::Test {
 protected:
  std::string StateDir(const std::string& name = "state") const {
    return folder_.path() + "/" + name;
  }
  std::unique_ptr<Subprocess> Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(), LONGHAUL_COORDINATOR_BINARY);
    StatusOr<std::unique_ptr<Subprocess>> process = Subprocess::Start(flags);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }
  // Waits until it serves.
  std::unique_ptr<Subprocess> Serve(std::vector<std::string> flags) {
    auto process = Run(std::move(flags));
    EXPECT_TRUE(process->WaitForOutput("listening on ", Soon())) << process->standard_error();
    return process;
  }
  std::string Address(const std::string& state_dir) {
    std::string text = *ReadFile(state_dir + "/address");
    EXPECT_TRUE(text.ends_with('\n'));
    text.pop_back();
    return text;
  }

  TempDir folder_;
};

TEST_F(DaemonTest, ServesUntilASignalComes) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto daemon = Serve({"--listen", "127.0.0.1:0", "--state-dir", StateDir(), "--insecure"});
    const std::string address = Address(StateDir());
    EXPECT_EQ(daemon->standard_output(), fmt::format("listening on {}\n", address));
    Session session(address, "");
    session.SayHello(HelloOf("worker1"));
    v1::WorkerCommand command;
    ASSERT_TRUE(session.Hear(&command));
    const MonoTime start = Now();
    daemon->Signal(signal);
    EXPECT_EQ(daemon->WaitForExit(Soon()), 0) << daemon->standard_error();
    EXPECT_LT(Now() - start, testing::QuietLimit(absl::Seconds(3), absl::Seconds(10)));
    EXPECT_FALSE(session.Hear(&command));
    EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(DaemonTest, FlagsMayStandInAFile) {
  const std::string token = folder_.path() + "/token", config = folder_.path() + "/daemon.yaml";
  ASSERT_TRUE(GenerateTokenFile(token).ok());
  ASSERT_TRUE(
      WriteFileAtomic(config, fmt::format("listen: 127.0.0.1:0\nstate-dir: {}\n"
                                          "token-file: {}\ninsecure: true\nlog-level: debug\n",
                                          StateDir(), token))
          .ok());
  const auto daemon = Serve({"--config", config});
  Session session(Address(StateDir()), *LoadToken(token));
  session.SayHello(HelloOf("worker1"));
  v1::WorkerCommand command;
  EXPECT_TRUE(session.Hear(&command));
}

TEST_F(DaemonTest, WrongUsageIsExitCodeTwo) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--bogus"},
                                                {},
                                                {"--state-dir", StateDir(), "--log-level", "loud"},
                                                {"--state-dir", StateDir(), "--listen", "nonsense"},
                                                {"--config", folder_.path() + "/nowhere.yaml"}}) {
    const auto daemon = Run(flags);
    EXPECT_EQ(daemon->WaitForExit(Soon()), 2);
    EXPECT_NE(daemon->standard_error(), "");
  }
}

TEST_F(DaemonTest, SaysWhatItIs) {
  const auto version = Run({"--version"});
  EXPECT_EQ(version->WaitForExit(Soon()), 0);
  EXPECT_EQ(version->standard_output(), fmt::format("longhaul-coordinator {}\n", Version()));
  const auto help = Run({"--help"});
  EXPECT_EQ(help->WaitForExit(Soon()), 0);
  EXPECT_THAT(help->standard_output(), HasSubstr("--state-dir"));
  const auto states = Run({"--dump-states"});
  EXPECT_EQ(states->WaitForExit(Soon()), 0);
  EXPECT_THAT(states->standard_output(), HasSubstr("queued --> planning"));
}

TEST_F(DaemonTest, APortInUseIsNamed) {
  const auto first = Serve({"--listen", "127.0.0.1:0", "--state-dir", StateDir("first")});
  const std::string address = Address(StateDir("first"));
  const auto second = Run({"--listen", address, "--state-dir", StateDir("second")});
  EXPECT_EQ(second->WaitForExit(Soon()), 1);
  EXPECT_THAT(second->standard_error(), HasSubstr(fmt::format("cannot listen at {}", address)));
}

TEST_F(DaemonTest, OnlyLoopbackIsServedWithoutAToken) {
  const auto open = Run({"--listen", "0.0.0.0:0", "--state-dir", StateDir(), "--insecure"});
  EXPECT_EQ(open->WaitForExit(Soon()), 1);
  EXPECT_THAT(open->standard_error(), HasSubstr("--token-file"));
  EXPECT_FALSE(std::filesystem::exists(StateDir()));
}

TEST_F(DaemonTest, AShortTokenIsNone) {
  const std::string token = folder_.path() + "/token";
  ASSERT_TRUE(WriteFileAtomic(token, "short\n").ok());
  const auto daemon = Run({"--state-dir", StateDir(), "--token-file", token});
  EXPECT_EQ(daemon->WaitForExit(Soon()), 1);
  EXPECT_THAT(daemon->standard_error(), HasSubstr("expected 16 to 4096 characters"));
}

TEST_F(DaemonTest, WorkersGetATokenOfTheirOwn) {
  const std::string path = folder_.path() + "/workers";
  const auto init = Run({"init", "--state-dir", StateDir(), "--worker-token-file", path});
  EXPECT_EQ(init->WaitForExit(Soon()), 0) << init->standard_error();
  const std::string text = LoadToken(path).value();
  EXPECT_EQ(ParseJoinToken(text)->role, Role::kWorker);
  const auto again = Run({"init", "--state-dir", StateDir(), "--worker-token-file", path});
  EXPECT_EQ(again->WaitForExit(Soon()), 0) << again->standard_error();
  EXPECT_EQ(LoadToken(path).value(), text);

  const auto mistaken =
      Run({"init", "--state-dir", StateDir(), "--worker-token-file", StateDir() + "/token"});
  EXPECT_EQ(mistaken->WaitForExit(Soon()), 1);
  EXPECT_THAT(mistaken->standard_error(), HasSubstr("for the role admin, not worker"));
  const auto plain =
      Run({"--state-dir", StateDir("plain"), "--insecure", "--worker-token-file", path});
  EXPECT_EQ(plain->WaitForExit(Soon()), 2);
  EXPECT_THAT(plain->standard_error(), HasSubstr("exclude each other"));
}

TEST_F(DaemonTest, APlainTokenIsForInsecureAloneAndAJoinTokenForTls) {
  const std::string token = folder_.path() + "/token";
  ASSERT_TRUE(GenerateTokenFile(token).ok());
  const auto daemon =
      Run({"--listen", "127.0.0.1:0", "--state-dir", StateDir(), "--token-file", token});
  EXPECT_EQ(daemon->WaitForExit(Soon()), 1);
  EXPECT_THAT(daemon->standard_error(), HasSubstr("say --insecure to go without TLS"));
  const auto init = Run({"init", "--state-dir", StateDir()});
  EXPECT_EQ(init->WaitForExit(Soon()), 0) << init->standard_error();
  EXPECT_THAT(init->standard_output(), HasSubstr("made the join token for admins"));
  const auto again = Run({"init", "--state-dir", StateDir()});
  EXPECT_EQ(again->WaitForExit(Soon()), 0) << again->standard_error();
  EXPECT_EQ(again->standard_output(), "all is there already\n");
  const auto insecure = Run({"--listen", "127.0.0.1:0", "--state-dir", StateDir(), "--insecure",
                             "--token-file", StateDir() + "/token"});
  EXPECT_EQ(insecure->WaitForExit(Soon()), 1);
  EXPECT_THAT(insecure->standard_error(), HasSubstr("which is for TLS"));
}

TEST_F(DaemonTest, AStateDirectoryThatCannotBeIsNamed) {
  const std::string file = folder_.path() + "/file";
  ASSERT_TRUE(WriteFileAtomic(file, "").ok());
  const auto daemon = Run({"--listen", "127.0.0.1:0", "--state-dir", file + "/state"});
  EXPECT_EQ(daemon->WaitForExit(Soon()), 1);
  EXPECT_THAT(daemon->standard_error(), HasSubstr(file + "/state"));
}

TEST_F(DaemonTest, ADamagedStoreIsNamed) {
  ASSERT_TRUE(MakeDirectories(StateDir()).ok());
  ASSERT_TRUE(WriteFileAtomic(StateDir() + "/store.db", "not a database").ok());
  const auto daemon = Run({"--listen", "127.0.0.1:0", "--state-dir", StateDir()});
  EXPECT_EQ(daemon->WaitForExit(Soon()), 1);
  EXPECT_THAT(daemon->standard_error(), HasSubstr("is damaged"));
}

TEST_F(DaemonTest, TwoOnOneStateDirectoryAreOneTooMany) {
  const auto first = Serve({"--listen", "127.0.0.1:0", "--state-dir", StateDir()});
  const auto second = Run({"--listen", "127.0.0.1:0", "--state-dir", StateDir()});
  EXPECT_EQ(second->WaitForExit(Soon()), 1);
  EXPECT_THAT(second->standard_error(), HasSubstr(fmt::format("pid {}", first->pid())));

  // However the first one ends, the next one may begin.
  first->Signal(SIGKILL);
  EXPECT_EQ(first->WaitForExit(Soon()), 128 + SIGKILL);
  Serve({"--listen", "127.0.0.1:0", "--state-dir", StateDir()});
}

}  // namespace
}  // namespace longhaul::coordinator
