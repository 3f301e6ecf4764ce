// The program longhaul-worker: flags, exit codes, messages, signals.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Subprocess;
using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Deadline Soon() {
  return Deadline::After(absl::Seconds(60));
}

class WorkerDaemonTest : public ::testing::Test {
 protected:
  std::unique_ptr<Subprocess> Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(), LONGHAUL_WORKER_BINARY);
    StatusOr<std::unique_ptr<Subprocess>> process = Subprocess::Start(flags);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }
  // With what is required; the coordinator is nobody.
  std::unique_ptr<Subprocess> RunWith(const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--coordinator", "127.0.0.1:1", "--state-dir",
                                      folder_.path() + "/state", "--insecure"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Run(flags);
  }

  TempDir folder_;
};

TEST_F(WorkerDaemonTest, SaysWhatItIs) {
  const auto version = Run({"--version"});
  EXPECT_EQ(version->WaitForExit(Soon()), 0);
  EXPECT_EQ(version->standard_output(), fmt::format("longhaul-worker {}\n", Version()));
  const auto help = Run({"--help"});
  EXPECT_EQ(help->WaitForExit(Soon()), 0);
  EXPECT_THAT(help->standard_output(), HasSubstr("--data-address"));
}

TEST_F(WorkerDaemonTest, WrongUsageIsExitCodeTwoAndNamesTheFlag) {
  const auto expect = [](const std::unique_ptr<Subprocess>& daemon, const std::string& message) {
    EXPECT_EQ(daemon->WaitForExit(Soon()), 2);
    EXPECT_THAT(daemon->standard_error(), StartsWith("longhaul-worker: " + message));
  };
  expect(Run({}), "--coordinator is required");
  for (const char* name : {"HOME", "XDG_STATE_HOME"}) ::unsetenv(name);
  expect(Run({"--coordinator", "127.0.0.1:1"}), "--state-dir is required");
  expect(Run({"--coordinator", "127.0.0.1:1,nonsense", "--state-dir", "any"}),
         "--coordinator: address 'nonsense': expected ");
  expect(Run({"--coordinator", "a:1,b:1,a:1", "--state-dir", "any"}),
         "--coordinator: address list 'a:1,b:1,a:1': expected each address once");
  expect(Run({"--cordinator", "127.0.0.1:1"}),
         "unknown option '--cordinator'; did you mean '--coordinator'?");
  expect(RunWith({"--advertise", "nonsense"}), "--advertise: address 'nonsense': expected ");
  expect(RunWith({"--data-address", "nonsense"}), "--data-address: address 'nonsense': expected ");
  expect(RunWith({"--data-address", "0.0.0.0:0"}), "--token-file is required");
  expect(RunWith({"--transport", "pigeons"}), "--transport: pigeons not in {ucx,tcp,grpc}");
  expect(RunWith({"--grpc-address", "nonsense"}), "--grpc-address: address 'nonsense': expected ");
  expect(RunWith({"--grpc-address", "0.0.0.0:0"}), "--token-file is required");
  expect(RunWith({"--grpc-address", "0.0.0.0:0", "--token-file", "any"}),
         "--grpc-address 0.0.0.0:0 is no address that others can dial; say with --advertise "
         "host:port");
  expect(RunWith({"--advertise", "auto", "--transport", "ucx"}),
         "--advertise auto is for TCP or gRPC");
  expect(RunWith({"--advertise", "192.0.2.7:0"}),
         "--advertise 192.0.2.7:0: others cannot dial port 0");
  expect(RunWith({"--remote-host", "https://minio.lan"}),
         "--remote-host: expected a host such as example.org:9000, got 'https://minio.lan'");
  expect(RunWith({"--log-level", "loud"}), "log level: expected trace, debug, ");
}

TEST_F(WorkerDaemonTest, APortInUseIsNamed) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string taken = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  const auto daemon = RunWith({"--data-address", taken});
  EXPECT_EQ(daemon->WaitForExit(Soon()), 1);
  EXPECT_THAT(daemon->standard_error(),
              HasSubstr(fmt::format("cannot listen at {}: the port is in use", taken)));
  close(listener);
}

TEST_F(WorkerDaemonTest, NoWayToTheCoordinatorIsSaid) {
  const auto daemon = Run({"--coordinator", "no-such-host.invalid:1", "--state-dir",
                           folder_.path() + "/state", "--token-file", "any"});
  EXPECT_EQ(daemon->WaitForExit(Soon()), 1);
  EXPECT_THAT(daemon->standard_error(),
              HasSubstr("there is no way to the coordinator no-such-host.invalid:1"));
}

// Nothing listens at the data address then, so it is not looked for.
TEST_F(WorkerDaemonTest, AWorkerOfGrpcAloneNeedsNoWayToTheCoordinatorYet) {
  const auto daemon =
      Run({"--coordinator", "no-such-host.invalid:1", "--state-dir", folder_.path() + "/state",
           "--transport", "grpc", "--grpc-address", "127.0.0.1:0", "--insecure"});
  EXPECT_TRUE(daemon->WaitForOutput("data address 127.0.0.1:", Soon())) << daemon->standard_error();
}

// As systemd's unit has it.
TEST_F(WorkerDaemonTest, TakesAListOfCoordinatorsFromItsFile) {
  const std::string file = folder_.path() + "/worker.yaml";
  for (const char* value : {"127.0.0.1:1,127.0.0.1:2", "[127.0.0.1:1, 127.0.0.1:2]"}) {
    ASSERT_TRUE(WriteFileAtomic(file, fmt::format("coordinator: {}\n", value)).ok());
    const auto daemon = Run({"--config", file, "--state-dir", folder_.path() + "/state",
                             "--transport", "grpc", "--insecure"});
    EXPECT_TRUE(daemon->WaitForOutput("coordinator 127.0.0.1:2: ", Soon()))
        << daemon->standard_error();
    EXPECT_THAT(daemon->standard_error(), HasSubstr("; trying 127.0.0.1:2"));
  }
}

TEST_F(WorkerDaemonTest, AGrpcPortInUseIsNamed) {
  const auto first = RunWith({"--transport", "grpc"});
  ASSERT_TRUE(first->WaitForOutput("data address 127.0.0.1:", Soon())) << first->standard_error();
  const std::string said = first->standard_error();
  const size_t at = said.find("data address ") + 13;
  const std::string taken = said.substr(at, said.find(' ', at) - at);
  const auto second = Run({"--coordinator", "127.0.0.1:1", "--state-dir", folder_.path() + "/other",
                           "--transport", "grpc", "--grpc-address", taken, "--insecure"});
  EXPECT_EQ(second->WaitForExit(Soon()), 1);
  EXPECT_THAT(second->standard_error(), HasSubstr(fmt::format("cannot listen at {}", taken)));
}

TEST_F(WorkerDaemonTest, AStateDirectoryOfANewerVersionIsLeftAlone) {
  const std::string folder = folder_.path() + "/state";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomic(folder + "/format", "2\n").ok());
  const auto refused = RunWith({});
  EXPECT_EQ(refused->WaitForExit(Soon()), 1);
  EXPECT_THAT(
      refused->standard_error(),
      HasSubstr("has format 2, and this worker knows formats up to 1; it was left as it is"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/worker-id"));
  // From before there was a number.
  std::filesystem::remove(folder + "/format");
  const std::string id = "0a1b2c3d-0000-4000-8000-000000000000\n";
  ASSERT_TRUE(WriteFileAtomic(folder + "/worker-id", id).ok());
  const auto opened = RunWith({});
  ASSERT_TRUE(opened->WaitForOutput("data address 127.0.0.1:", Soon())) << opened->standard_error();
  EXPECT_EQ(*ReadFile(folder + "/worker-id"), id);
  EXPECT_EQ(*ReadFile(folder + "/format"), "1\n");
}

TEST_F(WorkerDaemonTest, EndsOnASignalWhileItsCoordinatorIsAway) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto daemon = RunWith({});
    ASSERT_TRUE(daemon->WaitForOutput("data address 127.0.0.1:", Soon()))
        << daemon->standard_error();
    // Two of one identity would be one too many.
    const auto second = RunWith({});
    EXPECT_EQ(second->WaitForExit(Soon()), 1);
    EXPECT_THAT(second->standard_error(), HasSubstr("another worker uses the state directory"));
    daemon->Signal(signal);
    EXPECT_EQ(daemon->WaitForExit(Soon()), 0) << daemon->standard_error();
  }
}

}  // namespace
}  // namespace longhaul::worker
