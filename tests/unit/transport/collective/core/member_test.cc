#include "transport/collective/member.h"

#include <absl/time/clock.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/notification.h"
#include "transport/collective/core/id.h"
#include "transport/collective/core/message.h"
#include "transport/collective/core/unix_socket.h"

namespace longhaul::collective {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

Deadline Soon() {
  return Deadline::After(kPatience);
}

class MemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto rendezvous = Rendezvous::Open();
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
    rendezvous_ = *std::move(rendezvous);
  }

  // `body` on a thread for each rank.
  static void OnRanks(uint32_t size, const std::function<void(uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::shared_ptr<Member>> JoinAll(uint32_t size) {
    std::vector<std::shared_ptr<Member>> members(size);
    OnRanks(size, [&](uint32_t rank) {
      auto member = Member::Join(rendezvous_->id(), {rank, size}, Soon());
      ASSERT_TRUE(member.ok()) << member.status();
      members[rank] = *std::move(member);
    });
    return members;
  }
  // A connection of somebody who has no id.
  UniqueFd Stranger() {
    auto fd = internal::ConnectUnix(internal::ParseId(rendezvous_->id())->socket, Soon());
    EXPECT_TRUE(fd.ok()) << fd.status();
    return *std::move(fd);
  }
  // Whether the other side has closed, without a byte said.
  static bool IsClosedOn(const UniqueFd& fd) {
    std::array<char, 16> bytes;
    return internal::AwaitReady(fd.get(), POLLIN, Soon()) &&
           ::recv(fd.get(), bytes.data(), bytes.size(), 0) <= 0;
  }

  std::unique_ptr<Rendezvous> rendezvous_;
};

TEST_F(MemberTest, TellsInOrder) {
  constexpr uint32_t kSize = 5;
  const auto members = JoinAll(kSize);
  OnRanks(kSize, [&](uint32_t rank) {
    for (int round = 0; round < 50; ++round) {
      const auto words = members[rank]->Tell(fmt::format("{}.{}", rank, round), Soon());
      ASSERT_TRUE(words.ok()) << words.status();
      ASSERT_EQ(words->size(), kSize);
      for (uint32_t other = 0; other < kSize; ++other) {
        ASSERT_EQ((*words)[other], fmt::format("{}.{}", other, round));
      }
    }
  });
}

TEST_F(MemberTest, TellsTheLargestWordsAndEmptyOnes) {
  const auto members = JoinAll(3);
  OnRanks(3, [&](uint32_t rank) {
    const auto words = members[rank]->Tell(std::string(rank * kMaxTellBytes / 2, 'x'), Soon());
    ASSERT_TRUE(words.ok()) << words.status();
    for (uint32_t other = 0; other < 3; ++other) {
      EXPECT_EQ((*words)[other].size(), other * kMaxTellBytes / 2);
    }
  });
  EXPECT_TRUE(absl::IsInvalidArgument(
      members[0]->Tell(std::string(kMaxTellBytes + 1, 'x'), Soon()).status()));
  EXPECT_TRUE(members[0]->status().ok());
}

TEST_F(MemberTest, AGroupOfOneAndOneOfTheMostRanks) {
  const auto alone = JoinAll(1);
  EXPECT_THAT(*alone[0]->Tell("me", Soon()), ElementsAre("me"));
  rendezvous_ = *Rendezvous::Open();
  const auto members = JoinAll(kMaxRanks);
  OnRanks(kMaxRanks, [&](uint32_t rank) {
    const auto words = members[rank]->Tell(std::string(10'000, 'x'), Soon());
    ASSERT_TRUE(words.ok()) << words.status();
    EXPECT_THAT(*words, Each(std::string(10'000, 'x')));
  });
}

TEST_F(MemberTest, RefusesIdsThatAreNone) {
  const auto join = [](const std::string& id) { return Member::Join(id, {0, 1}, Soon()).status(); };
  EXPECT_TRUE(absl::IsInvalidArgument(join("")));
  EXPECT_TRUE(absl::IsInvalidArgument(join("10.0.0.1:4000")));
  // The right form, of a group that is not there.
  const std::string nobody = internal::FormatId(internal::NewRendezvousId());
  EXPECT_TRUE(absl::IsAborted(join(nobody))) << join(nobody);
  // The right socket, another secret.
  auto id = *internal::ParseId(rendezvous_->id());
  id.secret.back() = static_cast<char>(id.secret.back() ^ 1);
  const Status wrong = join(internal::FormatId(id));
  EXPECT_TRUE(absl::IsInvalidArgument(wrong)) << wrong;
  EXPECT_THAT(Message(wrong), HasSubstr("secret"));
}

TEST_F(MemberTest, RefusesPlacesThatDoNotFit) {
  const auto members = JoinAll(2);
  const auto join = [&](Place place) {
    return Member::Join(rendezvous_->id(), place, Soon()).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(join({2, 2})));
  EXPECT_TRUE(absl::IsInvalidArgument(join({0, 0})));
  EXPECT_TRUE(absl::IsInvalidArgument(join({0, kMaxRanks + 1})));
  const Status taken = join({1, 2});
  EXPECT_TRUE(absl::IsInvalidArgument(taken)) << taken;
  EXPECT_THAT(Message(taken), HasSubstr(fmt::format("joined already, with process {}", getpid())));
  const Status other_size = join({1, 3});
  EXPECT_TRUE(absl::IsInvalidArgument(other_size)) << other_size;
  EXPECT_THAT(Message(other_size), HasSubstr("one of 2"));
  // The group goes on.
  OnRanks(2, [&](uint32_t rank) { EXPECT_TRUE(members[rank]->Tell("", Soon()).ok()); });
}

TEST_F(MemberTest, StrangersDisturbNobody) {
  const UniqueFd silent = Stranger();
  const UniqueFd talker = Stranger();
  const std::string rubbish(100, 'r');
  ASSERT_EQ(::send(talker.get(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL), 100);
  EXPECT_TRUE(IsClosedOn(talker));
  const UniqueFd huge = Stranger();
  const std::string claim =
      internal::Encode(internal::MessageKind::kJoin, std::string(internal::kJoinBytes + 1, 'x'));
  ASSERT_GT(::send(huge.get(), claim.data(), claim.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(IsClosedOn(huge));
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 300; ++i) crowd.push_back(Stranger());
  const auto members = JoinAll(2);
  OnRanks(2, [&](uint32_t rank) { EXPECT_TRUE(members[rank]->Tell("", Soon()).ok()); });
  EXPECT_TRUE(IsClosedOn(silent)) << "the crowd is larger than what a rendezvous keeps";
}

TEST_F(MemberTest, AStrangerWhoSaysNothingIsClosedOn) {
  const UniqueFd silent = Stranger();
  const MonoTime begin = Now();
  EXPECT_TRUE(IsClosedOn(silent));
  EXPECT_LT(Now() - begin, absl::Seconds(10));
}

// Another user has read the socket's name, which everybody can see.
TEST_F(MemberTest, AnotherUserIsClosedOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string id = rendezvous_->id();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::seteuid(65534) != 0) ::_exit(2);
    auto fd = internal::ConnectUnix(internal::ParseId(id)->socket, Soon());
    const std::string join =
        internal::Encode(internal::MessageKind::kJoin,
                         internal::EncodeJoin({internal::ParseId(id)->secret, {0, 1}}));
    if (!fd.ok()) ::_exit(3);
    (void)::send(fd->get(), join.data(), join.size(), MSG_NOSIGNAL);
    ::_exit(IsClosedOn(*fd) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(MemberTest, NamesTheRankThatDoesNotJoin) {
  std::array<Status, 2> answers;
  OnRanks(2, [&](uint32_t rank) {
    answers[rank] =
        Member::Join(rendezvous_->id(), {rank, 4}, Deadline::After(absl::Seconds(3))).status();
  });
  for (const Status& answer : answers) {
    EXPECT_THAT(answer.code(),
                AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kAborted));
    EXPECT_THAT(Message(answer), HasSubstr("ranks 2, 3 did not join in time"));
  }
}

TEST_F(MemberTest, NamesTheRankThatDoesNotTell) {
  const auto members = JoinAll(3);
  OnRanks(3, [&](uint32_t rank) {
    if (rank == 1) return;
    const absl::Duration limit = rank == 0 ? absl::Seconds(3) : kPatience;
    const auto words = members[rank]->Tell("", Deadline::After(limit));
    EXPECT_EQ(words.status().code(),
              rank == 0 ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kAborted);
    EXPECT_THAT(Message(words.status()), HasSubstr("rank 1 did not come in time"));
  });
  EXPECT_THAT(Message(members[1]->AwaitEnd(Soon())), HasSubstr("rank 1 did not come in time"));
}

TEST_F(MemberTest, ALostRankIsNamedWithItsProcess) {
  const std::string id = rendezvous_->id();
  const pid_t child = ::fork();
  if (child == 0) {
    // Joins by hand: after fork a child has no threads.
    const auto parsed = internal::ParseId(id);
    auto fd = internal::ConnectUnix(parsed->socket, Soon());
    const std::string join = internal::Encode(internal::MessageKind::kJoin,
                                              internal::EncodeJoin({parsed->secret, {1, 2}}));
    if (!fd.ok() || ::send(fd->get(), join.data(), join.size(), MSG_NOSIGNAL) < 0) ::_exit(1);
    ::pause();
  }
  auto member = Member::Join(id, {0, 2}, Soon());
  ASSERT_TRUE(member.ok()) << member.status();
  ::kill(child, SIGKILL);
  const MonoTime killed = Now();
  const Status told = (*member)->Tell("", Soon()).status();
  EXPECT_LT(Now() - killed, absl::Seconds(10));
  EXPECT_EQ(told, Aborted("rank 1 was lost: its process {} closed its connection", child));
  EXPECT_EQ((*member)->status(), told);
  ::waitpid(child, nullptr, 0);
}

TEST_F(MemberTest, AllSayTheSameWhenSeveralEndAtOnce) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    rendezvous_ = *Rendezvous::Open();
    const auto members = JoinAll(4);
    OnRanks(4, [&](uint32_t rank) {
      members[rank]->End(Internal("it broke at {}", rank));
      EXPECT_TRUE(absl::IsAborted(members[rank]->status()));
    });
    const Status first = members[0]->status();
    EXPECT_THAT(Message(first), AllOf(HasSubstr("rank "), HasSubstr(" failed: it broke at ")));
    for (const auto& member : members) EXPECT_EQ(member->status(), first);
    EXPECT_EQ(members[2]->Tell("", Soon()).status(), first);
  }
}

TEST_F(MemberTest, OnEndRunsOnceAndAlsoAfterTheEnd) {
  const auto members = JoinAll(2);
  std::atomic<int> runs = 0, late_runs = 0, replaced = 0;
  Notification ran, ran_late;
  members[0]->OnEnd([&](const Status&) { ++replaced; });
  members[0]->OnEnd([&](const Status& reason) {
    EXPECT_THAT(Message(reason), HasSubstr("rank 1 failed: broken"));
    EXPECT_EQ(members[0]->status(), reason);
    ++runs;
    // From inside: a new one, which runs at once.
    members[0]->OnEnd([&](const Status&) {
      ++late_runs;
      ran_late.Notify();
    });
    ran.Notify();
  });
  members[1]->End(absl::InternalError("broken"));
  ASSERT_TRUE(ran.WaitFor(kPatience));
  ASSERT_TRUE(ran_late.WaitFor(kPatience));
  members[0]->OnEnd(nullptr);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(late_runs, 1);
  EXPECT_EQ(replaced, 0);
}

TEST_F(MemberTest, OnEndWithNullWaitsForTheOneThatRuns) {
  const auto members = JoinAll(2);
  Notification began;
  std::atomic<bool> done = false;
  members[0]->OnEnd([&](const Status&) {
    began.Notify();
    absl::SleepFor(absl::Milliseconds(100));
    done = true;
  });
  members[1]->End(absl::InternalError("broken"));
  ASSERT_TRUE(began.WaitFor(kPatience));
  members[0]->OnEnd(nullptr);
  EXPECT_TRUE(done);
}

TEST_F(MemberTest, AGoodbyeEndsNothing) {
  auto members = JoinAll(3);
  members[2].reset();
  EXPECT_TRUE(members[0]->AwaitEnd(Deadline::After(absl::Milliseconds(200))).ok());
  // Until somebody needs who has left.
  EXPECT_THAT(Message(members[0]->Tell("", Soon()).status()), HasSubstr("rank 2 left the group"));
}

TEST_F(MemberTest, AClosedRendezvousEndsTheGroup) {
  const auto members = JoinAll(2);
  rendezvous_.reset();
  for (const auto& member : members) {
    EXPECT_EQ(member->AwaitEnd(Soon()), absl::AbortedError("the group's rendezvous was closed"));
  }
}

}  // namespace
}  // namespace longhaul::collective
