// What others than a rank's communicator may write on its sockets.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/collective/core/unix_socket.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/host/header.h"

namespace longhaul::collective::host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() {
  return Deadline::After(absl::Seconds(20));
}

// Rank 0 makes a communicator; rank 1 is a member that the test speaks for.
class MeshTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rendezvous_ = *Rendezvous::Open();
    thread_ = std::thread([this] {
      auto member = Member::Join(rendezvous_->id(), {0, 2}, Soon());
      created_ = member.status();
      if (!created_.ok()) return;
      auto communicator = Create(*std::move(member), {}, Soon());
      created_ = communicator.status();
      if (communicator.ok()) called_ = (*communicator)->Barrier({});
    });
    auto member = Member::Join(rendezvous_->id(), {1, 2}, Soon());
    ASSERT_TRUE(member.ok()) << member.status();
    member_ = *std::move(member);
  }
  void TearDown() override {
    member_.reset();
    if (thread_.joinable()) thread_.join();
  }
  // Where rank 0 listens, and its secret.
  std::pair<std::string, std::string> Address(const std::string& mine = "") {
    const auto words = member_->Tell(mine, Soon());
    EXPECT_TRUE(words.ok()) << words.status();
    const std::string& word = words->at(0);
    const size_t blank = word.find(' ');
    return {word.substr(0, blank), word.substr(blank + 1)};
  }
  static UniqueFd Dial(const std::string& name) {
    auto fd = internal::ConnectUnix(name, Soon());
    EXPECT_TRUE(fd.ok()) << fd.status();
    return *std::move(fd);
  }
  template <class Bytes>
  static void Send(const UniqueFd& fd, const Bytes& bytes) {
    ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static bool IsClosedOn(const UniqueFd& fd) {
    std::array<char, 16> bytes;
    return internal::AwaitReady(fd.get(), POLLIN, Soon()) &&
           ::recv(fd.get(), bytes.data(), bytes.size(), 0) <= 0;
  }
  Status Called() {
    thread_.join();
    EXPECT_TRUE(created_.ok()) << created_;
    return called_;
  }

  std::unique_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<Member> member_;
  std::thread thread_;
  Status created_, called_;
};

TEST_F(MeshTest, TakesARankAmongStrangers) {
  const auto [name, secret] = Address();
  const UniqueFd silent = Dial(name), slow = Dial(name), talker = Dial(name),
                 false_rank = Dial(name);
  Send(talker, std::string(1000, 'r'));
  EXPECT_TRUE(IsClosedOn(talker));
  Send(false_rank, EncodeHello(secret, 2));
  EXPECT_TRUE(IsClosedOn(false_rank));
  Send(slow, std::string(3, 's'));
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(Dial(name));
  EXPECT_TRUE(IsClosedOn(silent)) << "the crowd is larger than what a mesh keeps";
  const UniqueFd rank = Dial(name);
  Send(rank, EncodeHello(secret, 1));
  ASSERT_TRUE(member_->Tell("", Soon()).ok());
  Send(rank, EncodeHeader({.call = {.op = Op::kBarrier}, .number = 1}));
  EXPECT_TRUE(Called().ok()) << called_;
}

TEST_F(MeshTest, AHeaderThatIsNoneEndsTheGroup) {
  const auto [name, secret] = Address();
  const UniqueFd rank = Dial(name);
  Send(rank, EncodeHello(secret, 1));
  ASSERT_TRUE(member_->Tell("", Soon()).ok());
  Send(rank, std::string(kHeaderBytes, 'r'));
  EXPECT_THAT(Message(Called()),
              AllOf(HasSubstr("rank 0 failed: from rank 1"), HasSubstr("header")));
  EXPECT_EQ(member_->AwaitEnd(Soon()), called_);
}

TEST_F(MeshTest, ASocketThatClosesWithoutAWordIsNamed) {
  const auto [name, secret] = Address();
  {
    const UniqueFd rank = Dial(name);
    Send(rank, EncodeHello(secret, 1));
    ASSERT_TRUE(member_->Tell("", Soon()).ok());
  }
  EXPECT_THAT(Message(Called()),
              HasSubstr("closed its connection and did not come to call 1, Barrier"));
}

TEST_F(MeshTest, AWordThatIsNoAddressIsNamed) {
  // Rank 1 dials rank 0, so here rank 0 must be the test's: a group of its own.
  auto rendezvous = *Rendezvous::Open();
  std::thread other([&] {
    auto member = Member::Join(rendezvous->id(), {0, 2}, Soon());
    ASSERT_TRUE(member.ok()) << member.status();
    EXPECT_TRUE((*member)->Tell("of_another_kind_of_communicator", Soon()).ok());
    EXPECT_FALSE((*member)->AwaitEnd(Soon()).ok());
  });
  auto member = Member::Join(rendezvous->id(), {1, 2}, Soon());
  ASSERT_TRUE(member.ok()) << member.status();
  const Status created = Create(*std::move(member), {}, Soon()).status();
  EXPECT_THAT(Message(created), HasSubstr("no address of a host communicator"));
  other.join();
}

}  // namespace
}  // namespace longhaul::collective::host
