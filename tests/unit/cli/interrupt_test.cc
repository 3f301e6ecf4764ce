// Ctrl-C, which only a process of its own shows.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "base/clock.h"
#include "tests/support/subprocess.h"
#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::longhaul::testing::Subprocess;
using ::testing::HasSubstr;

Deadline Soon() {
  return Deadline::After(absl::Seconds(20));
}

std::unique_ptr<Subprocess> Start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), LONGHAUL_PROGRAM);
  StatusOr<std::unique_ptr<Subprocess>> process = Subprocess::Start(arguments);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

TEST_F(CliTest, CtrlCLeavesTheRunRunningAndSaysSo) {
  control_.watched = {State("running", 1)};
  control_.hold_watch = true;
  control_.Start();
  const auto child = Start({"watch", "tiny", "--coordinator", control_.address()});
  EXPECT_TRUE(child->WaitForOutput("running step 1/20", Soon()));
  child->Signal(SIGINT);
  EXPECT_EQ(child->WaitForExit(Soon()), 130);
  EXPECT_THAT(
      child->standard_error(),
      HasSubstr("Interrupted; tiny-abc123 goes on without you. `longhaul watch tiny-abc123` "
                "shows it again"));
}

TEST_F(CliTest, CtrlCEndsACallThatGetsNoAnswer) {
  // A listener that never accepts: the connection stands, gRPC's greeting never comes.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const auto child =
      Start({"ps", "--coordinator", "127.0.0.1:" + std::to_string(ntohs(address.sin_port))});
  // It has dialled, so it is past the start and its signals are taken care of.
  pollfd wait{listener, POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 20'000), 1);
  child->Signal(SIGINT);
  EXPECT_EQ(child->WaitForExit(Soon()), 130);
  EXPECT_EQ(child->standard_error(), "interrupted\n");
  close(listener);
}

}  // namespace
}  // namespace longhaul::cli
