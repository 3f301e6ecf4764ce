// A peer process that is killed, or stopped, while frames go both ways.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/transport/link_test.h"

extern char** environ;

namespace longhaul::transport {
namespace {

class PeerProcess {
 public:
  PeerProcess(std::string backend, std::string address) {
    std::string program = LINK_PEER;
    char* argv[] = {program.data(), backend.data(), address.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, environ), 0);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) const { kill(pid_, signal); }

 private:
  pid_t pid_ = -1;
};

class KilledPeerTest : public LinkTest {
 protected:
  void OpenWithProcess(const LinkOptions& options) {
    at_listener_->keep_payloads = false;
    OpenResult expected;
    listener_->Expect(Key(), kSecret, at_listener_, options, Deadline::After(kPatience),
                      expected.Done());
    peer_ = std::make_unique<PeerProcess>(GetParam().name, listener_->address());
    const auto link = expected.Wait();
    ASSERT_TRUE(link.ok()) << link.status();
    listener_link_ = *link;
    ASSERT_TRUE(at_listener_->WaitForFrames(100));
    // A good deal of frames that have not left when the peer dies.
    for (int i = 0; i < kFrames; ++i) {
      listener_link_->Send(Lane::kBulk, BodyOf(body_), sends_.Expect());
    }
  }

  static constexpr int kFrames = 500;
  const std::string body_ = Pattern(1, 60'000);
  SendLedger sends_;
  std::unique_ptr<PeerProcess> peer_;
};

INSTANTIATE_TEST_SUITE_P(Backend, KilledPeerTest, ::testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(KilledPeerTest, IsLostAtOnceAndGoneWhenItDoesNotComeBack) {
  LinkOptions options;
  options.peer_timeout = absl::Seconds(1);
  OpenWithProcess(options);
  peer_->Signal(SIGKILL);
  const MonoTime killed = Now();
  EXPECT_TRUE(at_listener_->WaitForLost());
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(Now() - killed)));
  const Status reason = at_listener_->WaitForClosed();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable) << reason;
  EXPECT_TRUE(sends_.WaitForAll(kFrames));
}

// A machine that hangs keeps its connections: only its silence shows.
TEST_P(KilledPeerTest, AStoppedProcessIsSuspectAndThenGone) {
  LinkOptions options;
  options.suspect_after = absl::Milliseconds(200);
  options.peer_timeout = absl::Milliseconds(700);
  OpenWithProcess(options);
  peer_->Signal(SIGSTOP);
  EXPECT_TRUE(at_listener_->WaitForSuspect());
  const Status reason = at_listener_->WaitForClosed();
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable) << reason;
  EXPECT_TRUE(sends_.WaitForAll(kFrames));
}

}  // namespace
}  // namespace longhaul::transport
