#include "transport/relay/relay.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "proto/rpc/listener.h"
#include "transport/relay/pipe.h"
#include "transport/relay/ticket.h"

namespace longhaul::relay {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
const std::string kSecret(kSecretBytes, 's');

Ticket TicketOf(char name, std::string_view secret = kSecret) {
  return MakeTicket(secret, std::string(kNameBytes, name), uint64_t{1} << 40);
}

// A socket to the relay, with limits on every wait.
class End {
 public:
  explicit End(const Relay& relay, int receive_buffer = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(int));
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(ParseHostPort(relay.address())->port);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }

  // Shows a ticket, as `side`.
  void Show(const Ticket& ticket, Side side) {
    const std::string greeting = Read(kGreetingBytes);
    const auto nonce = ParseGreeting(greeting);
    ASSERT_TRUE(nonce.ok()) << nonce.status();
    Write(Answer(ticket, side, *nonce));
  }
  // '-': the connection has ended; '?': nothing came.
  char Word(absl::Duration limit = kPatience) {
    const std::string word = Read(1, limit);
    return word.empty() ? (ended_ ? '-' : '?') : word[0];
  }
  void Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // What the other takes without waiting longer than this for more room.
  size_t WriteUntilFull(std::string_view bytes, absl::Duration patience) {
    size_t sent_in_all = 0;
    while (sent_in_all < bytes.size() && Wait(POLLOUT, patience)) {
      const ssize_t sent = ::send(fd_.get(), bytes.data() + sent_in_all, bytes.size() - sent_in_all,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) sent_in_all += static_cast<size_t>(sent);
    }
    return sent_in_all;
  }
  // Fewer where the connection ends or nothing comes in time.
  std::string Read(size_t bytes, absl::Duration limit = kPatience) {
    std::string got(bytes, '\0');
    size_t count = 0;
    while (count < bytes && Wait(POLLIN, limit)) {
      const ssize_t now = ::recv(fd_.get(), got.data() + count, bytes - count, 0);
      ended_ = now <= 0;
      if (ended_) break;
      count += static_cast<size_t>(now);
    }
    got.resize(count);
    return got;
  }
  bool HasEnded() {
    Read(1);
    return ended_;
  }

 private:
  bool Wait(short events, absl::Duration limit) {
    pollfd one{.fd = fd_.get(), .events = events, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) > 0;
  }
  UniqueFd fd_;
  bool ended_ = false;
};

std::string Bytes(size_t count, unsigned seed) {
  std::string bytes(count, '\0');
  for (char& one : bytes) one = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

class RelayTest : public ::testing::Test {
 protected:
  void Start(RelayOptions options) {
    options.listen = "127.0.0.1:0";
    options.secret = kSecret;
    auto relay = Relay::Start(options);
    ASSERT_TRUE(relay.ok()) << relay.status();
    relay_ = *std::move(relay);
  }
  void SetUp() override { Start({}); }
  bool WaitFor(const std::function<bool(const RelayStats&)>& condition) const {
    const Deadline deadline = Deadline::After(kPatience);
    while (!condition(relay_->stats())) {
      if (deadline.Remaining() <= absl::ZeroDuration()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // Two that are joined.
  std::pair<std::unique_ptr<End>, std::unique_ptr<End>> Pair(char name, int receive_buffer = 0) {
    auto waiter = std::make_unique<End>(*relay_, receive_buffer);
    auto dialler = std::make_unique<End>(*relay_);
    waiter->Show(TicketOf(name), Side::kWaiter);
    dialler->Show(TicketOf(name), Side::kDialler);
    EXPECT_EQ(waiter->Word(), 'J');
    EXPECT_EQ(dialler->Word(), 'J');
    return {std::move(waiter), std::move(dialler)};
  }

  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, PassesBytesBothWaysAtOnce) {
  auto [waiter, dialler] = Pair('a');
  const std::string down = Bytes(8 << 20, 1), up = Bytes(5 << 20, 2);
  std::thread one([&, &dialler = dialler] { dialler->Write(down); });
  std::thread other([&, &waiter = waiter] { waiter->Write(up); });
  std::string got_up;
  std::thread reader([&, &dialler = dialler] { got_up = dialler->Read(up.size()); });
  EXPECT_EQ(waiter->Read(down.size()), down);
  one.join();
  other.join();
  reader.join();
  EXPECT_EQ(got_up, up);
  // It counts what the other end may have read already.
  EXPECT_TRUE(WaitFor([&](const RelayStats& stats) {
    return stats.bytes == down.size() + up.size();
  })) << relay_->stats().bytes;
}

TEST_F(RelayTest, JoinsWhoeverOfTheTwoComesFirst) {
  End dialler(*relay_), waiter(*relay_);
  dialler.Show(TicketOf('a'), Side::kDialler);
  ASSERT_TRUE(WaitFor([](const RelayStats& stats) { return stats.waiting == 1; }));
  waiter.Show(TicketOf('a'), Side::kWaiter);
  EXPECT_EQ(dialler.Word(), 'J');
  EXPECT_EQ(waiter.Word(), 'J');
}

// Whoever was there before may be gone without a word, and come again.
TEST_F(RelayTest, JoinsTheNewestOfThoseThatWait) {
  End older(*relay_), newer(*relay_), dialler(*relay_), second(*relay_);
  older.Show(TicketOf('a'), Side::kWaiter);
  ASSERT_TRUE(WaitFor([](const RelayStats& stats) { return stats.waiting == 1; }));
  newer.Show(TicketOf('a'), Side::kWaiter);
  ASSERT_TRUE(WaitFor([](const RelayStats& stats) { return stats.waiting == 2; }));
  dialler.Show(TicketOf('a'), Side::kDialler);
  EXPECT_EQ(newer.Word(), 'J');
  EXPECT_EQ(dialler.Word(), 'J');
  EXPECT_EQ(relay_->stats().waiting, 1u);
  second.Show(TicketOf('a'), Side::kDialler);
  EXPECT_EQ(older.Word(), 'J');
}

TEST_F(RelayTest, JoinsNeitherOtherNamesNorTwoOfOneSide) {
  Start({.patience = absl::Milliseconds(100)});
  End waiter(*relay_), same_side(*relay_), dialler(*relay_);
  waiter.Show(TicketOf('a'), Side::kWaiter);
  same_side.Show(TicketOf('a'), Side::kWaiter);
  dialler.Show(TicketOf('b'), Side::kDialler);
  EXPECT_EQ(dialler.Word(), 'N');
  EXPECT_TRUE(dialler.HasEnded());
  EXPECT_EQ(relay_->stats().joined, 0u);
}

TEST_F(RelayTest, WhatWasSentArrivesBeforeTheEnd) {
  auto [waiter, dialler] = Pair('a');
  const std::string last = Bytes(300'000, 3);
  dialler->Write(last);
  dialler.reset();
  EXPECT_EQ(waiter->Read(last.size()), last);
  EXPECT_TRUE(waiter->HasEnded());
  EXPECT_TRUE(WaitFor([](const RelayStats& stats) { return stats.pipes == 0; }));
}

TEST_F(RelayTest, WhoHasNoTicketGetsNoFurther) {
  End forger(*relay_), babbler(*relay_), waiter(*relay_);
  waiter.Show(TicketOf('a'), Side::kWaiter);
  forger.Show(TicketOf('a', std::string(kSecretBytes, 'x')), Side::kDialler);
  EXPECT_EQ(forger.Word(), 'R');
  EXPECT_TRUE(forger.HasEnded());
  babbler.Read(kGreetingBytes);
  babbler.Write(Bytes(kAnswerBytes, 5));
  EXPECT_EQ(babbler.Word(), 'R');
  EXPECT_EQ(relay_->stats().refused, 2u);
  EXPECT_EQ(relay_->stats().joined, 0u);
}

// An answer that was seen on the way is of no use: the next greeting has another nonce.
TEST_F(RelayTest, AnAnswerCannotBeSaidAgain) {
  End one(*relay_), other(*relay_);
  const std::string greeting = one.Read(kGreetingBytes);
  const auto nonce = ParseGreeting(greeting);
  ASSERT_TRUE(nonce.ok()) << nonce.status();
  other.Read(kGreetingBytes);
  other.Write(Answer(TicketOf('a'), Side::kDialler, *nonce));
  EXPECT_EQ(other.Word(), 'R');
}

TEST_F(RelayTest, AFloodOfStrangersHarmsNobodyWithATicket) {
  auto [waiter, dialler] = Pair('a');
  std::vector<std::unique_ptr<End>> strangers;
  for (size_t i = 0; i < 2 * kMaxStrangers; ++i)
    strangers.push_back(std::make_unique<End>(*relay_));
  // The oldest gave place to the newest.
  strangers.front()->Read(kGreetingBytes);
  EXPECT_TRUE(strangers.front()->HasEnded());
  dialler->Write("still here");
  EXPECT_EQ(waiter->Read(10), "still here");
  Pair('b');
}

TEST_F(RelayTest, ASlowReaderStopsItsSenderAlone) {
  auto [slow, sender] = Pair('a', /*receive_buffer=*/16 << 10);
  const std::string much = Bytes(64 << 20, 4);
  const size_t taken = sender->WriteUntilFull(much, absl::Milliseconds(300));
  EXPECT_LT(taken, 32u << 20);
  const uint64_t carried = relay_->stats().bytes;
  // What the relay itself holds is what it has taken and the slow one's kernel has not.
  EXPECT_LE(taken - carried, (16u << 20) + kPipeBufferBytes);
  auto [waiter, dialler] = Pair('b');
  dialler->Write("as fast as ever");
  EXPECT_EQ(waiter->Read(15), "as fast as ever");
  EXPECT_EQ(slow->Read(taken), much.substr(0, taken));
}

TEST_F(RelayTest, OfOneNameFewWait) {
  Start({.most_of_a_name = 2});
  std::vector<std::unique_ptr<End>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(std::make_unique<End>(*relay_));
    waiters.back()->Show(TicketOf('a'), Side::kWaiter);
    ASSERT_TRUE(
        WaitFor([&](const RelayStats& stats) { return stats.waiting == (i == 0 ? 1 : 2); }));
  }
  EXPECT_TRUE(waiters[0]->HasEnded());
  End dialler(*relay_);
  dialler.Show(TicketOf('a'), Side::kDialler);
  EXPECT_EQ(dialler.Word(), 'J');
}

// Whoever holds one ticket may not use up what the relay carries.
TEST_F(RelayTest, OfOneNameFewAreJoined) {
  Start({.most_of_a_name = 2, .most_pipes = 4});
  auto first = Pair('a'), second = Pair('a'), other = Pair('b'), third = Pair('a');
  EXPECT_TRUE(first.first->HasEnded());
  EXPECT_TRUE(first.second->HasEnded());
  EXPECT_EQ(relay_->stats().pipes, 3u);
  for (const auto* pair : {&second, &other, &third}) {
    pair->second->Write("here");
    EXPECT_EQ(pair->first->Read(4), "here");
  }
}

TEST_F(RelayTest, CarriesNoMoreThanItMay) {
  Start({.most_pipes = 1});
  auto pair = Pair('a');
  End third(*relay_);
  third.Show(TicketOf('b'), Side::kWaiter);
  EXPECT_EQ(third.Word(), 'F');
  pair.first.reset();
  ASSERT_TRUE(WaitFor([](const RelayStats& stats) { return stats.pipes == 0; }));
  Pair('b');
}

TEST_F(RelayTest, ItsEndEndsWhatItCarries) {
  auto [waiter, dialler] = Pair('a');
  relay_.reset();
  EXPECT_TRUE(waiter->HasEnded());
  EXPECT_TRUE(dialler->HasEnded());
}

// The scope of a ticket is the beginning of its name.
std::string ScopeOfName(char name) {
  return std::string(kScopeBytes, name);
}

// A ticket ends with its epoch, whatever time it names.
TEST_F(RelayTest, ATicketCountsWhileItsScopeIsServed) {
  Start({.scoped = true});
  const auto nobody = [&](Side side) {
    End end(*relay_);
    end.Show(TicketOf('a'), side);
    return end.Word() == 'N' && end.HasEnded();
  };
  EXPECT_TRUE(nobody(Side::kWaiter));
  EXPECT_TRUE(nobody(Side::kDialler));
  relay_->Serve({ScopeOfName('a'), ScopeOfName('b')});
  auto a = Pair('a');
  auto b = Pair('b');
  End waits(*relay_);
  waits.Show(TicketOf('a'), Side::kWaiter);
  ASSERT_TRUE(WaitFor([](const RelayStats& stats) { return stats.waiting == 1; }));
  relay_->Serve({ScopeOfName('b')});
  EXPECT_TRUE(a.first->HasEnded());
  EXPECT_TRUE(a.second->HasEnded());
  EXPECT_EQ(waits.Word(), 'N');
  EXPECT_TRUE(nobody(Side::kWaiter));
  b.first->Write("still here");
  EXPECT_EQ(b.second->Read(10), "still here");
  EXPECT_EQ(relay_->stats().refused, 3u);
  EXPECT_EQ(relay_->stats().pipes, 1u);
}

TEST_F(RelayTest, WithoutScopesAllItsTicketsCount) {
  auto a = Pair('a');
  relay_->Serve({});
  EXPECT_TRUE(a.first->HasEnded());
  EXPECT_TRUE(WaitFor([](const RelayStats& stats) { return stats.pipes == 0; }));
}

}  // namespace
}  // namespace longhaul::relay
